"""What a server guides, and how: the one thing of this package that the rest of the engine holds."""

from engine.core.sequence import SequenceGroup
from engine.guided.compiler import GrammarCompiler, GrammarError
from engine.guided.grammar import Asked, asked_of
from engine.guided.guide import Guide
from engine.guided.mask import GuidedMask
from engine.guided.reasoning import ReasoningForm
from engine.guided.tool_calls import forced_calls
from engine.logits_processors import Context, TokenIds
from engine.logits_processors.run import Entry, Started
from engine.parsers.registry import NUM_PROMPT_TOKENS
from engine.protocol import GenerationRequest, RequestError
from engine.text.tokenizer import LocalTokenizer

MAX_SIZE = 256 * 1024
"""Characters of a grammar."""


class Guidance:
    """A model's, with the parsers that the service reads its outputs by."""

    def __init__(
        self,
        tokenizer: LocalTokenizer,
        context: Context,
        *,
        reasoning_parser: str | None = None,
        tool_call_parser: str | None = None,
        num_threads: int | None = None,
    ) -> None:
        self._tokenizer, self._eos_token_ids = tokenizer, frozenset(context.eos_token_ids)
        self._compiler = GrammarCompiler(tokenizer, context.vocab_size, context.eos_token_ids)
        self._reasoning = ReasoningForm.of(reasoning_parser, tokenizer) if reasoning_parser else None
        self._tool_call_parser = tool_call_parser
        # Before all other masks: who leaves nothing of what a grammar allows is at fault.
        mask = GuidedMask(context.device, num_threads)
        self._entry = Entry("guided decoding", "mask", rank=-1, batch=mask)

    def asked_of(self, request: GenerationRequest) -> Asked | None:
        """What the request's outputs are to be. Raises `RequestError`."""
        asked = asked_of(request)
        if forced := forced_calls(request, self._tool_call_parser, self._tokenizer):
            if asked is not None and not asked.field.startswith(("response_format", "text.format")):
                reason = "cannot be had when a tool must be called"
                raise RequestError(f"{asked.field} {reason}.", param=asked.field)
            asked = forced
        if asked is not None and sum(map(len, asked.grammar)) > MAX_SIZE:
            raise RequestError(
                f"{asked.field}: must not be longer than {MAX_SIZE} characters.", param=asked.field
            )
        return asked

    def must_compile(self, request: GenerationRequest) -> bool:
        """Whether `begin` may take long. Raises `RequestError`."""
        asked = self.asked_of(request)
        return asked is not None and not self._compiler.has(asked.grammar)

    def begin(self, group: SequenceGroup, asked: Asked) -> None:
        """Give the request's sequences their guides. Raises `RequestError`, naming the field."""
        try:
            grammar, tokenizer = self._compiler.compile(asked.grammar), self._compiler.tokenizer
        except GrammarError as error:
            raise RequestError(f"{asked.field}: {error}.", param=asked.field) from error
        reasoning = self._reasoning if group.request.is_chat else None
        for seq in group.sequences:
            prompt_end = (
                self._tokenizer.decode(seq.prompt_token_ids[-NUM_PROMPT_TOKENS:]) if reasoning else ""
            )
            ids = TokenIds(seq.token_ids, seq.num_prompt_tokens)
            seq.eos_token_ids = self._eos_token_ids  # also of a request that ignores them: see the `Sampler`
            seq.guide = Guide(grammar, tokenizer, ids, reasoning, prompt_end)
            seq.processors = (Started(self._entry, params={"guide": seq.guide}), *seq.processors)

    def close(self) -> None:
        self._compiler.close()
