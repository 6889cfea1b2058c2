"""The shared part of engines that tokenize and guide by themselves: sequences, beam search, checks."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial

from engine.core.beam_search import beam_search, is_beam_search
from engine.core.input_processor import InputProcessor
from engine.local.admission import Admission
from engine.protocol import Deltas, GenerationRequest
from engine.protocol.errors import Failure
from engine.protocol.flow import Flow
from engine.protocol.processor_specs import NamedProcessorSpec
from engine.protocol.prompt_size import prompt_size
from engine.sampling.guided.compiler import NUM_COMPILERS
from engine.scheduling.sequence import SequenceGroup
from engine.streams.feeding import feed_all, iterated
from engine.streams.flow import StagedFlow
from engine.turns.fair_threads import FairThreads
from engine.turns.prompt_threads import PromptThreads


class Preparation:
    """Makes requests' sequences beside the event loop: its threads tokenize prompts and compile grammars."""

    def __init__(self, num_tokenizers: int) -> None:
        """`num_tokenizers`: long prompts that are tokenized at the same time."""
        # One compiler is always left for another caller.
        self._compilers = FairThreads(NUM_COMPILERS, max_per_caller=NUM_COMPILERS - 1)
        self._prompt_threads = PromptThreads(num_tokenizers)

    async def process(self, request: GenerationRequest, processor: InputProcessor) -> SequenceGroup:
        """The request's sequences. Grammars are compiled on their own threads, so that other requests need
        not wait for them. Raises what `InputProcessor.process` raises, and `EngineError` once closed."""
        process = partial(processor.process, request)
        if processor.guidance.must_compile(request):
            return await self._compilers.run(process, request.caller)
        return await self._prompt_threads.run(process, size=prompt_size(request), caller=request.caller)

    def close(self) -> None:
        """Begin nothing more."""
        self._compilers.close()
        self._prompt_threads.close()


class PreparingEngine(ABC):
    """The base of engines that make their sequences here. A started one has `_processor` and `_admission`."""

    _preparation: Preparation
    _processor: InputProcessor
    _admission: Admission
    _failure: Failure | None
    """None: the engine has been started, and serves."""

    def generate(self, request: GenerationRequest) -> Deltas:
        return iterated(StagedFlow(partial(self.feed, request)))

    async def feed(self, request: GenerationRequest, flow: Flow) -> None:
        if is_beam_search(request) and self._failure is None:
            await self._search(request, flow)
        else:
            await self._feed(request, flow)

    @abstractmethod
    async def _feed(
        self, request: GenerationRequest, flow: Flow, *, is_admitted: bool = False, is_counted: bool = False
    ) -> None:
        """`is_admitted`: the request is a step of an admitted one. `is_counted`: an earlier step has counted
        the prompt."""

    async def _search(self, request: GenerationRequest, flow: Flow) -> None:
        self._admission.check(request.caller)  # once, as a whole: its steps are requests, too
        process = partial(self._preparation.process, processor=self._processor)
        await feed_all(beam_search(request, self._processor, process, self._step), flow)

    def _step(self, request: GenerationRequest, *, is_counted: bool = False) -> Deltas:
        return iterated(StagedFlow(partial(self._feed, request, is_admitted=True, is_counted=is_counted)))

    async def check_processors(self, specs: Iterable[NamedProcessorSpec]) -> None:
        """Raises `ProcessorLoadError`."""
        await asyncio.to_thread(self._processor.processors.check, specs)
