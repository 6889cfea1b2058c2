"""Watches every call of a hook: the chunk, the verdict, and the time."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from engine.protocol import Channel
from hooks.api import Chunk, Verdict, hold, redact, suppress
from hooks.api.decision import NOTES
from hooks.loading.loader import LoadedHook


@dataclass(frozen=True, slots=True)
class Judgement:
    """A hook's verdict on one chunk. Positions count characters of the text that the hook was shown."""

    hook: str
    output_index: int
    channel: Channel
    tool_name: str | None
    action: str
    """`emit`, `hold`, the action of the verdict's changes, or `error`."""
    pending: str
    start: int
    """The beginning of `pending`, in characters of the stream's text."""
    spans: tuple[tuple[int, int, str], ...] = ()
    """The characters that were not released as they were: (start, end, replacement)."""
    num_held: int = 0
    """The number of last characters that stay undecided."""
    reason: str | None = None
    """The reason of a terminate, a rewind or a note; for an error, the exception's type."""
    is_shadow: bool = False
    """Whether the verdict had no effect."""
    text_diff: str = ""
    """The new text, which ends `pending`."""

    @property
    def end(self) -> int:
        return self.start + len(self.pending)

    @property
    def held(self) -> str:
        return self.pending[len(self.pending) - self.num_held :]

    @property
    def released(self) -> str:
        """The text that left the hook. In shadow mode, the text that would have left it."""
        if self.action == "error":
            return ""
        pieces, done = [], self.start
        for start, end, replacement in sorted(self.spans):
            pieces += [self.pending[done - self.start : start - self.start], replacement]
            done = end
        return "".join(pieces) + self.pending[done - self.start : len(self.pending) - self.num_held]


class Probe:
    """Wraps a hook. Run `hook` in its place."""

    def __init__(self, hook: LoadedHook, judgements: list[Judgement] | None = None) -> None:
        """`judgements`: a list to add to, which hooks may share; None: no judgement is kept."""
        self._call: Callable[..., Any] = hook.call
        self._judgements = judgements
        call = self._look_async if hook.is_async else self._look
        self.hook = replace(hook, call=call, reads_text=True, screened=None)  # it sees each call
        self.reset()

    def reset(self) -> None:
        self._seconds: list[float] = []
        self.num_held = 0
        """The most characters undecided at a time."""
        self.num_calls_held = 0
        """The most calls in a row that left some undecided."""
        self._in_a_row = 0

    @property
    def microseconds(self) -> float:
        """The median time of one call."""
        return statistics.median(self._seconds or [0.0]) * 1e6

    def _look(self, chunk: Chunk) -> Any:
        with self._watching(chunk):
            started = time.perf_counter()
            verdict = self._call(chunk)
            self._seconds.append(time.perf_counter() - started)
        return self._judged(chunk, verdict)

    async def _look_async(self, chunk: Chunk) -> Any:
        with self._watching(chunk):
            started = time.perf_counter()
            verdict = await self._call(chunk)
            self._seconds.append(time.perf_counter() - started)
        return self._judged(chunk, verdict)

    @contextmanager
    def _watching(self, chunk: Chunk) -> Iterator[None]:
        held = len(chunk.pending) - len(chunk.text_diff)
        self._in_a_row = self._in_a_row + 1 if held else 0
        self.num_held = max(self.num_held, held)
        self.num_calls_held = max(self.num_calls_held, self._in_a_row)
        try:
            yield
        except BaseException as error:
            self._judged(chunk, error)
            raise

    def _judged(self, chunk: Chunk, verdict: Any) -> Any:
        if self._judgements is not None and not chunk.aborted:  # that verdict has no effect
            self._judgements.append(_judgement(self.hook, chunk, verdict))
        return verdict


def _judgement(hook: LoadedHook, chunk: Chunk, verdict: Any) -> Judgement:
    """`verdict`: the hook's return value, or the exception that it raised."""
    pending = chunk.pending
    start = len(chunk.text) - len(pending)
    try:
        fields = _verdict_fields(verdict, pending, start)
    except (TypeError, ValueError):  # the verdict cannot be carried out
        fields = {"action": "error", "reason": "BadVerdictError"}
    return Judgement(
        hook=hook.name,
        output_index=chunk.output_index,
        channel=chunk.channel,
        tool_name=chunk.tool_name,
        pending=pending,
        start=start,
        is_shadow=hook.is_shadow,
        text_diff=chunk.text_diff,
        **fields,
    )


def _verdict_fields(verdict: Any, pending: str, start: int) -> dict[str, Any]:
    if not isinstance(verdict, Verdict):
        return {"action": "error", "reason": type(verdict).__name__}
    match verdict:
        case hold(n=None):
            num_held = len(pending)
        case hold(n=num_held) | redact(hold=num_held):
            pass
        case _:
            num_held = 0
    changes = [*verdict.changes(pending)]
    if not changes:
        return {"action": "hold" if num_held else "emit", "num_held": num_held}
    spans = tuple((start + c.start, start + c.end, c.replacement) for c in changes if c.action not in NOTES)
    has_reason = not isinstance(verdict, suppress | redact)
    reason = changes[0].reason if has_reason else None
    return {"action": changes[0].action, "spans": spans, "num_held": num_held, "reason": reason}
