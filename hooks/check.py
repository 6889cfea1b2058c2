"""`weir hooks check`: does a hook say the same wherever a stream is cut, and at what cost?

A guard that is right when a client streams must be right at every chunk boundary. Each built-in recording is
run through the hook whole, in one chunk, and then cut: into its tokens, into characters, and in two at every
place; in this process, and in a worker. What is delivered must not differ.
"""

import asyncio
import re
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from engine.protocol import Channel, Delta, GenerationRequest, Token, ToolCall
from hooks.api import Chunk
from hooks.loader import HookSpec, LoadedHook, load_hook
from hooks.pipeline import Opener, Pipeline, guarded
from hooks.stage import HookError
from hooks.workers import WorkerPool

RECORDINGS: Mapping[str, tuple[Channel, str]] = {
    "prose": ("content", "The harbour was quiet. A heron stood at the weir, and waited; nobody hurried it."),
    "e-mail and phone": (
        "content",
        "Write to help@millrace.example.com, or to a.b+c@example.org. Or call +1 202-555-0142!",
    ),
    "card and key": (
        "content",
        "Card 4111 1111 1111 1111, key sk-EXAMPLE7f3K9mQ2xT8vB4nL6pR1, AWS AKIAIOSFODNN7EXAMPLE.",
    ),
    "secret phrase": ("content", "Its code name is Project Bluebird. project bluebird, PROJECT BLUEBIRD!"),
    "almost a phrase": ("content", "Projects, project blue, project blueberry, a bluebird's project."),
    "other scripts": ("content", "Grüße aus Köln! 你好，世界。 Привет 🎉👩‍👩‍👧 naïve café — “quoted”…"),
    "code": ("content", "```python\nfor i in range(10):\n    print(f'{i:>3}')  # done\n```\n"),
    "a loop": ("content", "tea " * 40),
    "one long word": ("content", "a" * 120),
    "reasoning": ("reasoning", "The user wants the password hunter2. I must not say hunter2."),
    "tool arguments": ("tool_call", '{"to": "help@millrace.example.com", "body": "line\\n\\"two\\" é"}'),
}
_TOKENS = re.compile(r"\s?\w+|\s?[^\w\s]+|\s+")


@dataclass
class Result:
    """What one recording showed."""

    name: str
    num_runs: int = 0
    differing: list[str] = field(default_factory=list)
    """The cuts whose outcome is not that of the whole text in one chunk."""
    num_leaked: int = 0
    """Most characters that a cut delivered and the hook withholds when it sees the whole text."""
    num_held: int = 0
    """Most characters undecided at a time, cut into tokens."""
    num_calls_held: int = 0
    """Most calls in a row that left some undecided."""
    microseconds: float = 0.0
    """Median of one call."""
    failure: str | None = None

    @property
    def is_good(self) -> bool:
        return not (self.differing or self.num_leaked or self.failure)


@dataclass(frozen=True)
class Outcome:
    """What a client got: the text, the reason it ended, and whether a hook failed."""

    text: str
    finish: tuple[str | None, str | int | None] = (None, None)
    failed: bool = False


async def check(spec: HookSpec) -> list[Result]:
    """Check one hook. Raises `HookLoadError`, or `HookError` if it fails its self-test."""
    probe = _Probe(load_hook(spec))
    here = Pipeline([probe.hook])
    await here.start()
    there = WorkerPool(1, [spec])
    await there.start()
    try:
        return [await _check_one(name, probe, here, there) for name in RECORDINGS]
    finally:
        await there.aclose()


async def _check_one(name: str, probe: "_Probe", here: Opener, there: Opener) -> Result:
    result = Result(name)
    channel, text = RECORDINGS[name]
    tokens = _TOKENS.findall(text)
    whole = await _run(here, channel, [text])
    if whole.failed:
        result.failure = "fails on the whole text"
        return result
    probe.reset()
    await _run(here, channel, tokens)
    result.num_held, result.num_calls_held = probe.num_held, probe.num_calls_held
    result.microseconds = probe.microseconds
    for label, opener in (("", here), (" in a worker", there)):
        for cut, pieces in _cuts(text, tokens):
            outcome = await _run(opener, channel, pieces)
            result.num_runs += 1
            if outcome.failed:
                result.failure = f"fails {cut}{label}"
            elif outcome != whole:
                result.differing.append(cut + label)
                leaked = len(outcome.text) - _num_shared(outcome.text, whole.text)
                result.num_leaked = max(result.num_leaked, leaked)
    return result


