"""A pool of hook workers: the same hooks, in their own processes (contract 1.5).

All chunks of a request go to one worker, which holds the request's guard. A worker that dies, or makes no
progress past the deadline, fails its own requests, closed, and is replaced (contract 4.1).
"""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from engine.protocol import Delta, EngineError, GenerationRequest
from engine.protocol.guard_models import GuardModels
from hooks.api import trace_headers
from hooks.api.decision import Held, Listener, Mode
from hooks.api.probe_needs import ProbeNeeds
from hooks.decisions.failure import HookError
from hooks.decisions.log import request_decision
from hooks.decisions.tally import Tallies, Tally
from hooks.loading.async_call import GRACE
from hooks.loading.loader import HookLoadError, HookSpec
from hooks.loading.options import PipelineOptions
from hooks.pipeline.ask import Step
from hooks.pipeline.open_guard import OpenGuard, PassThrough
from hooks.pipeline.pipeline import check_named
from hooks.workers.messages import Admit, Close, Counts, Feed, LookAhead, Open, Ready, Reply, Setup
from hooks.workers.process import Child

logger = logging.getLogger("weir.hooks")

MAX_BACKOFF = 5.0
"""Seconds between two attempts to replace a worker that cannot start."""


class WorkerPool:
    """A `GuardFactory` whose hooks run in `num_workers` processes."""

    def __init__(
        self,
        num_workers: int,
        specs: Iterable[HookSpec],
        allowed: Iterable[HookSpec] = (),
        options: PipelineOptions | None = None,
        *,
        log_formatter: logging.Formatter | None = None,
    ) -> None:
        """`log_formatter`: for the log lines of the workers, which must be able to import its class."""
        self.options = options or PipelineOptions()
        log_level = logging.getLogger().getEffectiveLevel()
        self.setup = Setup(tuple(specs), tuple(allowed), self.options, log_level, log_formatter)
        self.tallies: Tallies = {spec.label: Tally() for spec in (*self.setup.specs, *self.setup.allowed)}
        self.prompt_readers: frozenset[str] = frozenset()
        """The names of the hooks that read prompts. Known once a worker has loaded them, like `rewinders`."""
        self.media_readers: frozenset[str] = frozenset()
        self.alternative_withholders: frozenset[str] = frozenset()
        self.rewinders: frozenset[str] = frozenset()
        self.needed_probes: Mapping[str, ProbeNeeds] = {}
        self._num_workers = num_workers
        self._workers: set[WorkerProcess] = set()
        self._is_changed = asyncio.Event()
        self._slots: list[asyncio.Task[None]] = []

    @property
    def is_ready(self) -> bool:
        return bool(self._workers)

    @property
    def modes(self) -> Mapping[str, Mode]:
        return {spec.label: spec.mode for spec in (*self.setup.specs, *self.setup.allowed)}

    @property
    def allowed(self) -> frozenset[str]:
        return frozenset(spec.label for spec in self.setup.allowed)

    async def start(self, models: GuardModels | None = None) -> None:
        """Start every worker and await its self-test. `models`: hooks in workers do not get them. Raises
        `HookLoadError` (contract 1.4)."""
        try:
            for _ in range(self._num_workers):
                worker = WorkerProcess(self)
                await worker.start()
                self._add(worker)
                self._slots.append(asyncio.get_running_loop().create_task(self._keep(worker)))
        except BaseException:
            await self.aclose()
            raise

    def open(
        self,
        request: GenerationRequest,
        *,
        can_rewind: bool = False,
        can_ask: bool = False,
        listener: Listener | None = None,
        min_held: float = 0.0,
        num_repeated: int = 0,
    ) -> OpenGuard:
        """Raises `RequestError` if the request names a hook that it may not."""
        check_named(request, self.allowed)
        if not self.setup.specs and not request.hooks:
            return PassThrough(request)
        return RemoteGuard(self, request, can_rewind, can_ask, listener, min_held, num_repeated)

    async def worker(self) -> "WorkerProcess":
        """The worker with the fewest requests. Waits for one, up to a deadline: then `HookError`."""
        try:
            async with asyncio.timeout(self.options.hook_timeout + GRACE):
                while not self._workers:
                    self._is_changed.clear()
                    await self._is_changed.wait()
        except TimeoutError as error:
            raise HookError("worker") from error
        return min(self._workers, key=lambda worker: worker.num_requests)

    async def aclose(self) -> None:
        for slot in self._slots:
            slot.cancel()
        await asyncio.gather(*self._slots, return_exceptions=True)
        for worker in list(self._workers):  # their slots had not begun
            self.drop(worker)
            await worker.stop()

    async def _keep(self, worker: "WorkerProcess") -> None:
        """Run a worker; when it ends, run another in its place. Only closing the pool stops this."""
        while True:
            try:
                await worker.run()
                logger.error("a hook worker died; it is replaced")
            except Exception as error:  # noqa: BLE001 - whatever happened, the pool needs its worker
                # Only the error's type: an unreadable frame may hold output.
                logger.error("a hook worker cannot be understood (%s); it is replaced", type(error).__name__)
            worker = await self._replacement()
            self._add(worker)

    async def _replacement(self) -> "WorkerProcess":
        backoff = 0.1
        while True:
            worker = WorkerProcess(self)
            try:
                await worker.start()
            except Exception as error:  # noqa: BLE001 - the same
                logger.error("a hook worker cannot be replaced: %s", error)
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, MAX_BACKOFF)
            else:
                return worker

    def drop(self, worker: "WorkerProcess") -> None:
        self._workers.discard(worker)

    def _add(self, worker: "WorkerProcess") -> None:
        self._workers.add(worker)
        self._is_changed.set()


