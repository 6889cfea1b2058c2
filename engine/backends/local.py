"""The in-process engine: `EngineCore` on a thread of its own, seen from an event loop.

The thread owns torch and the core; the loop owns the streams. The loop puts calls into one inbox: to add a
group, to rewind an output, to abort a group; or None to stop. The thread posts calls to the loop: one with
all outputs of a step, and one when it has rewound an output, after all earlier outputs. Nothing else is
shared.
"""

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from engine.backends.admission import Admission
from engine.backends.delta_queue import DeltaQueue
from engine.backends.phases import tell_phases
from engine.backends.preparation import Preparation
from engine.config import EngineConfig
from engine.core.engine_core import EngineCore, Output
from engine.core.input_processor import FIELDS, InputProcessor
from engine.core.sequence import SequenceGroup
from engine.execution.model_runner import ModelRunner
from engine.logits_processors.load import find_processors
from engine.processor_specs import NamedProcessorSpec
from engine.protocol import (
    DeadEngineError,
    Deltas,
    EngineError,
    EngineStats,
    GenerationRequest,
    ModelInfo,
    Rewind,
    Tokenizer,
)
from engine.sampling.beam_search import beam_search, is_beam_search
from engine.text.tokenizer import LocalTokenizer, check_draft_tokenizer
from engine.tracing import CURRENT_SPAN, NO_SPAN

logger = logging.getLogger("weir.engine")

_FAILED = "The engine has failed."


