"""A log of the decisions that hooks make: `audit`, with `args: {path: audit.jsonl}`.

Each decision is one record: its time, user, hook, action, reason and place, and how long the text was held.
The record has the withheld text only if asked for. The hook may be anywhere in the pipeline.
"""

import sqlite3
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from hooks import Chunk, Decision, Verdict, checked, emit
from hooks.builtin.audit_log.journal import Journal, Sink, now
from hooks.builtin.audit_log.sinks import LineFile, Table
from hooks.detect.argument_types import Count

_ALWAYS = (
    *("request_id", "user", "model", "endpoint", "hook", "action", "reason", "mode"),
    *("output_index", "channel", "tool_name", "offset", "num_withheld", "held_seconds"),
)
_JUDGED = ("num_judged", "num_unjudged", "max_unjudged")
FIELDS = ("time", *_ALWAYS, *_JUDGED, "text")
"""The fields of a record, in order. `time` is UTC; `text` is the withheld text, if it is kept; the rest are
attributes of `Decision`, and only `judged` has those of `_JUDGED`. `tool_name` counts as withheld text if the
request has no such tool."""
_MAX_NAME = 256
"""Characters kept of a name that a caller or a model gave."""


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

        `max_size`: most bytes of a file of lines (64 MiB). A full file is renamed to `path.1`, `path.1` to
        `path.2` and so on. `keep`: the number of renamed files (5). `include_text`: record the withheld text.
        `min_held`: seconds; a shorter hold makes no record if nothing was withheld.

        Records that cannot be written wait and are tried again; an error is logged. `required`: every request
        fails meanwhile; otherwise up to 10,000 records wait, and the audit counts the lost ones.

        Raises `OSError` or `sqlite3.Error` if it cannot be written, and `ValueError` for invalid arguments.
        """
        if format == "sqlite" and (max_size is not None or keep is not None):
            raise ValueError("max_size and keep are of files of lines")
        max_size, keep = 64 * 1024 * 1024 if max_size is None else max_size, 5 if keep is None else keep
        try:
            is_lines = format == "jsonl"
            sink: Sink = LineFile(path, max_size, keep) if is_lines else Table(path, FIELDS, _JUDGED)
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
        if not self._journal.put(self._record(decision)) and self._is_required:
            raise OSError("the audit cannot be written")

    def close(self) -> None:
        """Write the waiting records: see `Journal.close`."""
        self._journal.close()

    def _record(self, decision: Decision) -> dict[str, Any]:
        names = (*_ALWAYS, *_JUDGED) if decision.action == "judged" else _ALWAYS
        record = {name: getattr(decision, name) for name in names}
        if decision.is_own_tool and not self._includes_text:
            record["tool_name"] = None
        for name in ("user", "model", "tool_name"):
            record[name] = record[name] and record[name][:_MAX_NAME]
        record["held_seconds"] = round(decision.held_seconds, 6)
        record["time"] = now()
        if self._includes_text:
            record["text"] = decision.withheld
        return {name: record[name] for name in FIELDS if name in record}