class WorkerProcess(Child):
    """One worker, seen from the service."""

    def __init__(self, pool: "WorkerPool") -> None:
        super().__init__()
        self._pool = pool
        self._replies: dict[tuple[int, bool], asyncio.Future[Reply]] = {}
        self._keys = itertools.count()
        self._last_reply_at = 0.0
        self.num_requests = 0

    async def start(self) -> None:
        """Start the process and await its self-test. Raises `HookLoadError`, or `OSError`."""
        await self.spawn("hooks.workers.worker")
        try:
            self.connection.send(self._pool.setup)
            await self._loaded()
        except BaseException:
            await self.stop()
            raise

    async def _loaded(self) -> None:
        options = self._pool.options
        limit = max(options.hook_load_timeout, options.hook_timeout) + GRACE
        try:
            while True:
                async with asyncio.timeout(limit):
                    messages = await self.connection.receive()
                for ready in [message for message in messages if isinstance(message, Ready)]:
                    if ready.error is not None:
                        raise HookLoadError(ready.error)
                    self._pool.prompt_readers = ready.prompt_readers
                    self._pool.media_readers = ready.media_readers
                    self._pool.alternative_withholders = ready.alternative_withholders
                    self._pool.rewinders = ready.rewinders
                    self._pool.needed_probes = ready.needed_probes
                    return
        except EOFError as error:
            raise HookLoadError("a hook worker died while it loaded the hooks") from error
        except TimeoutError as error:
            self.kill()
            raise HookLoadError("a hook worker was stuck while it loaded the hooks") from error

    async def run(self) -> None:
        """Take its replies until it dies or is killed because it is stuck. Its open requests then fail.
        Raises the error of a reply that cannot be read; the worker is then gone as well."""
        self._watch()
        try:
            while True:
                for message in await self.connection.receive():
                    self._receive(message)
                self._last_reply_at = time.monotonic()
        except EOFError:
            pass
        finally:
            self._pool.drop(self)  # before the requests fail, so that no new one comes here
            self._timer.cancel()
            await self.stop()

    async def stop(self) -> None:
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(HookError("worker"))
        self._replies.clear()
        await super().stop()

    def open(self, request: GenerationRequest, **options: Any) -> int:
        """Open a request's guard in the worker. Returns the key that identifies it. `options`: those of
        `Open`."""
        key = next(self._keys)
        self.num_requests += 1
        self.connection.send(Open(key, request, **options))
        return key

    async def ask(self, key: int, message: Admit | Feed | LookAhead | Close) -> Reply:
        """Raises `HookError` if the worker dies before it answers."""
        if self.connection.is_closing:
            raise HookError("worker")
        if not self._replies:
            self._last_reply_at = time.monotonic()
        expected = (key, isinstance(message, Close))
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._replies[expected] = reply
        self.connection.send(message)
        try:
            return await reply
        finally:
            self._replies.pop(expected, None)

    def _receive(self, message: object) -> None:
        if isinstance(message, Counts):
            for name, tally in message.tallies.items():
                self._pool.tallies[name].add(tally)
        elif isinstance(message, Reply):
            reply = self._replies.get((message.key, message.is_closed))
            if reply is not None and not reply.done():
                reply.set_result(message)

    def _watch(self) -> None:
        """A busy worker says so between two calls, so a long silence means that one call is stuck."""
        limit = self._pool.options.hook_timeout + GRACE
        if self._replies and time.monotonic() - self._last_reply_at > limit:
            logger.error("a hook worker is stuck; it is killed")
            self.kill()
        self._timer = asyncio.get_running_loop().call_later(limit / 8, self._watch)


