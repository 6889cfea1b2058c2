"""Runs the logits processors of one draw (contract 7.1, 7.2, 7.5, 7.6).

A processor of the batch form is called once for all rows that have it. If the call fails, each row is called
alone, so that only the row at fault fails. Each row gets the same result as alone. A mask of the row form
that lists tokens (`forbidden`) is asked row by row on the host, and all rows are masked at once.

After each call the result is limited: a mask raises no logit, and a shaper brings back no token that is minus
infinity. A processor that leaves something that is not a number, or no token to draw, fails its row. If the
bans of rewinds leave no token, no processor is at fault. If the request's own grammar, `allowed_token_ids`
and `bad_words` leave none, its caller is. All this is found when the draw is read, so that the host need not
wait for the device before.
"""

import math
from collections.abc import Callable, Sequence
from copy import copy
from operator import attrgetter, index
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from engine.device.cuda import raise_if_lost
from engine.device.transfers import on_device, rows_of
from engine.protocol import LogitsProcessorError, RequestError
from engine.sampling.logits_processors.api import BatchLogitsProcessor, Kind
from engine.sampling.logits_processors.started import (
    BadLogitsError,
    ProcessorEntry,
    StartedProcessor,
    log_failure,
)
from engine.sampling.sampling_state import NoOtherToken, SamplingState

CEILING = 1e30
"""The most that a shaper raises a logit by, even to infinity, so that later stages can still calculate."""


Result = TypeVar("Result")


class _Row(NamedTuple):
    at: int
    """Its place in the logits."""
    state: SamplingState
    started: StartedProcessor


Outcomes = dict[int, LogitsProcessorError | RequestError | NoOtherToken]
"""By row, the reason why it has no token to draw."""


