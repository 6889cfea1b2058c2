"""Makes requests' sequences beside the event loop, for engines that tokenize and guide by themselves."""

from functools import partial

from engine.core.input_processor import InputProcessor
from engine.protocol import GenerationRequest
from engine.protocol.prompt_size import prompt_size
from engine.sampling.guided.compiler import NUM_COMPILERS
from engine.scheduling.sequence import SequenceGroup
from engine.turns.fair_threads import FairThreads
from engine.turns.prompt_threads import PromptThreads


class Preparation:
    """The threads of one engine that tokenize prompts and compile grammars."""

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