class RemoteGuard:
    """A request's guard, which runs in a worker. It sends the next message after the reply to the last."""

    def __init__(
        self,
        pool: WorkerPool,
        request: GenerationRequest,
        can_rewind: bool,
        can_ask: bool,
        listener: Listener | None,
        min_held: float,
        num_repeated: int,
    ) -> None:
        self._pool = pool
        self.request = request
        self._can_rewind = can_rewind
        self._listener = listener
        self._options = {
            "can_rewind": can_rewind,
            "can_ask": can_ask,
            "min_held": None if listener is None else min_held,
            "num_repeated": num_repeated,
            "trace": trace_headers(),
        }
        self._held: tuple[Held, ...] = ()
        self._worker: WorkerProcess | None = None
        self._key = 0

    @property
    def reads_prompts(self) -> bool:
        return bool(self._modes_of(self._pool.prompt_readers))

    @property
    def decides_prompts(self) -> bool:
        return "enforce" in self._modes_of(self._pool.prompt_readers)

    @property
    def reads_media(self) -> bool:
        return bool(self._modes_of(self._pool.media_readers))

    @property
    def withholds_alternatives(self) -> bool:
        return "enforce" in self._modes_of(self._pool.alternative_withholders)

    @property
    def may_rewind(self) -> bool:
        return self._can_rewind and "enforce" in self._modes_of(self._pool.rewinders)

    def _modes_of(self, names: frozenset[str]) -> set[str]:
        """The modes of this request's hooks that have one of the names."""
        setup = self._pool.setup
        named = [spec for spec in setup.allowed if spec.label in self.request.hooks]
        return {spec.mode for spec in (*setup.specs, *named) if spec.label in names}

    async def admit(self, shown: GenerationRequest) -> Step:
        step, self.request = await self._ask(Admit, shown)
        return step

    async def feed(self, delta: Delta) -> Step:
        step, _ = await self._ask(Feed, delta)
        return step

    async def _ask(self, message: type[Admit] | type[Feed], about: Any) -> tuple[Step, GenerationRequest]:
        """The step, and the request for the engine. Raises the error that the guard raised in the worker."""
        try:
            if self._worker is None:
                self._worker = await self._pool.worker()
                self._key = self._worker.open(self.request, **self._options)
            reply = await self._worker.ask(self._key, message(self._key, about))
        except HookError as error:
            if self._listener is not None:
                self._listener(request_decision(self.request, error.hook, "error", "no worker answers"))
            raise
        self._pass_decisions(reply)
        if reply.failed is not None:
            raise HookError(reply.failed, reply.param)
        if reply.engine_error is not None:
            text, status = reply.engine_error
            raise EngineError(text, status=status)
        assert reply.step is not None
        return reply.step, reply.request or self.request

    async def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.num_requests -= 1
        with contextlib.suppress(HookError):  # the worker is gone, and the guard with it
            self._pass_decisions(await worker.ask(self._key, Close(self._key)))

    async def look_ahead(self) -> str | None:
        if self._worker is None:
            return ""  # no text has come
        return (await self._worker.ask(self._key, LookAhead(self._key))).ahead

    def held(self) -> tuple[Held, ...]:
        return self._held

    def _pass_decisions(self, reply: Reply) -> None:
        """Pass the worker's decisions to the listener, before a client receives any text of the reply."""
        if self._listener is not None:
            self._held = reply.held
            for decision in reply.decisions:
                self._listener(decision)