class ProcessorRun:
    def __init__(self, logits: Tensor, states: Sequence[SamplingState]) -> None:
        """`logits` `[rows, vocab]` are not changed."""
        self.bests: list[Tensor] = []
        """The best logits that each call and the bans left, one for each of their rows."""
        self._called: list[Sequence[_Row | int]] = []
        """The rows of each call. For the bans, the rows' places."""
        self._failed: Outcomes = {}
        """Rows whose processor raised or returned what it may not."""
        self._input = logits
        self._rows = [_Row(i, s, started) for i, s in enumerate(states) for started in s.processors]

    def mask(self, logits: Tensor, _: Sequence[SamplingState]) -> Tensor:
        return self._run("mask", logits)

    def shape(self, logits: Tensor, _: Sequence[SamplingState]) -> Tensor:
        return self._run("shaper", logits)

    def _run(self, kind: Kind, logits: Tensor) -> Tensor:
        calls: dict[ProcessorEntry, list[_Row]] = {}
        for row in self._rows:
            if row.started.entry.kind == kind:
                calls.setdefault(row.started.entry, []).append(row)
        if not calls:
            return logits
        if logits is self._input:
            logits = logits.clone()
        for entry in sorted(calls, key=attrgetter("rank")):
            rows = [row for row in calls[entry] if row.at not in self._failed]
            if entry.batch is not None and rows:
                self._call_batch(rows, entry.batch, logits)
            elif kind == "mask" and rows and callable(getattr(rows[0].started.call, "forbidden", None)):
                self._forbid(rows, logits)
            else:
                for row in rows:
                    self._call(row, logits)
        return logits

    def note_bans(self, logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
        """Note the best logits after the bans of rewinds. Returns `logits`."""
        if banned := [row for row, s in enumerate(states) if s.banned_here]:
            self._note(banned, rows_of(logits, banned).amax(-1))
        return logits

    def failures(self, bests: Sequence[Tensor]) -> Outcomes:
        """The rows that have no token to draw because of a processor, or of bans. `bests`: on the host."""
        failed: Outcomes = {}
        for rows, best_logits in zip(self._called, bests, strict=True):
            for row, best in zip(rows, best_logits.tolist(), strict=True):
                at = row if isinstance(row, int) else row.at
                if not math.isfinite(best) and at not in failed and self._has_numbers(at):
                    failed[at] = NoOtherToken() if isinstance(row, int) else _left_none(row, best)
        return self._failed | failed  # a row is not called again once it has raised

    def why_none(self, row: int) -> RequestError | None:
        """The error of a row that has no token to draw, if no processor and no ban took the last one away.
        None: the model gave none."""
        if not self._has_numbers(row):
            return None
        return RequestError("The sampling parameters leave no token that may come next.")

    def _has_numbers(self, row: int) -> bool:
        return bool(self._input[row].amax().isfinite())

    def _call(self, row: _Row, logits: Tensor) -> None:
        own, kind = logits[row.at], row.started.entry.kind
        outcome = _outcome(lambda: torch.minimum(_call_row(row, own), _limit(kind, own), out=own))
        if isinstance(outcome, BaseException):
            self._failed[row.at] = _failure(row, outcome)
        else:
            self._note([row], own.amax(-1, keepdim=True))

    def _forbid(self, rows: list[_Row], logits: Tensor) -> None:
        masked: list[_Row] = []
        places: list[tuple[int, int]] = []
        for row in rows:
            token_ids = _outcome(lambda row=row: _listed(row, logits.shape[-1]))  # type: ignore[misc]
            if isinstance(token_ids, BaseException):
                self._failed[row.at] = _failure(row, token_ids)
            elif token_ids:
                masked.append(row)
                places += [(row.at, token_id) for token_id in token_ids]
        if masked:
            logits.index_put_(on_device(places, logits.device).unbind(1), logits.new_tensor(-math.inf))
            self._note(masked, rows_of(logits, [row.at for row in masked]).amax(-1))

    def _call_batch(self, rows: list[_Row], processor: BatchLogitsProcessor, logits: Tensor) -> None:
        index = on_device([row.at for row in rows], logits.device)
        own, kind = logits[index], rows[0].started.entry.kind
        params = [row.started.params or {} for row in rows]
        saved = [_copied(one) for one in params]
        outcome = _outcome(
            lambda: torch.minimum(_fitting(processor(own.clone(), params), own), _limit(kind, own))
        )
        if not isinstance(outcome, BaseException):
            logits.index_copy_(0, index, outcome)
            self._note(rows, outcome.amax(-1))
        elif len(rows) == 1:
            self._failed[rows[0].at] = _failure(rows[0], outcome)
        else:
            for row, changed, before in zip(rows, params, saved, strict=True):
                changed.clear()
                changed.update(before)
                self._call_batch([row], processor, logits)

    def _note(self, rows: Sequence[_Row | int], bests: Tensor) -> None:
        self._called.append(rows)
        self.bests.append(bests)


def _left_none(row: _Row, best: float) -> LogitsProcessorError | RequestError:
    """The caller is at fault if the processor is one that fields of every request may ask for."""
    is_number = not math.isnan(best)
    if is_number and row.started.entry.is_callers:
        return row.state.no_token_left()
    left = "no token to draw" if is_number else "something that is not a number"
    return _failure(row, BadLogitsError(f"it left {left}"), left_no_token=is_number)


def _failure(
    row: _Row, error: BaseException, *, left_no_token: bool = False
) -> LogitsProcessorError | RequestError:
    if isinstance(error, RequestError) and row.started.entry.is_callers:
        return error
    name = row.started.entry.name
    log_failure(name, f"failed request {row.state.request_id}", error)
    return LogitsProcessorError(name, left_no_token=left_no_token)


def _limit(kind: Kind, logits: Tensor) -> Tensor:
    """The most that each logit can be after a call: a mask raises none, and a shaper none that is masked."""
    return logits if kind == "mask" else logits + CEILING


def _copied(params: dict[str, Any]) -> dict[str, Any]:
    """A copy of the dict, and of the lists, sets and dicts in it."""
    return {name: copy(one) if isinstance(one, list | set | dict) else one for name, one in params.items()}


def _outcome(call: Callable[[], Result]) -> Result | BaseException:
    """The call's result, or the exception that fails its rows. The loss of the device is raised."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is not an `Exception`; the caller logs it
        raise_if_lost(error)
        return error


def _listed(row: _Row, vocab_size: int) -> list[int]:
    """Raises `BadLogitsError` for a token that the model does not have: a GPU would be lost by it."""
    token_ids = [index(token_id) for token_id in row.started.call.forbidden(row.state.token_ids)]  # type: ignore[union-attr]
    if not all(0 <= token_id < vocab_size for token_id in token_ids):
        raise BadLogitsError("it listed a token id that the model does not have")
    return token_ids


def _call_row(row: _Row, logits: Tensor) -> Tensor:
    """`logits` are not changed: no processor can reach a tensor that holds other rows."""
    call = row.started.call
    assert call is not None
    result = call(row.state.token_ids, changed := logits.clone())
    return _fitting(changed if result is None else result, logits)


def _fitting(result: object, like: Tensor) -> Tensor:
    """Raises `BadLogitsError` if `result` cannot replace `like`."""
    if not isinstance(result, Tensor):
        raise BadLogitsError(f"it returned {type(result).__name__}, not a tensor")
    if result.shape != like.shape:
        raise BadLogitsError(f"it returned shape {tuple(result.shape)} for shape {tuple(like.shape)}")
    return result.to(like)
