"""The in-process engine: an `EngineCore` on the engine thread, seen from an event loop.

The thread owns torch and the core; the loop owns the streams. The loop calls the core: to add a group, to
rewind an output, to drop a group that nobody reads. The thread posts calls to the loop: one with all outputs
of a step, and one when it has rewound an output, after all earlier outputs. Nothing else is shared.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from time import perf_counter

from engine.core.engine_core import EngineCore, Output
from engine.core.input_processor import FIELDS, InputProcessor
from engine.execution.model_runner import ModelRunner
from engine.local.admission import Admission
from engine.local.preparation import Preparation, PreparingEngine
from engine.local.running_core import RunningCore
from engine.local.stream import LocalStream
from engine.protocol import (
    DeadEngineError,
    EngineError,
    EngineStats,
    GenerationRequest,
    ModelInfo,
    RequestError,
    Rewind,
    ShutdownError,
    Tokenizer,
)
from engine.protocol.errors import Failure, not_started
from engine.protocol.flow import Flow
from engine.protocol.options import EngineConfig
from engine.protocol.tracing import CURRENT_SPAN, NO_SPAN, Span
from engine.sampling.logits_processors.load import find_processors
from engine.scheduling.sequence import SequenceGroup
from engine.text.tokenizer import LocalTokenizer, check_draft_tokenizer

# It reads what no earlier start has kept of a model's files. A start finds out whether it is there.
if find_spec("transformers") is None:
    raise ModuleNotFoundError("No module named 'transformers'", name="transformers")


class LocalEngine(PreparingEngine):
    """Implements `protocol.Engine`. Use it from the event loop that it was started on."""

    fields = FIELDS

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.info = ModelInfo()
        """`start` fills it, and `tokenizer`."""
        self.tokenizer: Tokenizer | None = None
        self._failure: Failure | None = not_started
        self._core = RunningCore(config, self._load, self._deliver, self._fail)
        self._preparation = Preparation(config.tokenizer_pool_size)
        self._streams: dict[SequenceGroup, LocalStream] = {}
        self._unfed: dict[SequenceGroup, LocalStream] = {}
        """The streams with deltas that the event loop has not fed yet."""
        self._admission = Admission(config)
        self._stats = EngineStats()

    async def start(self) -> None:
        """Load model and tokenizer. Raises `ValueError` or `OSError` if they cannot be loaded or served."""
        await self._core.start()
        processor = self._processor
        self._failure = None
        self.tokenizer = processor.tokenizer
        self.fields = processor.fields
        self.info = ModelInfo(
            processor.max_model_len,
            processor.vocab_size,
            parses_tool_calls=False,
            can_rewind=True,
            max_prompt_bytes=processor.tokenizer.max_prompt_bytes,
            probes=processor.probes,
            eos_token_ids=processor.end_ids,
        )

    async def _feed(
        self, request: GenerationRequest, flow: Flow, *, is_admitted: bool = False, is_counted: bool = False
    ) -> None:
        self.check_health()
        if not is_admitted:
            self._admission.check(request.caller)
        span = NO_SPAN if is_admitted or self.config.only_guards else CURRENT_SPAN.get()
        with self._admission.counted(request):
            group = await self._preparation.process(request, self._processor)
            try:
                self.check_health()
                if is_counted:
                    group.num_prompt_tokens = 0
                stream = self._streams[group] = LocalStream(flow, request.num_outputs)
                flow.on_rewind = partial(self._rewind, group, stream)
                self._core.call(partial(EngineCore.add, group=group))
                await stream.wait()
            finally:
                _trace_phases(span, group)
                if self._streams.pop(group, None) is not None:
                    self._core.call(partial(EngineCore.leave, group=group))

    def _rewind(self, group: SequenceGroup, stream: LocalStream, rewind: Rewind) -> None:
        stream.rewind(rewind.index)
        self._core.call(partial(self._rewind_core, group=group, rewind=rewind))

    def check_room(self, caller: str) -> None:
        self._admission.check(caller)

    def stats(self) -> EngineStats:
        """The numbers after the last step."""
        return self._stats

    def check_health(self) -> None:
        """Raises `DeadEngineError` once a step has failed for good."""
        if self._failure is not None:
            raise self._failure()

    async def aclose(self) -> None:
        # Clients need not wait for the end of a step that runs.
        self._close(ShutdownError)
        self._preparation.close()
        await self._core.aclose()
        if self.tokenizer is not None:
            self._processor.guidance.close()
        self._close(partial(ShutdownError, "The engine has been shut down."))

    # Callbacks on the event loop, which the thread posts.

    def _deliver(self, outputs: Sequence[Output], stats: EngineStats) -> None:
        self._stats = stats
        for group, output in outputs:
            stream = self._streams.get(group)
            if stream is None:
                continue  # nobody takes its deltas any more
            if isinstance(output, EngineError | RequestError):
                stream.fail(output)
            else:
                stream.put(output)
                self._unfed[group] = stream
        if not self._core.is_ahead:
            unfed, self._unfed = self._unfed, {}
            for stream in unfed.values():
                stream.feed()

    def _resume(self, group: SequenceGroup, rewind: Rewind) -> None:
        if group in self._streams:
            self._streams[group].resume(rewind.index)

    def _close(self, failure: Failure) -> None:
        self._failure = failure
        self._stats = replace(self._stats, num_running=0, num_waiting=0, kv_blocks_used=0)
        for stream in self._streams.values():
            stream.fail(failure())

    def _fail(self) -> None:
        self._close(partial(DeadEngineError, "The engine has failed."))

    # Methods of other threads.

    def _load(self) -> EngineCore:
        config = self.config
        find_processors(config.logits_processors)  # a quick check, before a model loads
        tokenizer = LocalTokenizer.of(config)
        check_draft_tokenizer(tokenizer, config)
        runner = ModelRunner.load(config)
        self._processor = InputProcessor.make(tokenizer, runner, config)
        return EngineCore(runner, tokenizer, config)

    def _rewind_core(self, core: EngineCore, group: SequenceGroup, rewind: Rewind) -> None:
        core.rewind(group, rewind)
        self._core.post(self._resume, group, rewind)


def _trace_phases(span: Span, group: SequenceGroup) -> None:
    """Add children to `span` for a request that has just ended: `queue` until the first output is scheduled,
    `prefill` until the first token, `decode` until now. A phase that the request did not reach has none."""
    if span is NO_SPAN:
        return
    sequences = group.sequences
    starts = (
        ("queue", [seq.queued_at for seq in sequences if seq.queued_at]),
        ("prefill", [seq.scheduled_at for seq in sequences if seq.scheduled_at]),
        ("decode", [seq.first_token_at for seq in sequences if seq.first_token_at]),
    )
    reached = [(name, min(times)) for name, times in starts if times]
    ends = [*(began for _, began in reached[1:]), perf_counter()]
    for (name, began), ended in zip(reached, ends, strict=True):
        span.child(name, began=began).end(ended=ended)
