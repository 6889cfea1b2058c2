"""An engine without a model: it returns the prompt, one word at a time. For trying hooks and clients.

It honours `n`, `max_tokens`, `stop`, `echo`, `logprobs`, and `ignore_eos` (by repeating the prompt).
Parameters that only a model can honour change nothing.
"""

import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

from engine.backends.request_tracker import TrackedEngine, refuse_logits_processors
from engine.deltas import num_output_tokens
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
from engine.text.alignment import cut_tokens

VOCAB_SIZE = 50_000
_WORD = re.compile(r" ?\S{1,100}|\s")


class EchoEngine(TrackedEngine):
    """Returns a completion's prompt, or a chat's last user message.

    A token is a word with the blank before it, or a part of a very long word. Its id is a hash of the word,
    below `VOCAB_SIZE`. The id is the same in every process, and two words may share one. A prompt of token
    ids is returned as decimal numbers. Every logprob is 0. `delay`: seconds before each token.
    """

    def __init__(self, *, delay: float = 0.0) -> None:
        super().__init__()
        self.info = ModelInfo(vocab_size=VOCAB_SIZE)
        self.delay = delay

    async def generate(self, request: GenerationRequest) -> Deltas:
        refuse_logits_processors(request)
        prompts = (_last_words(request.messages),) if request.is_chat else request.prompts
        prompt_tokens = [_tokenize(prompt, request.sampling.logprobs) for prompt in prompts]
        outputs = [
            _output(index, tokens, request)
            for index, tokens in enumerate(t for t in prompt_tokens for _ in range(request.sampling.n))
        ]
        with self._requests.track() as tracked:
            tracked.usage = Usage(prompt_tokens=sum(map(len, prompt_tokens)), completion_tokens=0)
            for step in range(max(map(len, outputs))):
                await self._requests.pause(self.delay)
                for deltas in outputs:
                    if step < len(deltas):
                        delta = deltas[step]
                        completion_tokens = tracked.usage.completion_tokens + num_output_tokens(delta)
                        tracked.usage = replace(tracked.usage, completion_tokens=completion_tokens)
                        yield replace(delta, usage=tracked.usage)


def _last_words(messages: tuple[Mapping[str, Any], ...]) -> str:
    said = [message.get("content") for message in messages if message.get("role") == "user"]
    if not said:
        raise RequestError("There is no user message to return.", param="messages")
    content = said[-1] or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _tokenize(prompt: Prompt, logprobs: int | None) -> list[Token]:
    if isinstance(prompt, str):
        words = [(zlib.crc32(word.encode()) % VOCAB_SIZE, word) for word in _WORD.findall(prompt)]
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


def _output(index: int, prompt: list[Token], request: GenerationRequest) -> list[Delta]:
    """All deltas of one output: the prompt if `request.echo`, the tokens, the end."""
    sampling = request.sampling
    tokens = prompt[: sampling.max_tokens]
    if sampling.ignore_eos and sampling.max_tokens:
        tokens = list(islice(cycle(prompt), sampling.max_tokens))
    finish_reason: FinishReason = "stop" if tokens == prompt else "length"
    stop_reason = None
    text = "".join(token.text for token in tokens)
    found = [(text.find(stop), stop) for stop in sampling.stop if stop in text]
    if found:
        end, stop_reason = min(found)
        finish_reason, tokens = "stop", cut_tokens(tokens, end)
    deltas = [*_deltas(index, tokens, "content"), Delta(index=index)]
    if request.echo and prompt:
        first = prompt[0]._replace(logprob=None, top=())
        deltas = _deltas(index, [first, *prompt[1:]], "echo") + deltas
    ids = tuple(token.id for token in prompt if token.id is not None)
    deltas[0] = replace(deltas[0], prompt_token_ids=ids)
    deltas[-1] = replace(deltas[-1], finish_reason=finish_reason, stop_reason=stop_reason)
    return deltas


def _deltas(index: int, tokens: list[Token], channel: Channel) -> list[Delta]:
    return [Delta(index=index, text=token.text, tokens=(token,), channel=channel) for token in tokens]
