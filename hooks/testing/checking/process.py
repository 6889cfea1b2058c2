"""The process that `hooks.testing.checking.check` runs: a hook, on every recording, cut in every way."""

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
from hooks.testing.once import logged_once
from hooks.testing.play import collect
from hooks.testing.probe import Probe
from hooks.testing.streams import cut, source_of, stream_of, token_places
from hooks.workers.messages import Connection
from hooks.workers.pool import WorkerPool
from hooks.workers.process import inherited
from hooks.workers.watched import Ended, Task
from hooks.workers.worker import with_alarm


class LateError(RuntimeError):
    """A call of the hook took too long: it would again, and the check would not end."""


class _Checker:
    """Runs the checks, and tells whoever watches what it is about to do."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._doing = ""

    async def check(self, task: Task) -> None:
        """Raises `HookLoadError`, `HookError` from the self-test, and `LateError`."""
        options = task.options
        probe = Probe(load_hook(task.spec, options.hook_load_timeout))
        hook = with_alarm(probe.hook, options.hook_timeout, self._connection.beat)
        self._tell("it was put to its self-test")
        here = Pipeline([hook], options=options)
        there = WorkerPool(1, [task.spec], options=options)
        try:
            await here.start()
            self._tell("it was loaded in a worker")
            await there.start()
            for name in RECORDINGS:
                self._say(await self._check_one(name, probe, here, there))
            if here.prompt_readers:
                self._say(await self._check_prompts(here, there))
        finally:
            await there.aclose()
            await here.aclose()

    async def _check_one(self, name: str, probe: Probe, here: GuardFactory, there: GuardFactory) -> Result:
        result = Result(name)
        channel, said = RECORDINGS[name]
        stream = stream_of(said, channel=channel)
        whole = await self._run(here, name, "whole", cut(stream, ()))
        if isinstance(whole.failure, HookError):
            result.failure = "fails on the whole text"
            return result
        if whole.refused is not None:
            result.failure = f"refuses the prompt, {stream.request.messages[0]['content']!r}"
            return result
        probe.reset()
        await self._run(here, name, "cut into tokens", cut(stream, token_places(stream)))
        result.num_held, result.num_calls_held = probe.num_held, probe.num_calls_held
        result.microseconds = probe.microseconds
        for where, opener in (("", here), (" in a worker", there)):
            for label, places in named_cuts(stream):
                released = await self._run(opener, name, label + where, cut(stream, places))
                result.num_runs += 1
                if isinstance(released.failure, HookError):
                    result.failure = f"fails {label}{where}"
                    return result
                if released.outcome != whole.outcome:
                    result.differing.append(label + where)
                    text = released.text(channel)
                    leaked = len(text) - num_shared(text, whole.text(channel))
                    result.num_leaked = max(result.num_leaked, leaked)
        return result

    async def _run(self, opener: GuardFactory, name: str, how: str, stream: Recording) -> Released:
        self._tell(f"it saw the recording {name!r}, {how}")
        request = replace(stream.request, stream=True)
        released = await collect(opener, request, lambda _: self._beating(stream))
        self._check_late(released.failure)
        return released

    async def _check_prompts(self, here: Pipeline, there: GuardFactory) -> Result:
        result = Result("prompts")
        (tally,) = here.tallies.values()
        before = tally.seconds
        for label, fields in PROMPTS.items():
            request = GenerationRequest(request_id="weir-test", model="weir-test", **fields)
            try:
                said = await self._shown(here, label, request)
                in_worker = await self._shown(there, f"{label}, in a worker", request)
            except HookError:
                result.failure = f"fails on a prompt {label}"
                return result
            result.num_runs += 2
            if in_worker != said:
                result.failure = f"says something else of a prompt {label} in a worker"
        result.microseconds = (tally.seconds - before) / len(PROMPTS) * 1e6
        return result

    async def _shown(self, opener: GuardFactory, label: str, request: GenerationRequest) -> Any:
        """What came of it: the request as it goes on, and an answer in its place; or the reason why not."""
        self._tell(f"it saw a prompt {label}")
        guard = opener.open(request)
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
            raise LateError(self._doing) from failure

    async def _beating(self, stream: Recording) -> Deltas:
        async with aclosing(source_of(stream)) as deltas:
            async for delta in deltas:
                self._connection.beat()
                yield delta

    def _tell(self, doing: str) -> None:
        self._doing = doing
        self._say(doing)

    def _say(self, message: str | Result) -> None:
        self._connection.send(message)
        self._connection.flush()


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
