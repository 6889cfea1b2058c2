"""The guidance of a server's outputs. The rest of the engine holds nothing else of this package."""

from engine.parsers.registry import NUM_PROMPT_TOKENS
from engine.parsers.suggested import chosen_parser
from engine.protocol import GenerationRequest, RequestError
from engine.protocol.options import EngineConfig
from engine.sampling.guided.compiler import GrammarCompiler, GrammarError
from engine.sampling.guided.grammar import RequestedGrammar, requested_grammar
from engine.sampling.guided.guide import Guide, GuidedMask
from engine.sampling.guided.reasoning import ReasoningForm
from engine.sampling.guided.tool_calls import forced_calls
from engine.sampling.logits_processors import Context
from engine.sampling.logits_processors.started import ProcessorEntry, StartedProcessor
from engine.scheduling.sequence import SequenceGroup
from engine.text.tokenizer import LocalTokenizer

MAX_SIZE = 256 * 1024
"""Characters of a grammar."""


class Guidance:
    """Guides the outputs of one model, knowing the parsers that the service reads them with."""

    def __init__(self, tokenizer: LocalTokenizer, context: Context, config: EngineConfig) -> None:
        self._tokenizer, self._eos_token_ids = tokenizer, frozenset(context.eos_token_ids)
        self._compiler = GrammarCompiler(tokenizer, context.vocab_size, context.eos_token_ids)
        parser = config.reasoning_parser
        self._reasoning = ReasoningForm.of(parser, tokenizer) if parser else None
        self._tool_call_parser = chosen_parser(config.tool_call_parser, tokenizer.chat_template)
        # It runs before all other masks: a mask that leaves no token of the grammar is the one at fault.
        mask = GuidedMask(context.device, config.num_threads)
        self._entry = ProcessorEntry("guided decoding", "mask", rank=-1, batch=mask, is_callers=True)

    def requested_grammar(self, request: GenerationRequest) -> RequestedGrammar | None:
        """The grammar that the request's outputs must follow. Raises `RequestError`."""
        requested = requested_grammar(request)
        if forced := forced_calls(request, self._tool_call_parser, self._tokenizer):
            if requested is not None and not requested.field.startswith(("response_format", "text.format")):
                reason = "cannot be combined with tools that must be called"
                raise RequestError(f"{requested.field} {reason}.", param=requested.field)
            requested = forced
        if requested is not None and requested.grammar.size > MAX_SIZE:
            reason = f"must not be longer than {MAX_SIZE} characters"
            raise RequestError(f"{requested.field}: {reason}.", param=requested.field)
        return requested

    def must_compile(self, request: GenerationRequest) -> bool:
        """Whether `begin` may take long. Raises `RequestError`."""
        requested = self.requested_grammar(request)
        return requested is not None and not self._compiler.has(requested.grammar)

    def begin(self, group: SequenceGroup, requested: RequestedGrammar) -> None:
        """Give the request's sequences their guides. Raises `RequestError`, which names the field."""
        try:
            grammar, tokenizer = self._compiler.compile(requested.grammar), self._compiler.tokenizer
        except GrammarError as error:
            raise RequestError(f"{requested.field}: {error}.", param=requested.field) from error
        reasoning = self._reasoning if group.request.is_chat else None
        for seq in group.sequences:
            last_ids = seq.prompt_token_ids[-NUM_PROMPT_TOKENS:] if reasoning else ()
            prompt_end = self._tokenizer.decode(last_ids)
            state = seq.sampling
            state.eos_token_ids = self._eos_token_ids  # also if the request ignores them: see the `Sampler`
            state.guide = Guide(grammar, tokenizer, state.token_ids, requested.field, reasoning, prompt_end)
            started = StartedProcessor(self._entry, params={"guide": state.guide})
            state.processors = (started, *state.processors)

    def close(self) -> None:
        self._compiler.close()
