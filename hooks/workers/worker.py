"""A hook worker: a process with hooks of its own, which runs the guards of the requests it is given.

It serves the channel that it inherited, until the other end closes it.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from engine.protocol import EngineError
from hooks.loading.alarm import interrupt
from hooks.loading.async_call import GRACE
from hooks.loading.loader import HookLoadError, HookSpec, LoadedHook, load_hook
from hooks.pipeline.pipeline import Guarding, Pipeline
from hooks.pipeline.stage import HookError, PipelineOptions
from hooks.pipeline.tally import Tally
from hooks.prompts.admission import RefusedError
from hooks.workers.messages import Admit, Channel, Close, Counts, Feed, Open, Ready, Reply, Setup
from hooks.workers.process import inherited

logger = logging.getLogger("weir.hooks")


class Worker:
    """Serves one channel with one pipeline."""

    def __init__(self, channel: Channel, pipeline: Pipeline) -> None:
        self._channel = channel
        self._pipeline = pipeline
        hooks = (*pipeline.hooks, *pipeline.allowed.values())
        self._is_async = any(hook.is_async or hook.is_request_async for hook in hooks)
        self._guards: dict[int, Guarding] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._feeding: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Until the other end is gone; then every stream still open gets its last call."""
        beating = asyncio.get_running_loop().create_task(self._beat())
        try:
            while True:
                await self._take(await self._channel.hear())
        except EOFError:
            pass
        finally:
            beating.cancel()
            await asyncio.gather(beating, *self._tasks, return_exceptions=True)
            for key in list(self._guards):
                await self._close(key)

    async def _take(self, messages: list[Any]) -> None:
        for message in messages:
            match message:
                case Open(key, request, can_rewind):
                    self._guards[key] = self._pipeline.open(request, can_rewind=can_rewind)
                case Admit(key) | Feed(key) if self._is_async:
                    self._feeding[key] = self._spawn(self._ask(message))
                case Admit() | Feed():
                    await self._ask(message)
                case Close(key) if self._is_async:
                    self._spawn(self._close(key))
                case Close(key):
                    await self._close(key)
            self._channel.beat()
        self._count()

    async def _beat(self) -> None:
        """While hooks wait, which is not being stuck."""
        while True:
            await asyncio.sleep(GRACE / 4)
            if self._tasks:
                self._channel.beat()

    async def _ask(self, message: Admit | Feed) -> None:
        key, guard = message.key, self._guards[message.key]
        try:
            if isinstance(message, Admit):
                answer = await guard.admit(message.shown)
                reply = Reply(key, answer or [], admitted=guard.request if answer is None else None)
            else:
                released = await guard.feed(message.delta)
                reply = Reply(key, released, guard.cut_short, guard.rewind)
        except HookError as error:
            reply = Reply(key, failed=error.hook)
        except RefusedError as error:
            reply = Reply(key, refused=error.reason)
        except EngineError as error:
            reply = Reply(key, engine_error=(str(error), error.status))
        except Exception:
            logger.exception("a guard failed")
            reply = Reply(key, failed="guard")
        self._channel.say(reply)
        if self._is_async:
            self._count()

    async def _close(self, key: int) -> None:
        feeding = self._feeding.pop(key, None)
        if feeding is not None:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        try:
            await self._guards.pop(key).close()
        finally:
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


def with_alarm(hook: LoadedHook, seconds: float, ended: Callable[[], None]) -> LoadedHook:
    """The hook, each plain call of it interrupted by a `TimeoutError` when it takes longer. `ended` is called
    after each. In the main thread of a process whose alarm interrupts it."""

    def alarmed(call: Callable[..., Any]) -> Callable[..., Any]:
        def within(*arguments: Any) -> Any:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            try:
                return call(*arguments)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                ended()

        return within

    return hook.wrapped(alarmed)


def load_alarmed(spec: HookSpec, options: PipelineOptions, ended: Callable[[], None]) -> LoadedHook:
    """Raises `HookLoadError`."""
    hook = load_hook(spec, options.hook_load_timeout)
    ended()
    return with_alarm(hook, options.hook_timeout, ended)


def _load(setup: Setup, channel: Channel) -> Pipeline:
    logging.basicConfig(level=setup.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGALRM, interrupt)
    hooks, allowed = (
        [load_alarmed(spec, setup.options, channel.beat) for spec in specs]
        for specs in (setup.specs, setup.allowed)
    )
    return Pipeline(hooks, allowed, setup.options)


async def main() -> None:
    channel = await inherited()
    try:
        (setup,) = await channel.hear()
    except EOFError:  # the service ended while this process began
        await channel.close()
        return
    try:
        await _serve(_load(setup, channel), channel)
    except HookLoadError as error:
        channel.say(Ready(str(error)))
    except HookError as error:
        channel.say(Ready(f"hook {error.hook!r} failed its self-test"))
    await channel.close()


async def _serve(pipeline: Pipeline, channel: Channel) -> None:
    """Raises `HookError` from the self-test."""
    try:
        await pipeline.start()
        channel.say(Ready(prompt_readers=pipeline.prompt_readers, rewinders=pipeline.rewinders))
        await Worker(channel, pipeline).serve()
    finally:
        await pipeline.aclose()


if __name__ == "__main__":
    asyncio.run(main())
