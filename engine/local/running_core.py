"""Loads, calls and closes a model's core on the engine thread, from an event loop."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from typing import Any, Generic, TypeVar

from engine.device.cuda import Turn, turns_of
from engine.local.engine_thread import ENGINE_THREAD, Core
from engine.models.load import device_of
from engine.protocol import EngineStats, ShutdownError
from engine.protocol.options import EngineConfig

logger = logging.getLogger("weir.engine")

C = TypeVar("C", bound=Core)

_LOADING = threading.Lock()


class RunningCore(Generic[C]):
    """Use it from the event loop that it was started on.

    `deliver` gets the outputs of each step, and `fail` is called if the core dies. Both run on that loop.
    """

    def __init__(
        self,
        config: EngineConfig,
        load: Callable[[], C],
        deliver: Callable[[Sequence[Any], EngineStats], None],
        fail: Callable[[], None],
    ) -> None:
        """`load` makes the core. It runs on its own thread."""
        self._config = config
        self._load = load
        self._deliver = deliver
        self._fail = fail
        self._loaded: Future[C] | None = None
        self._turn: Turn = nullcontext
        self._num_posted = 0
        """Steps that were posted to the event loop. The engine thread alone writes it."""
        self._num_delivered = 0
        """Posted steps that the event loop has taken."""
        self.is_ahead = False
        """Whether later steps than the one that is delivered wait for the event loop. For this loop."""

    async def start(self) -> None:
        """Load the model, and give its core turns. Raises what `load` raises."""
        self._loop = asyncio.get_running_loop()
        loaded = self._loaded = _on_own_thread(self._load_in_turn)
        core = await asyncio.wrap_future(loaded)
        if self._loaded is None:
            raise ShutdownError
        self._deliver((), core.stats())
        config, fail = self._config, partial(self.post, self._fail)
        ENGINE_THREAD.add(
            config.model, core, self._post_step, fail, judges=config.only_guards, turn=self._turn
        )

    def _load_in_turn(self) -> C:
        self._turn = turns_of(device_of(self._config), only_guards=self._config.only_guards)
        with self._turn():
            return self._load()

    def call(self, call: Callable[[C], object]) -> None:
        """Call `call(core)` on the engine thread, between two steps and after all earlier calls. Nothing
        happens once the core is closed or has failed."""
        if self._loaded is not None:
            ENGINE_THREAD.call(self._loaded.result(), call)

    def post(self, callback: Callable[..., None], *args: object) -> None:
        """Call it on the event loop. For any thread."""
        # If the loop was closed before `aclose`, no reader is left.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    def _post_step(self, outputs: Sequence[Any], stats: EngineStats) -> None:
        """Runs on the engine thread."""
        self._num_posted += 1
        self.post(self._on_step, outputs, stats)

    def _on_step(self, outputs: Sequence[Any], stats: EngineStats) -> None:
        self._num_delivered += 1
        self.is_ahead = self._num_posted > self._num_delivered
        self._deliver(outputs, stats)

    async def aclose(self) -> None:
        """Take the core off the engine thread, and free it. Waits for a step that runs, or for the load."""
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            return
        loading = asyncio.wrap_future(loaded)
        await asyncio.wait([loading])
        if loading.exception() is None:
            await asyncio.wrap_future(ENGINE_THREAD.remove(loaded.result()))


def _on_own_thread(load: Callable[[], C]) -> Future[C]:
    """One model loads at a time: each takes its share of the memory that is free then."""
    loaded: Future[C] = Future()
    loaded.set_running_or_notify_cancel()

    def run() -> None:
        with _LOADING:
            try:
                loaded.set_result(load())
            except BaseException as error:
                logger.debug("a model cannot be loaded", exc_info=True)  # `start` raises the error
                loaded.set_exception(error)

    threading.Thread(target=run, name="weir-load", daemon=True).start()
    return loaded
