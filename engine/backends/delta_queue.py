"""What an engine has said and a reader has not taken yet. No threads, no I/O: it lives on one event loop.

A reader that keeps up gets each delta as it came. For one that does not (a guard at work, a client that reads
slowly), what waits is joined, so that it catches up in fewer and longer deltas: hooks are called less often,
and fewer events are written. What waits is at most what is left of the request's outputs, so a request's
`max_tokens` bounds it. Generation does not pause for a slow reader: that would keep its blocks of the cache
from others for as long as it likes, while an output that runs to its end frees them.
"""

import asyncio
from collections.abc import Sequence

from engine.protocol import Delta, EngineError


class DeltaQueue:
    """One request's way from the engine to its one reader."""

    def __init__(self) -> None:
        self._waiting: list[Delta] = []
        self._error: EngineError | None = None
        self._void: set[int] = set()
        self._is_ready = asyncio.Event()

    def put(self, delta: Delta) -> None:
        if delta.index not in self._void:
            self._waiting.append(delta)
            self._is_ready.set()

    def rewind(self, index: int) -> None:
        """The engine is going to be told to rewind an output: what it says of it until `resume` is void."""
        self._void.add(index)
        self._waiting = [delta for delta in self._waiting if delta.index != index]

    def resume(self, index: int) -> None:
        """The engine has done so: what comes now is said of the output as it stands."""
        self._void.discard(index)

    def fail(self, error: EngineError) -> None:
        """The last that the reader hears, after what waits."""
        self._error = error
        self._is_ready.set()

    async def get(self) -> list[Delta]:
        """All that waits, joined; waits for the first. There may be nothing, if it is void. Raises the error
        once nothing else is left."""
        await self._is_ready.wait()
        if not self._waiting and self._error is not None:
            raise self._error
        taken, self._waiting = self._waiting, []
        if self._error is None:
            self._is_ready.clear()
        return join(taken)


def join(deltas: Sequence[Delta]) -> list[Delta]:
    """The same said in fewer: what follows one another in one stream of one output becomes one delta.

    Each output's deltas stay in their order. Among outputs a joined delta stands where the last of its parts
    did, so that the request's usage never goes back.
    """
    if len(deltas) < 2:
        return list(deltas)
    runs: dict[int, list[Delta]] = {}
    latest: dict[int, int] = {}  # an output's last run
    for number, delta in enumerate(deltas):
        before = latest.get(delta.index)
        run = []
        if before is not None and _continues(runs[before][-1], delta):
            run = runs.pop(before)
        run.append(delta)
        runs[number] = run
        latest[delta.index] = number
    return [_joined(run) if len(run) > 1 else run[0] for run in runs.values()]


def _continues(before: Delta, delta: Delta) -> bool:
    is_bare_end = delta.finish_reason is not None and not delta.text and not delta.tokens
    return (
        before.finish_reason is None
        and (before.channel, before.tool_call) == (delta.channel, delta.tool_call)
        # Tokens tell all of the text that they stand with: a text that has none stands by itself.
        and (bool(before.tokens) == bool(delta.tokens) or is_bare_end)
        and delta.prompt_token_ids is None
    )


def _joined(run: Sequence[Delta]) -> Delta:
    first, last = run[0], run[-1]
    return Delta(
        index=first.index,
        text="".join([delta.text for delta in run]),
        tokens=tuple([token for delta in run for token in delta.tokens]),
        channel=first.channel,
        tool_call=first.tool_call,
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        prompt_token_ids=first.prompt_token_ids,
        usage=last.usage,
    )
