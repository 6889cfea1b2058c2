"""The shared part of engines that tokenize and guide by themselves: sequences, beam search, checks."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import aclosing
from functools import partial

from engine.core.beam_search import beam_search, is_beam_search
from engine.core.input_processor import InputProcessor
from engine.local.admission import Admission
from engine.protocol import Deltas, EngineError, GenerationRequest
from engine.protocol.errors import Failure
from engine.protocol.processor_specs import NamedProcessorSpec
from engine.protocol.prompt_size import prompt_size
from engine.sampling.guided.compiler import NUM_COMPILERS
from engine.scheduling.sequence import SequenceGroup
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


def not_started() -> EngineError:
    return EngineError("The engine has not been started.", status=503)


class PreparingEngine(ABC):
    """The base of engines that make their sequences here. A started one has `_processor` and `_admission`."""

    _preparation: Preparation
    _processor: InputProcessor
    _admission: Admission
    _failure: Failure | None
    """None: the engine has been started, and serves."""

    def generate(self, request: GenerationRequest) -> Deltas:
        if is_beam_search(request) and self._failure is None:
            return self._search(request)
        return self._generate(request)

    @abstractmethod
    def _generate(
        self, request: GenerationRequest, *, is_admitted: bool = False, is_counted: bool = False
    ) -> Deltas:
        """`is_admitted`: the request is a step of an admitted one. `is_counted`: an earlier step has counted
        the prompt."""

    async def _search(self, request: GenerationRequest) -> Deltas:
        self._admission.check(request.caller)  # once, as a whole: its steps are requests, too
        process = partial(self._preparation.process, processor=self._processor)
        step = partial(self._generate, is_admitted=True)
        async with aclosing(beam_search(request, self._processor, process, step)) as deltas:
            async for delta in deltas:
                yield delta

    async def check_processors(self, specs: Iterable[NamedProcessorSpec]) -> None:
        """Raises `ProcessorLoadError`."""
        await asyncio.to_thread(self._processor.processors.check, specs)
