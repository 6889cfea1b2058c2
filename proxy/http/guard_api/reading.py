"""Reads one text of an answer through an open guard."""

import asyncio
from collections.abc import Iterator

from engine.protocol import Delta, ToolCall
from hooks.pipeline.ask import Step
from hooks.pipeline.open_guard import OpenGuard, PassThrough
from proxy.http.moderate import PIECE
from proxy.wire.errors import APIError
from proxy.wire.guard_api.check import CheckedCall

_END = Delta(finish_reason="stop")
"""A text of a gateway counts as ended by the model itself: no gateway says how it ended."""


class BlockedError(Exception):
    """A hook refused the prompt or ended the answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def check_has_hooks(guard: OpenGuard) -> None:
    """Raise `APIError` 501 if no hook judges anything: no text passes because nobody reads it."""
    if isinstance(guard, PassThrough):
        raise APIError(501, "This server has no hooks to judge a text by.", "server_error")


async def read_more(guard: OpenGuard, text: str) -> list[str]:
    """Show the hooks more of a text. Returns what they release. Raises `BlockedError` and `HookError`."""
    released: list[str] = []
    for start in range(0, len(text), PIECE):
        if start:
            await asyncio.sleep(0)  # other requests are served between two pieces
        released += _released(await guard.feed(Delta(text=text[start : start + PIECE])))
    return released


async def read_end(guard: OpenGuard) -> str:
    """Show the hooks the end of a text. As `read_more`."""
    return "".join(_released(await guard.feed(_END)))


async def read_whole(guard: OpenGuard, text: str) -> tuple[str, str]:
    """As `read_more`, for a text with its end. Returns what is released before the end, and at the end."""
    decided = "".join(await read_more(guard, text))
    return decided, await read_end(guard)


async def read_call(guard: OpenGuard, call: CheckedCall) -> CheckedCall | None:
    """As `read_more`, for a tool call. None: the hooks withhold it."""
    released: list[str] | None = None
    for delta in _call_deltas(call):
        step = await guard.feed(delta)
        _check_goes_on(step)
        pieces = [one.text for one in step.released if one.tool_call is not None]
        if pieces:
            released = [*(released or []), *pieces]
        await asyncio.sleep(0)
    return None if released is None else CheckedCall(call.name, "".join(released))


def _call_deltas(call: CheckedCall) -> Iterator[Delta]:
    named = ToolCall(0, call.name)
    for start in range(0, max(1, len(call.arguments)), PIECE):
        yield Delta(text=call.arguments[start : start + PIECE], channel="tool_call", tool_call=named)
    yield Delta(finish_reason="tool_calls")


def _released(step: Step) -> list[str]:
    _check_goes_on(step)
    return [delta.text for delta in step.released]


def _check_goes_on(step: Step) -> None:
    if step.is_over:
        raise BlockedError(blocked_reason(step))


def blocked_reason(step: Step) -> str:
    """The reason of the hook that ended the only output."""
    reason = step.released[-1].stop_reason if step.released else None
    return str(reason or "blocked")
