"""A token classifier that reads chats: their prompts, and streams of their replies."""

from collections.abc import Sequence
from functools import partial

from engine.protocol import GenerationRequest, TextTooLongError
from engine.protocol.guard_models import TokenClassifier, TokenStream
from hooks import PromptTooLongError
from hooks.builtin.guard_prompts.conversation import Turn, conversation_of, length_of
from hooks.builtin.guard_prompts.growing_text import tokenize
from hooks.builtin.stream_heads.heads import HeadOptions, Reading, heads_of
from hooks.builtin.stream_heads.reply_prompt import ReplyLayout, ReplyPrompt


class ChatReader:
    """One model, with its chat template and its heads."""

    def __init__(self, classifier: TokenClassifier, options: HeadOptions) -> None:
        """Raises `ValueError` for a model that cannot judge, or not with these options."""
        self._classifier = classifier
        self._layout = ReplyLayout(classifier.tokenizer)
        self.tokenizer = classifier.tokenizer
        self.reply_heads, self._prompt_heads = heads_of(classifier.labels, options)

    @property
    def reads_prompts(self) -> bool:
        return self._prompt_heads is not None and self._layout.closes_turns

    def turns(self, request: GenerationRequest, output_index: int) -> list[Turn]:
        """The turns of a request's prompt: see `conversation_of`."""
        return conversation_of(request, output_index, with_system=self._layout.has_system)

    async def read_prompt(self, turns: Sequence[Turn], caller: str) -> Reading:
        """The reading of the heads for prompts at the token that closes the last user's turn. Raises as
        `TokenClassifier.open` and `TokenStream.feed` do."""
        prompt = await self._prompt(turns)
        if self._prompt_heads is None or prompt.num_closed is None:
            raise RuntimeError("this model reads no prompts")
        *before, closing = prompt.ids[: prompt.num_closed]
        stream = self._classifier.open(caller=caller, ids=before)
        try:
            logits = await stream.feed([closing])
        finally:
            stream.close()
        return self._prompt_heads.read(logits)[0]

    async def open(self, turns: Sequence[Turn], caller: str) -> tuple[TokenStream, str]:
        """A stream of the chat up to the reply, and the layout's last words before the reply, which are not
        in the stream. Raises `PromptTooLongError`, and `EngineError` as `TokenClassifier.open` does."""
        prompt = await self._prompt(turns)
        try:
            # The caller's requests share these tokens, and not those of the reply.
            return self._classifier.open(caller=caller, ids=prompt.ids), prompt.lead
        except TextTooLongError as error:
            raise PromptTooLongError from error

    async def _prompt(self, turns: Sequence[Turn]) -> ReplyPrompt:
        return await tokenize(length_of(turns), partial(self._layout.prompt, turns))
