"""An engine without a model: it returns the prompt, one word at a time. For trying hooks and clients.

It honours `n`, `max_tokens`, `stop`, `echo`, `logprobs`, `prompt_logprobs`, and `ignore_eos` (by repeating
the prompt). Fields that only a model can honour change nothing, except logits processors, which are refused.
"""

import asyncio
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, zip_longest
from typing import Any, Self

from engine.protocol import (
    Channel,
    Delta,
    Deltas,
    FinishReason,
    GenerationRequest,
    ModelInfo,
    Prompt,
    RequestError,
    Token,
    TopLogprob,
    Usage,
)
from engine.protocol.fields.asked import check_fields
from engine.protocol.fields.support import FieldSupport
from engine.text.alignment import cut_tokens
from engine.upstream.request_tracker import NO_LOGITS, TrackedEngine

VOCAB_SIZE = 50_000
_WORD = re.compile(r" ?\S{1,100}|\s")


class EchoEngine(TrackedEngine):
    """Returns a completion's prompt, or a chat's last message of the user's or result of a tool.

    A token is a word with the blank before it, or a part of a very long word. Its id is a hash of the word,
    below `VOCAB_SIZE`. The id is the same in every process, and two words may share one. A prompt of token
    ids is returned as decimal numbers. Every logprob is 0. `delay`: seconds before each token.
    """

    fields = FieldSupport(
        honoured=frozenset(
            {"n", "max_tokens", "stop", "logprobs", "prompt_logprobs", "ignore_eos", "return_token_ids"}
        ),
        honoured_in_completions=frozenset({"echo"}),
        refused=NO_LOGITS,
    )

    def __init__(self, *, delay: float = 0.0) -> None:
        super().__init__()
        self.info = ModelInfo(vocab_size=VOCAB_SIZE)
        self.delay = delay

    async def generate(self, request: GenerationRequest) -> Deltas:
        check_fields(request, self.fields)
        prompts = (_last_words(request.messages),) if request.is_chat else request.prompts
        with self._requests.track() as tracked:
            # A prompt may have a million words.
            answers = await asyncio.to_thread(lambda: [_Answer.of(prompt, request) for prompt in prompts])
            outputs: list[Iterator[Delta]] = []
            num_prompt_tokens = 0
            for answer in answers:
                num_prompt_tokens += len(answer.prompt_token_ids)
                outputs += map(answer.deltas, range(len(outputs), len(outputs) + request.sampling.n))
            tracked.usage = Usage(prompt_tokens=num_prompt_tokens, completion_tokens=0)
            for deltas in zip_longest(*outputs):
                await self._requests.pause(self.delay)
                for delta in filter(None, deltas):
                    completion_tokens = tracked.usage.completion_tokens + delta.num_output_tokens
                    tracked.usage = replace(tracked.usage, completion_tokens=completion_tokens)
                    yield replace(delta, usage=tracked.usage)


def _last_words(messages: tuple[Mapping[str, Any], ...]) -> str:
    for message in reversed(messages):
        # An agent that gets its user's words back after each call would call for ever.
        if message.get("role") in ("user", "tool"):
            content = message.get("content") or ""
            return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    raise RequestError("There is no message of a user or a tool to return.", param="messages")


def _tokenize(prompt: Prompt, logprobs: int | None) -> list[Token]:
    if isinstance(prompt, str):
        # Other tasks run between two words, and none runs while `findall` finds them all.
        found = (match[0] for match in _WORD.finditer(prompt))
        words = [(zlib.crc32(word.encode()) % VOCAB_SIZE, word) for word in found]
    else:
        words = [(token_id, f" {token_id}") for token_id in prompt]
    return [
        Token(
            id=token_id,
            text=word,
            raw=word.encode(),
            logprob=None if logprobs is None else 0.0,
            top=(TopLogprob(token_id, word.encode(), 0.0),) if logprobs else (),
        )
        for token_id, word in words
    ]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to one prompt, the same for all of its outputs."""

    prompt_token_ids: tuple[int, ...]
    echo: Sequence[Token]
    words: Sequence[Token]
    num_tokens: int
    """Tokens of an output, which has `words` again and again."""
    finish_reason: FinishReason
    stop_reason: str | None

    @classmethod
    def of(cls, prompt: Prompt, request: GenerationRequest) -> Self:
        sampling = request.sampling
        words = _tokenize(prompt, sampling.logprobs)
        echo = _tokenize(prompt, request.num_prompt_logprobs) if request.returns_prompt else []
        num_tokens = len(words[: sampling.max_tokens])
        if words and sampling.ignore_eos and sampling.max_tokens:
            num_tokens = sampling.max_tokens
        finish_reason: FinishReason = "stop" if num_tokens == len(words) else "length"
        stop_reason = None
        ids = tuple(token.id for token in words if token.id is not None)
        if sampling.stop:
            tokens = list(islice(cycle(words), num_tokens))
            text = "".join(token.text for token in tokens)
            if found := [(text.find(stop), stop) for stop in sampling.stop if stop in text]:
                end, stop_reason = min(found)
                finish_reason, words = "stop", cut_tokens(tokens, end)
                num_tokens = len(words)
        # The first token has no logprob, because no token comes before it.
        echo[:1] = [first._replace(logprob=None, top=()) for first in echo[:1]]
        return cls(ids, echo, words, num_tokens, finish_reason, stop_reason)

    def deltas(self, index: int) -> Iterator[Delta]:
        """The prompt if it is echoed, the tokens, the end."""
        ids: tuple[int, ...] | None = self.prompt_token_ids
        content = islice(cycle(self.words), self.num_tokens)
        channels: tuple[tuple[Channel, Iterable[Token]], ...] = ("echo", self.echo), ("content", content)
        for channel, tokens in channels:
            for token in tokens:
                yield Delta(
                    index=index, text=token.text, tokens=(token,), channel=channel, prompt_token_ids=ids
                )
                ids = None
        yield Delta(
            index=index, finish_reason=self.finish_reason, stop_reason=self.stop_reason, prompt_token_ids=ids
        )
