"""The process that `hooks.check` runs: a hook, on every recording, cut in every way."""

import asyncio
import logging
import re
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from engine.protocol import Channel, Delta, GenerationRequest, Token, ToolCall
from hooks import messages
from hooks.alarm import interrupt
from hooks.api import Chunk
from hooks.check import RECORDINGS, Report, Result, Task
from hooks.loader import HookLoadError, LoadedHook, load_hook
from hooks.pipeline import Opener, Pipeline, guarded
from hooks.process import inherited
from hooks.stage import HookError
from hooks.worker import with_alarm
from hooks.workers import WorkerPool

_TOKENS = re.compile(r"\s?\w+|\s?[^\w\s]+|\s+")


@dataclass(frozen=True)
class Outcome:
    """What a client got: the text, the reason it ended, and whether a hook failed."""

    text: str
    finish: tuple[str | None, str | int | None] = (None, None)
    failed: bool = False


class LateError(RuntimeError):
    """A call of the hook took too long: it would again, and the check would not end."""


class _Checker:
    """Runs the checks, and tells whoever watches what it is about to do."""

    def __init__(self, channel: messages.Channel) -> None:
        self._channel = channel
        self._doing = ""

    async def check(self, task: Task) -> list[Result]:
        """Raises `HookLoadError`, `HookError` from the self-test, and `LateError`."""
        options = task.options
        probe = _Probe(load_hook(task.spec, options.hook_load_timeout))
        hook = with_alarm(probe.hook, options.hook_timeout, self._channel.beat)
        self._tell("it was put to its self-test")
        here = Pipeline([hook], options=options)
        await here.start()
        there = WorkerPool(1, [task.spec], options=options)
        self._tell("it was loaded in a worker")
        await there.start()
        try:
            return [await self._check_one(name, probe, here, there) for name in RECORDINGS]
        finally:
            await there.aclose()

    async def _check_one(self, name: str, probe: "_Probe", here: Opener, there: Opener) -> Result:
        result = Result(name)
        _, text = RECORDINGS[name]
        tokens = _TOKENS.findall(text)
        whole = await self._run(here, name, "whole", [text])
        if whole.failed:
            result.failure = "fails on the whole text"
            return result
        probe.reset()
        await self._run(here, name, "cut into tokens", tokens)
        result.num_held, result.num_calls_held = probe.num_held, probe.num_calls_held
        result.microseconds = probe.microseconds
        for where, opener in (("", here), (" in a worker", there)):
            for cut, pieces in _cuts(text, tokens):
                outcome = await self._run(opener, name, cut + where, pieces)
                result.num_runs += 1
                if outcome.failed:
                    result.failure = f"fails {cut}{where}"
                    return result
                if outcome != whole:
                    result.differing.append(cut + where)
                    leaked = len(outcome.text) - _num_shared(outcome.text, whole.text)
                    result.num_leaked = max(result.num_leaked, leaked)
        return result

    async def _run(self, opener: Opener, name: str, cut: str, pieces: list[str]) -> Outcome:
        self._tell(f"it saw the recording {name!r}, {cut}")
        request, source = _request(), self._source(RECORDINGS[name][0], pieces)
        text: list[str] = []
        finish: tuple[str | None, str | int | None] = (None, None)
        try:
            async with aclosing(guarded(opener.open(request), source)) as released:
                async for delta in released:
                    text.append(delta.text)
                    if delta.finish_reason is not None:
                        finish = (delta.finish_reason, delta.stop_reason)
        except HookError as error:
            if isinstance(error.__cause__, TimeoutError):
                raise LateError(self._doing) from error
            return Outcome("", failed=True)
        return Outcome("".join(text), finish)

    async def _source(self, channel: Channel, pieces: list[str]) -> Any:
        call = ToolCall(0, "send_mail") if channel == "tool_call" else None
        for i, piece in enumerate(pieces):
            self._channel.beat()
            token = Token(i, piece, piece.encode(), -0.5)
            yield Delta(text=piece, tokens=(token,), channel=channel, tool_call=call)
        yield Delta(finish_reason="stop")

    def _tell(self, doing: str) -> None:
        self._doing = doing
        self._channel.say(doing)
        self._channel.flush()


def _request() -> GenerationRequest:
    return GenerationRequest(
        request_id="weir-hooks-check",
        model="weir-hooks-check",
        endpoint="chat",
        messages=({"role": "user", "content": "Hello?"},),
        stream=True,
    )


def _num_shared(one: str, other: str) -> int:
    """Length of the longest text that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _cuts(text: str, tokens: list[str]) -> Iterator[tuple[str, list[str]]]:
    yield "cut into tokens", tokens
    yield "cut into characters", list(text)
    for i in range(1, len(text)):
        yield f"cut at {i}", [text[:i], text[i:]]


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


async def main() -> None:
    channel = await inherited()
    (task,) = await channel.hear()
    sys.path += [entry for entry in task.path if entry not in sys.path]
    logging.basicConfig(format="%(levelname)s: %(message)s")
    signal.signal(signal.SIGALRM, interrupt)
    hook = f"hook {task.spec.path!r}"
    try:
        report = Report(await _Checker(channel).check(task))
    except HookLoadError as error:
        report = Report(error=str(error))
    except HookError:
        report = Report(error=f"{hook} failed its self-test")
    except LateError as error:
        report = Report(error=f"{hook} took longer than {task.options.hook_timeout:g} s while {error}")
    channel.say(report)
    await channel.close()


if __name__ == "__main__":
    asyncio.run(main())
