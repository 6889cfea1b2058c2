"""The watched process of `hooks.testing.checking.check`: runs one hook on every recording, cut in every
way."""

import asyncio
import logging
import signal
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from engine.protocol import Deltas, GenerationRequest
from hooks.loading.alarm import interrupt
from hooks.loading.loader import HookLoadError, load_hook
from hooks.pipeline.failure import HookError
from hooks.pipeline.pipeline import GuardFactory, Pipeline
from hooks.prompts.admission import RefusedError
from hooks.testing import Recording, Released
from hooks.testing.checking.check import PROMPTS, RECORDINGS, Result
from hooks.testing.cuts import named_cuts
from hooks.testing.difference import num_shared
from hooks.testing.log_filter import logged_once
from hooks.testing.play import collect
from hooks.testing.probe import Probe
from hooks.testing.streams import cut, source_of, stream_of, token_places
from hooks.workers.messages import Connection
from hooks.workers.pool import WorkerPool
from hooks.workers.process import inherited
from hooks.workers.watched import Ended, Task
from hooks.workers.worker import with_alarm


class LateError(RuntimeError):
    """A call of the hook took too long. The check ends, because later calls would take as long."""


class _Checker:
    """Runs the checks, and says before each step what the hook is about to see."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._step = ""

    async def check(self, task: Task) -> None:
        """Raises `HookLoadError`, `HookError` from the self-test, and `LateError`."""
        options = task.options
        probe = Probe(load_hook(task.spec, options.hook_load_timeout))
        hook = with_alarm(probe.hook, options.hook_timeout, self._connection.beat)
        self._announce("it ran its self-test")
        here = Pipeline([hook], options=options)
        there = WorkerPool(1, [task.spec], options=options)
        try:
            await here.start()
            self._announce("it was loaded in a worker")
            await there.start()
            for name in RECORDINGS:
                self._send(await self._check_recording(name, probe, here, there))
            if here.prompt_readers:
                self._send(await self._check_prompts(here, there))
        finally:
            await there.aclose()
            await here.aclose()

    async def _check_recording(
        self, name: str, probe: Probe, here: GuardFactory, there: GuardFactory
    ) -> Result:
        result = Result(name)
        channel, text = RECORDINGS[name]
        stream = stream_of(text, channel=channel)
        whole = await self._run(here, name, "whole", cut(stream, ()))
        result.failure = _failure_of(whole, stream)
        if result.failure is not None:
            return result
        probe.reset()
        await self._run(here, name, "cut into tokens", cut(stream, token_places(stream)))
        result.num_held, result.num_calls_held = probe.num_held, probe.num_calls_held
        result.microseconds = probe.microseconds
        for where, pipeline in (("", here), (" in a worker", there)):
            for label, places in named_cuts(stream):
                released = await self._run(pipeline, name, label + where, cut(stream, places))
                result.num_runs += 1
                if isinstance(released.failure, HookError):
                    result.failure = f"fails {label}{where}"
                    return result
                if released.outcome != whole.outcome:
                    result.differing.append(label + where)
                    leaked = _num_leaked(released.text(channel), whole.text(channel))
                    result.num_leaked = max(result.num_leaked, leaked)
        return result

    async def _run(self, pipeline: GuardFactory, name: str, how: str, stream: Recording) -> Released:
        self._announce(f"it saw the recording {name!r}, {how}")
        request = replace(stream.request, stream=True)
        released = await collect(pipeline, request, lambda _: self._beating(stream))
        self._check_late(released.failure)
        return released

    async def _check_prompts(self, here: Pipeline, there: GuardFactory) -> Result:
        result = Result("prompts")
        (tally,) = here.tallies.values()
        before = tally.seconds
        for label, fields in PROMPTS.items():
            request = GenerationRequest(request_id="weir-test", model="weir-test", **fields)
            try:
                expected = await self._result_of_prompt(here, label, request)
                in_worker = await self._result_of_prompt(there, f"{label}, in a worker", request)
            except HookError:
                result.failure = f"fails on a prompt {label}"
                return result
            result.num_runs += 2
            if in_worker != expected:
                result.failure = f"gives a different result for a prompt {label} in a worker"
        result.microseconds = (tally.seconds - before) / len(PROMPTS) * 1e6
        return result

    async def _result_of_prompt(self, pipeline: GuardFactory, label: str, request: GenerationRequest) -> Any:
        """The result of a prompt: the request that goes on, with the answer if there is one; or the reason of
        a refusal."""
        self._announce(f"it saw a prompt {label}")
        guard = pipeline.open(request)
        try:
            step = await guard.admit(request)
        except RefusedError as error:
            return error.reason
        except HookError as error:
            self._check_late(error)
            raise
        finally:
            await guard.close()
        return guard.request, step.released if step.is_over else None

    def _check_late(self, failure: BaseException | None) -> None:
        if failure is not None and isinstance(failure.__cause__, TimeoutError):
            raise LateError(self._step) from failure

    async def _beating(self, stream: Recording) -> Deltas:
        async with aclosing(source_of(stream)) as deltas:
            async for delta in deltas:
                self._connection.beat()
                yield delta

    def _announce(self, step: str) -> None:
        self._step = step
        self._send(step)

    def _send(self, message: str | Result) -> None:
        self._connection.send(message)
        self._connection.flush()


def _failure_of(whole: Released, stream: Recording) -> str | None:
    """Why the whole text, in one chunk, gives nothing to compare with."""
    if isinstance(whole.failure, HookError):
        return "fails on the whole text"
    if whole.refused is not None:
        return f"refuses the prompt, {stream.request.messages[0]['content']!r}"
    return None


def _num_leaked(text: str, whole: str) -> int:
    return len(text) - num_shared(text, whole)


async def main() -> None:
    connection = await inherited()
    (task,) = await connection.receive()
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.CRITICAL)  # the worker's as well
    logging.getLogger("weir.hooks").setLevel(logging.WARNING)
    signal.signal(signal.SIGALRM, interrupt)
    hook = f"hook {task.spec.path!r}"
    try:
        ended = Ended()
        with logged_once():
            await _Checker(connection).check(task)
    except HookLoadError as error:
        ended = Ended(error=str(error))
    except HookError:
        ended = Ended(error=f"{hook} failed its self-test")
    except LateError as error:
        ended = Ended(error=f"{hook} took longer than {task.options.hook_timeout:g} s while {error}")
    connection.send(ended)
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
