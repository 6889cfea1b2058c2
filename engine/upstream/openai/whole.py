"""Translates a whole answer of an OpenAI-compatible upstream to `Delta`s. No I/O.

Only a whole answer of vLLM has `prompt_logprobs`: in each choice of a completion, and once next to the
choices of a chat.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from engine.protocol import Delta, GenerationRequest
from engine.upstream.limits import UpstreamOptions
from engine.upstream.openai.stream import StreamTranslator


class WholeTranslator(StreamTranslator):
    """One request's whole answer. `feed` takes all of it."""

    def __init__(self, request: GenerationRequest, options: UpstreamOptions | None = None) -> None:
        super().__init__(request, options)
        self._fixed: dict[str, Any] = {}
        """The fields of a choice that are not the upstream's."""
        if not request.return_token_ids:  # ids were asked for to know those of the prompt
            self._fixed["token_ids"] = None
        if request.sampling.max_tokens == 0:  # all that a choice can have is an echo
            self._fixed |= {"text": "", "logprobs": None, "token_ids": None}

    def feed(self, chunk: Mapping[str, Any], data: bytes | None = None) -> list[Delta]:
        deltas: list[Delta] = []
        for part in self._as_chunks(chunk):
            deltas += super().feed(part)
        return deltas

    def _as_chunks(self, answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The same as the chunks of a stream: all choices, then the usage."""
        more: dict[str, Any] = {"prompt_logprobs": answer.get("prompt_logprobs")}
        choices = [{**more, **one, **self._fixed, "delta": None} for one in answer["choices"]]
        yield {"choices": choices, "prompt_token_ids": answer.get("prompt_token_ids")}
        yield {"usage": answer.get("usage")}