class LocalEngine:
    """Implements `protocol.Engine`. Use it from the event loop that it was started on."""

    fields = FIELDS

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.info = ModelInfo()
        """`start` fills it, and `tokenizer`."""
        self.tokenizer: Tokenizer | None = None
        self._inbox: queue.SimpleQueue[Callable[[EngineCore], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="weir-engine", daemon=True)
        self._preparation = Preparation(config.tokenizer_pool_size)
        self._streams: dict[SequenceGroup, DeltaQueue] = {}
        self._admission = Admission(config)
        self._stats = EngineStats()
        self._out_of_service: str | None = "The engine has not been started."

    async def start(self) -> None:
        """Load model and tokenizer. Raises `ValueError` or `OSError` if they cannot be loaded or served."""
        self._loop = asyncio.get_running_loop()
        self._loaded: asyncio.Future[InputProcessor] = self._loop.create_future()
        self._thread.start()
        processor = self._processor = await self._loaded
        self.tokenizer = processor.tokenizer
        self.fields = processor.fields
        self.info = ModelInfo(
            processor.max_model_len,
            processor.vocab_size,
            parses_tool_calls=False,
            can_rewind=True,
            max_prompt_bytes=processor.tokenizer.max_prompt_bytes,
        )

    def generate(self, request: GenerationRequest) -> Deltas:
        if is_beam_search(request) and self._out_of_service is None:
            return self._search(request)
        return self._generate(request)

    async def _search(self, request: GenerationRequest) -> Deltas:
        self._admission.check(request.caller)  # once, as a whole: its steps are requests, too
        process = partial(self._preparation.process, processor=self._processor)
        step = partial(self._generate, is_admitted=True)
        async with aclosing(beam_search(request, self._processor, process, step)) as deltas:
            async for delta in deltas:
                yield delta

    async def _generate(
        self, request: GenerationRequest, *, is_admitted: bool = False, is_counted: bool = False
    ) -> Deltas:
        """`is_counted`: the prompt's tokens are counted already."""
        self.check_health()
        if not is_admitted:
            self._admission.check(request.caller)
        self._admission.add(request)
        group: SequenceGroup | None = None
        span = NO_SPAN if is_admitted else CURRENT_SPAN.get()
        try:
            group = await self._preparation.process(request, self._processor)
            self.check_health()
            if is_counted:
                group.num_prompt_tokens = 0
            stream = self._streams[group] = DeltaQueue()
            self._inbox.put(partial(EngineCore.add, group=group))
            finished: set[int] = set()
            while len(finished) < request.num_outputs:
                void: set[int] = set()
                for delta in await stream.get():
                    if delta.index in void:
                        continue
                    if delta.finish_reason is not None:
                        finished.add(delta.index)
                    rewind = yield delta
                    if rewind is not None:
                        void.add(rewind.index)
                        finished.discard(rewind.index)
                        stream.rewind(rewind.index)
                        self._inbox.put(partial(self._rewind, group=group, rewind=rewind))
        finally:
            self._admission.remove(request)
            if group is not None:
                tell_phases(span, group)
            if group is not None and self._streams.pop(group, None) is not None:
                self._inbox.put(partial(EngineCore.abort, group=group))

    def check_room(self, caller: str) -> None:
        self._admission.check(caller)

    async def check_processors(self, specs: Iterable[NamedProcessorSpec]) -> None:
        """Raises `ProcessorLoadError`."""
        await asyncio.to_thread(self._processor.processors.check, specs)

    def stats(self) -> EngineStats:
        """The numbers after the last step."""
        return self._stats

    def check_health(self) -> None:
        """Raises `DeadEngineError` once the engine's thread has failed."""
        if self._out_of_service == _FAILED:
            raise DeadEngineError(_FAILED)
        if self._out_of_service is not None:
            raise EngineError(self._out_of_service, status=503)

    async def aclose(self) -> None:
        # Clients need not wait for the end of a step that runs.
        self._close("The engine is shutting down.")
        self._preparation.close()
        if self._thread.is_alive():
            self._inbox.put(None)
            await asyncio.to_thread(self._thread.join)
        self._close("The engine has been shut down.")

    # Callbacks on the event loop, which the thread posts.

    def _open(self, processor: InputProcessor, stats: EngineStats) -> None:
        self._stats = stats
        self._out_of_service = None
        if not self._loaded.cancelled():
            self._loaded.set_result(processor)

    def _refuse(self, error: Exception) -> None:
        if not self._loaded.cancelled():
            self._loaded.set_exception(error)

    def _deliver(self, outputs: Sequence[Output], stats: EngineStats) -> None:
        self._stats = stats
        for group, output in outputs:
            stream = self._streams.get(group)
            if stream is None:
                continue  # the reader has closed the stream
            if isinstance(output, EngineError):
                stream.fail(output)
            else:
                stream.put(output)

    def _resume(self, group: SequenceGroup, rewind: Rewind) -> None:
        if group in self._streams:
            self._streams[group].resume(rewind.index)

    def _close(self, reason: str) -> None:
        self._out_of_service = reason
        self._stats = replace(self._stats, num_running=0, num_waiting=0, kv_blocks_used=0)
        for stream in self._streams.values():
            stream.fail(EngineError(reason, status=503))

    # Methods of the engine thread.

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        # If the loop was closed before `aclose`, no reader is left.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    def _run(self) -> None:
        try:
            core, processor = self._load()
        except Exception as error:
            logger.debug("the engine cannot start", exc_info=True)  # `start` raises the error
            self._post(self._refuse, error)
            return
        self._post(self._open, processor, core.stats())
        reason = _FAILED
        try:
            while self._take_in(core):
                outputs = core.step() if core.has_work else []
                self._post(self._deliver, outputs, core.stats())
            reason = "The engine is shutting down."
        except Exception:
            logger.critical("the engine thread died", exc_info=True)
        finally:
            processor.guidance.close()
            self._post(self._close, reason)

    def _load(self) -> tuple[EngineCore, InputProcessor]:
        config = self.config
        find_processors(config.logits_processors)  # a quick check, before a model loads
        tokenizer = LocalTokenizer.load(config.tokenizer_name, trust_remote_code=config.trust_remote_code)
        check_draft_tokenizer(tokenizer, config)
        runner = ModelRunner.load(config)
        processor = InputProcessor.make(tokenizer, runner, config)
        return EngineCore(runner, tokenizer, config), processor

    def _take_in(self, core: EngineCore) -> bool:
        """Make all calls in the inbox. Waits for one if there is no other work. False: stop."""
        is_waiting = not core.has_work
        while is_waiting or not self._inbox.empty():
            is_waiting = False
            call = self._inbox.get()
            if call is None:
                return False
            call(core)
        return True

    def _rewind(self, core: EngineCore, group: SequenceGroup, rewind: Rewind) -> None:
        core.rewind(group, rewind)
        self._post(self._resume, group, rewind)
