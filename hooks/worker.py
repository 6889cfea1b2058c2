"""A hook worker: a process with hooks of its own, which runs the guards of the requests it is given.

`python -m hooks.worker FD` serves the socket that it inherited as file descriptor FD, until the other end
closes it.
"""

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from engine.protocol import EngineError
from hooks.loader import HookLoadError, LoadedHook
from hooks.messages import Channel, Close, Counts, Feed, Open, Ready, Reply, Setup
from hooks.pipeline import Guarding, Pipeline
from hooks.stage import HookError
from hooks.tally import Tally

logger = logging.getLogger("weir.hooks")

MAX_SILENCE = 0.02
"""Seconds of work after which what there is to say is said, though more was asked."""


class Worker:
    """Serves one channel with one pipeline."""

    def __init__(self, channel: Channel, pipeline: Pipeline) -> None:
        self._channel = channel
        self._pipeline = pipeline
        self._is_async = any(hook.is_async for hook in (*pipeline.hooks, *pipeline.allowed.values()))
        self._guards: dict[int, Guarding] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._feeding: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Until the other end is gone; then every stream still open gets its last call."""
        try:
            while True:
                await self._take(await self._channel.hear())
        except EOFError:
            pass
        finally:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for key in list(self._guards):
                await self._close(key)

    async def _take(self, messages: list[Any]) -> None:
        said = time.monotonic()
        for message in messages:
            match message:
                case Open(key, request):
                    self._guards[key] = self._pipeline.open(request)
                case Feed(key) if self._is_async:
                    self._feeding[key] = self._spawn(self._feed(message))
                case Feed():
                    await self._feed(message)
                case Close(key) if self._is_async:
                    self._spawn(self._close(key))
                case Close(key):
                    await self._close(key)
            if time.monotonic() - said > MAX_SILENCE:
                self._count()
                self._channel.flush()
                said = time.monotonic()
        self._count()

    async def _feed(self, message: Feed) -> None:
        guard = self._guards[message.key]
        try:
            released = await guard.feed(message.delta)
        except HookError as error:
            self._channel.say(Reply(message.key, failed=error.hook))
        except EngineError as error:
            self._channel.say(Reply(message.key, engine_error=(str(error), error.status)))
        except Exception:
            logger.exception("a guard failed")
            self._channel.say(Reply(message.key, failed="guard"))
        else:
            self._channel.say(Reply(message.key, released, guard.cut_short))
        if self._is_async:
            self._count()

    async def _close(self, key: int) -> None:
        feeding = self._feeding.pop(key, None)
        if feeding is not None:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        await self._guards.pop(key).close()
        self._channel.say(Reply(key, is_closed=True))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it beside the rest: a hook that waits must not make other requests wait."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _count(self) -> None:
        nothing = Tally()
        counted = {name: tally.take() for name, tally in self._pipeline.tallies.items() if tally != nothing}
        if counted:
            self._channel.say(Counts(counted))


def with_alarm(hook: LoadedHook, seconds: float) -> LoadedHook:
    """The hook, interrupted by a `TimeoutError` when a call takes longer. In the main thread only."""
    call: Callable[..., Any] = hook.call

    def alarmed(chunk: Any) -> Any:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return call(chunk)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    return hook if hook.is_async else replace(hook, call=alarmed)


def _interrupt(*_: object) -> None:
    raise TimeoutError("its deadline passed")


def _load(setup: Setup) -> Pipeline:
    sys.path += [entry for entry in setup.path if entry not in sys.path]
    logging.basicConfig(level=setup.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    pipeline = Pipeline.load(setup.specs, setup.allowed, setup.options)
    signal.signal(signal.SIGALRM, _interrupt)
    timeout = setup.options.hook_timeout
    return Pipeline(
        [with_alarm(hook, timeout) for hook in pipeline.hooks],
        [with_alarm(hook, timeout) for hook in pipeline.allowed.values()],
        setup.options,
    )


async def main(descriptor: int) -> None:
    channel = Channel(*await asyncio.open_connection(sock=socket.socket(fileno=descriptor)))
    try:
        (setup,) = await channel.hear()
    except EOFError:  # the service ended while this process began
        await channel.close()
        return
    try:
        pipeline = _load(setup)
        await pipeline.start()
    except HookLoadError as error:
        channel.say(Ready(str(error)))
    except HookError as error:
        channel.say(Ready(f"hook {error.hook!r} failed its self-test"))
    else:
        channel.say(Ready())
        await Worker(channel, pipeline).serve()
    await channel.close()


if __name__ == "__main__":
    # The terminal's interrupt is the service's to answer: it closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(main(int(sys.argv[1])))