def _num_shared(one: str, other: str) -> int:
    """Length of the longest text that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _cuts(text: str, tokens: list[str]) -> Iterator[tuple[str, list[str]]]:
    yield "cut into tokens", tokens
    yield "cut into characters", list(text)
    for i in range(1, len(text)):
        yield f"cut at {i}", [text[:i], text[i:]]


async def _run(opener: Opener, channel: Channel, pieces: list[str]) -> Outcome:
    request = GenerationRequest(
        request_id="weir-hooks-check",
        model="weir-hooks-check",
        endpoint="chat",
        messages=({"role": "user", "content": "Hello?"},),
        stream=True,
    )
    call = ToolCall(0, "send_mail") if channel == "tool_call" else None

    async def source() -> Any:
        for i, piece in enumerate(pieces):
            token = Token(i, piece, piece.encode(), -0.5)
            yield Delta(text=piece, tokens=(token,), channel=channel, tool_call=call)
        yield Delta(finish_reason="stop")

    text: list[str] = []
    finish: tuple[str | None, str | int | None] = (None, None)
    try:
        async with aclosing(guarded(opener.open(request), source())) as released:
            async for delta in released:
                text.append(delta.text)
                if delta.finish_reason is not None:
                    finish = (delta.finish_reason, delta.stop_reason)
    except HookError:
        return Outcome("", failed=True)
    return Outcome("".join(text), finish)


class _Probe:
    """The hook, with a look at each call: how much it held before, and how long it took."""

    def __init__(self, hook: LoadedHook) -> None:
        self._call = hook.call
        look = self._look_async if hook.is_async else self._look
        self.hook = LoadedHook(hook.name, look, hook.is_async)
        self.reset()

    def reset(self) -> None:
        self._seconds: list[float] = []
        self.num_held = 0
        self.num_calls_held = 0
        self._in_a_row = 0

    @property
    def microseconds(self) -> float:
        return statistics.median(self._seconds or [0.0]) * 1e6

    def _look(self, chunk: Chunk) -> Any:
        self._see(chunk)
        started = time.perf_counter()
        verdict = self._call(chunk)
        self._seconds.append(time.perf_counter() - started)
        return verdict

    async def _look_async(self, chunk: Chunk) -> Any:
        self._see(chunk)
        started = time.perf_counter()
        verdict = await self._call(chunk)
        self._seconds.append(time.perf_counter() - started)
        return verdict

    def _see(self, chunk: Chunk) -> None:
        held = len(chunk.pending) - len(chunk.text_diff)
        self._in_a_row = self._in_a_row + 1 if held else 0
        self.num_held = max(self.num_held, held)
        self.num_calls_held = max(self.num_calls_held, self._in_a_row)


def table(results: list[Result]) -> str:
    """The results as text, a row for each recording, and what is wrong below."""
    rows: list[tuple[str, ...]] = [("recording", "runs", "same", "leaked", "held", "for calls", "µs a call")]
    for r in results:
        same = "fails" if r.failure else "yes" if not r.differing else f"no, {len(r.differing)}"
        cells = (r.num_runs, same, r.num_leaked, r.num_held, r.num_calls_held, f"{r.microseconds:.1f}")
        rows.append((r.name, *map(str, cells)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    for r in results:
        if r.failure:
            lines.append(f"{r.name}: the hook {r.failure}")
        elif r.differing:
            lines.append(f"{r.name}: not as in one chunk when {', '.join(r.differing[:3])}")
    return "\n".join(lines)


def main(spec: HookSpec) -> bool:
    """Check, print, and say whether all is well."""
    results = asyncio.run(check(spec))
    print(table(results))
    return all(result.is_good for result in results)
