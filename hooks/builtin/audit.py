"""An account of what hooks decide, for whoever answers for it: `audit`, with `args: {path: audit.jsonl}`.

One record for each decision: when, for whom, by which hook, what and why, where, and how long it had been
held; the withheld text only if asked for. It may stand anywhere in the pipeline, and lets everything through.
"""

import sqlite3
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from hooks import Chunk, Decision, Verdict, checked, emit
from hooks.builtin.audit_log.journal import Journal, Sink, now
from hooks.builtin.audit_log.sinks import LineFile, Table
from hooks.detect.argument_types import Count

_TOLD = (
    *("request_id", "user", "model", "endpoint", "hook", "action", "reason", "mode"),
    *("output_index", "channel", "tool_name", "offset", "num_withheld", "held_seconds"),
)
FIELDS = ("time", *_TOLD, "text")
"""The fields of a record, in order. `time` is UTC; `text` is what was withheld, if that is kept; the others
are those of `Decision`. `tool_name` counts as withheld text if the request has no such tool."""
_MIB = 1024 * 1024
_MAX_NAME = 256
"""Characters that are kept of a name that a caller or a model gave."""


class Audit:
    """Records every decision that hooks make, and lets all text through."""

    @checked
    def __init__(
        self,
        path: str | Path = "audit.jsonl",
        *,
        format: Literal["jsonl", "sqlite"] = "jsonl",  # noqa: A002 - the name in a configuration
        max_size: Count | None = None,
        keep: Annotated[int, Field(ge=0)] | None = None,
        include_text: bool = False,
        min_held: Annotated[float, Field(ge=0)] = 1.0,
        required: bool = True,
    ) -> None:
        """`format`: `jsonl`, a JSON object a line, or `sqlite`, rows of a table `decisions`.

        `max_size`: bytes of a file of lines (64 MiB), which is then renamed to `path.1`, that to `path.2` and
        so on; `keep`: how many of those (5). `include_text`: also what was withheld. `min_held`: seconds; a
        hold that ended sooner, with nothing withheld, is no record.

        What cannot be written waits, is tried again and is logged as an error. `required`: meanwhile every
        request fails; else 10,000 records wait, and those that are lost are counted in the audit.

        Raises `OSError` or `sqlite3.Error` if it cannot be written, and `ValueError` for what makes no sense.
        """
        if format == "sqlite" and (max_size is not None or keep is not None):
            raise ValueError("max_size and keep are of files of lines")
        max_size, keep = 64 * _MIB if max_size is None else max_size, 5 if keep is None else keep
        try:
            sink: Sink = Table(path, FIELDS) if format == "sqlite" else LineFile(path, max_size, keep)
        except OSError as error:
            raise OSError(f"path: {path} cannot be written: {error.strerror}") from error
        except sqlite3.Error as error:
            raise sqlite3.DatabaseError(f"path: {path} cannot be written: {error}") from error
        self._journal = Journal(sink, str(path))
        self._includes_text = include_text
        self._min_held = min_held
        self._is_required = required

    def __call__(self, chunk: Chunk) -> Verdict:
        if self._is_required and self._journal.error is not None and not chunk.aborted:
            raise OSError("the audit cannot be written")
        return emit(chunk.pending)

    def on_decision(self, decision: Decision) -> None:
        is_short = decision.held_seconds < self._min_held
        if decision.action == "hold" and is_short and not decision.num_withheld:
            return
        is_kept = self._journal.put(self._record(decision))
        if self._is_required and not is_kept:
            raise OSError("the audit cannot be written")

    def close(self) -> None:
        """Write what waits: see `Journal.close`."""
        self._journal.close()

    def _record(self, decision: Decision) -> dict[str, Any]:
        record = {name: getattr(decision, name) for name in _TOLD}
        if decision.is_own_tool and not self._includes_text:
            record["tool_name"] = None
        for name in ("user", "model", "tool_name"):
            record[name] = record[name] and record[name][:_MAX_NAME]
        record["held_seconds"] = round(decision.held_seconds, 6)
        record["time"] = now()
        if self._includes_text:
            record["text"] = decision.withheld
        return {name: record[name] for name in FIELDS if name in record}
