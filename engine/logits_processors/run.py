"""Runs the logits processors of a draw (contract 7.1, 7.2, 7.5, 7.6).

A processor of the batch form is called once for all rows that have it; if that fails, once for each, so that
only the row at fault fails. Each row fares as it would alone. After each call a row's limit is held: a mask
raises no logit, a shaper brings back none that was minus infinity. Who leaves something that is not a number,
or no token to draw, fails its row.
"""

import math
from collections.abc import Callable
from collections.abc import Sequence as Seq
from copy import copy
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.core.sequence import Sequence
from engine.logits_processors.api import BatchLogitsProcessor, Kind, LogitsProcessor, TokenIds
from engine.logits_processors.failures import BadLogitsError, log_failure
from engine.protocol import LogitsProcessorError

CEILING = 1e30
"""As far as a shaper may raise a logit, infinity included: what follows can still calculate with it."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A processor, whosever it is."""

    name: str
    kind: Kind
    rank: int
    """Of one kind, the lowest runs first."""
    batch: BatchLogitsProcessor | None = None
    """Its one instance, if it has the batch form."""


@dataclass(frozen=True, slots=True, eq=False)
class Started:
    """A processor of one sequence's. Made before the sequence is admitted, and dropped with it."""

    entry: Entry
    call: LogitsProcessor | None = None
    """Its own instance, in the per-row form."""
    params: dict[str, Any] | None = None
    """Its own dict, in the batch form: parameters, and what the processor puts there."""


class _Row(NamedTuple):
    at: int
    """In the logits."""
    sequence: Sequence
    started: Started


class ProcessorRun:
    """One draw's. `failed`: the rows that a processor failed."""

    def __init__(self, logits: Tensor, sequences: Seq[Sequence]) -> None:
        """`logits` `[rows, vocab]` are left as they are."""
        self.failed: dict[int, LogitsProcessorError] = {}
        self._given = logits
        self._rows = [_Row(i, s, started) for i, s in enumerate(sequences) for started in s.processors]
        self._bests: list[tuple[list[_Row], Tensor]] = []

    def mask(self, logits: Tensor, _: Seq[Sequence]) -> Tensor:
        return self._run("mask", logits)

    def shape(self, logits: Tensor, _: Seq[Sequence]) -> Tensor:
        return self._run("shaper", logits)

    def _run(self, kind: Kind, logits: Tensor) -> Tensor:
        calls: dict[Entry, list[_Row]] = {}
        for row in self._rows:
            if row.started.entry.kind == kind and row.at not in self.failed:
                calls.setdefault(row.started.entry, []).append(row)
        if not calls:
            return logits
        if logits is self._given:
            logits = logits.clone()
        for entry in sorted(calls, key=attrgetter("rank")):
            if entry.batch is None:
                for row in calls[entry]:
                    self._call(row, logits)
            else:
                self._call_batch(calls[entry], entry.batch, logits)
        self._check()
        return logits

    def _call(self, row: _Row, logits: Tensor) -> None:
        own, kind = logits[row.at], row.started.entry.kind
        given = _outcome(lambda: torch.minimum(_call_row(row, own), _limit(kind, own), out=own))
        if isinstance(given, BaseException):
            self._fail(row, given)
        else:
            self._bests.append(([row], own.amax(-1, keepdim=True)))

    def _call_batch(self, rows: list[_Row], processor: BatchLogitsProcessor, logits: Tensor) -> None:
        index = torch.tensor([row.at for row in rows], device=logits.device)
        own, kind = logits[index], rows[0].started.entry.kind
        params = [row.started.params or {} for row in rows]
        before = [_copied(one) for one in params]
        given = _outcome(
            lambda: torch.minimum(_fitting(processor(own.clone(), params), own), _limit(kind, own))
        )
        if not isinstance(given, BaseException):
            logits.index_copy_(0, index, given)
            self._bests.append((rows, given.amax(-1)))
        elif len(rows) == 1:
            self._fail(rows[0], given)
        else:
            for row, one, was in zip(rows, params, before, strict=True):
                one.clear()
                one.update(was)
                self._call_batch([row], processor, logits)

    def _check(self) -> None:
        """Fail the rows whose best logit is none."""
        found = torch.cat([best for _, best in self._bests]).tolist() if self._bests else []
        rows = [row for rows, _ in self._bests for row in rows]
        self._bests.clear()
        for row, best in zip(rows, found, strict=True):
            if not math.isfinite(best) and self._given[row.at].amax().isfinite():
                left = "something that is not a number" if math.isnan(best) else "no token to draw"
                self._fail(row, BadLogitsError(f"it left {left}"))

    def _fail(self, row: _Row, error: BaseException) -> None:
        name = row.started.entry.name
        if row.at not in self.failed:
            request_id = row.sequence.group.request.request_id
            log_failure(name, f"failed request {request_id}", error)
            self.failed[row.at] = LogitsProcessorError(name)


def _limit(kind: Kind, logits: Tensor) -> Tensor:
    """What no logit may exceed after the call: itself, or for a shaper anything that is not masked."""
    return logits if kind == "mask" else logits + CEILING


def _copied(params: dict[str, Any]) -> dict[str, Any]:
    """With what is in it that a processor may add to."""
    return {name: copy(one) if isinstance(one, list | set | dict) else one for name, one in params.items()}


def _outcome(call: Callable[[], Tensor]) -> Tensor | BaseException:
    """What a processor gave, or what it raised: anything but the loss of the device is its row's affair."""
    try:
        return call()
    except (torch.AcceleratorError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is no `Exception`; whoever gets it logs it
        return error


def _call_row(row: _Row, logits: Tensor) -> Tensor:
    """`logits` stay as they are: no processor gets hold of a tensor in which other rows stand."""
    seq, call = row.sequence, row.started.call
    assert call is not None
    given = call(TokenIds(seq.token_ids, seq.num_prompt_tokens), changed := logits.clone())
    return _fitting(changed if given is None else given, logits)


def _fitting(given: object, like: Tensor) -> Tensor:
    """Raises `BadLogitsError` for what cannot stand in its place."""
    if not isinstance(given, Tensor):
        raise BadLogitsError(f"it gave no tensor but {type(given).__name__}")
    if given.shape != like.shape:
        raise BadLogitsError(f"it gave {tuple(given.shape)} for {tuple(like.shape)}")
    return given.to(like)
