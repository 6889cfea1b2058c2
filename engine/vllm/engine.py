"""vLLM behind Weir's own texts: vLLM has the model, the scheduler and the cache, in processes of its own.

Everything between text and token ids is the in-process engine's: the checks of requests, chat templates, the
tokenizer, stop strings, deltas, `best_of` and beam search.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.core.input_processor import FIELDS, InputProcessor
from engine.core.output_processor import OutputProcessor
from engine.local.admission import Admission
from engine.local.preparation import Preparation, PreparingEngine
from engine.protocol import DeadEngineError, EngineStats, GenerationRequest, ModelInfo, ShutdownError
from engine.protocol.errors import not_started
from engine.protocol.flow import Flow
from engine.protocol.options import EngineConfig
from engine.scheduling.sequence import SequenceGroup
from engine.text.tokenizer import LocalTokenizer
from engine.upstream.request_tracker import TrackedEngine, TrackedRequest
from engine.vllm.options import VLLMOptions, engine_arguments
from engine.vllm.places import FairPlaces

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

    from engine.vllm.launch import Launch
    from engine.vllm.outputs import Outputs, Runtime
    from engine.vllm.stats import SchedulerCounts

SHUTDOWN_SECONDS = 3.0
"""vLLM's processes end by themselves within this time, or are killed."""
SPARE_PLACES = 4
"""One of so many outputs that vLLM runs has a successor that waits in vLLM, so that no place stays empty."""


class VLLMEngine(PreparingEngine, TrackedEngine):
    """Implements `protocol.Engine`. Use it from the event loop that it was started on."""

    fields = FIELDS

    def __init__(self, config: EngineConfig, options: VLLMOptions) -> None:
        """Raises `ValueError` for options that vLLM cannot honour."""
        super().__init__()
        self.config, self.options = config, options
        self._failure = not_started
        self._prefill: Mapping[str, Any] = options.vllm.get("prefill", {})
        """Arguments of the engine that computes prompts. Empty: there is none."""
        self._given = {name: value for name, value in options.vllm.items() if name != "prefill"}
        self._arguments = self._engine_arguments(self._given)
        self._preparation = Preparation(config.tokenizer_pool_size)
        self._running: set[Outputs] = set()
        self._notes_folder = tempfile.mkdtemp(prefix="weir-vllm-")
        self._llms: list[AsyncLLM] = []
        self._schedulers: list[SchedulerCounts] = []

    async def start(self) -> None:
        """Start vLLM's processes and load the model. Raises `ValueError`, `OSError` or `EngineError`."""
        os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # where Weir's own log goes
        self._runtime = await asyncio.to_thread(self._launch)
        self._failure = None

    async def _feed(
        self, request: GenerationRequest, flow: Flow, *, is_admitted: bool = False, is_counted: bool = False
    ) -> None:
        self.check_health()
        if not is_admitted:
            self._admission.check(request.caller)
        with self._requests.track() as tracked, self._admission.counted(request):
            group = await self._preparation.process(request, self._processor)
            self.check_health()
            if self._runtime.limits is not None:
                self._runtime.limits.check(group.sequences[0], self._processor.eos_token_ids)
            if is_counted:
                group.num_prompt_tokens = 0
            async with self._outputs(group, flow, tracked) as outputs:
                await outputs.wait()

    @asynccontextmanager
    async def _outputs(
        self, group: SequenceGroup, flow: Flow, tracked: TrackedRequest
    ) -> "AsyncIterator[Outputs]":
        """The request's outputs, which vLLM generates inside the context."""
        from engine.vllm.outputs import Outputs

        outputs = Outputs(self._runtime, group, flow, tracked)
        self._running.add(outputs)
        outputs.start()
        try:
            yield outputs
        finally:
            self._running.discard(outputs)
            await outputs.aclose()

    def stats(self) -> EngineStats:
        schedulers = self._schedulers
        return replace(
            super().stats(),
            num_waiting=sum(one.num_waiting for one in schedulers),
            steps_total=sum(one.num_steps for one in schedulers),
            preemptions_total=sum(one.num_preempted for one in schedulers),
            prefix_cache_queries_total=sum(one.num_cache_queries for one in schedulers),
            prefix_cache_hits_total=sum(one.num_cache_hits for one in schedulers),
            kv_blocks_used=sum(one.num_used_blocks for one in schedulers),
            kv_blocks=sum(one.num_blocks for one in schedulers),
        )

    def check_room(self, caller: str) -> None:
        if self._failure is None:
            self._admission.check(caller)

    def check_health(self) -> None:
        """Raises `DeadEngineError` once vLLM's processes have failed."""
        super().check_health()
        if self._failure is not None:
            raise self._failure()
        if any(llm.errored for llm in self._llms):
            raise DeadEngineError("The engine has failed.")

    async def aclose(self) -> None:
        await super().aclose()
        for outputs in self._running:
            outputs.stream.fail(ShutdownError())
        self._preparation.close()
        await self._end()

    async def _end(self) -> None:
        for llm in self._llms:
            if llm.output_handler is not None:
                llm.output_handler.cancel()  # or it would log the end of vLLM's processes as an error
        for llm in self._llms:
            await asyncio.to_thread(llm.shutdown, timeout=SHUTDOWN_SECONDS)
        self._llms.clear()
        shutil.rmtree(self._notes_folder, ignore_errors=True)

    def _launch(self) -> "Runtime":
        """Start vLLM, and make all that requests need. It takes as long as vLLM takes."""
        from engine.vllm.launch import Launch, has_processors
        from engine.vllm.outputs import Runtime, lora_requests
        from engine.vllm.processors import FailureNotes

        launch = Launch.prepare(self.config, self._arguments)
        model, has_own = launch.model, has_processors(self.config)
        tokenizer = LocalTokenizer.of(self.config, launch.tokenizer)
        self._processor = InputProcessor.make(tokenizer, model, self.config)
        if has_own:
            launch.add_processors(self._notes_folder)
        limits = launch.limits
        decode = self._start(launch)
        self._admission = Admission(self.config.model_copy(update={"max_num_seqs": launch.num_places}))
        self.tokenizer = tokenizer
        self.fields = self._processor.fields
        self.info = ModelInfo(
            model.max_model_len,
            model.vocab_size,
            parses_tool_calls=False,
            can_rewind=not launch.is_speculative,
            can_rewind_guided=False,
            max_prompt_bytes=tokenizer.max_prompt_bytes,
            eos_token_ids=self._processor.end_ids,
        )
        num_places = launch.num_places + max(1, launch.num_places // SPARE_PLACES)
        return Runtime(
            decode,
            self._start_prefill(),
            OutputProcessor(tokenizer),
            FairPlaces(num_places, max_per_caller=self.config.max_num_seqs_per_caller),
            FailureNotes(self._notes_folder) if has_own else None,
            lora_requests(self.options.vllm_lora_modules),
            limits,
        )

    def _start_prefill(self) -> "AsyncLLM | None":
        """Start the engine that computes prompts, if there is one."""
        from engine.vllm.launch import Launch

        if not self._prefill:
            return None
        arguments = self._engine_arguments({**self._given, **self._prefill})
        return self._start(Launch.prepare(self.config, arguments))

    def _engine_arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return engine_arguments(self.config, given, has_loras=bool(self.options.vllm_lora_modules))

    def _start(self, launch: "Launch") -> "AsyncLLM":
        from engine.vllm.launch import counts_of

        self._llms.append(llm := launch.start(logs_stats=not self._arguments["disable_log_stats"]))
        self._schedulers.append(counts_of(llm))
        return llm
