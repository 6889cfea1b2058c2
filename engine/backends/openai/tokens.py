"""Reads the tokens in a choice of an OpenAI-compatible upstream. No I/O.

In a chat, `logprobs` is a list of objects; in a completion, it is an object of lists. vLLM puts `token_ids`
beside it.
"""

import codecs
import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from engine.protocol import GenerationRequest, Token, TopLogprob
from engine.text.alignment import LOGPROB_FLOOR


class TokenReader:
    """One output's tokens. A token's `text` is the upstream's string for it, or U+FFFD if there is none.

    Logprobs that Weir asked for, but not the caller, are left out. `prompt`: the prompt's ids, if the caller
    gave ids. If the prompt is echoed, the first tokens get these ids.
    """

    def __init__(self, request: GenerationRequest, prompt: Sequence[int]) -> None:
        self._num_top = request.sampling.logprobs
        self._echo_ids = list(prompt) if request.echo else []
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self, choice: Mapping[str, Any]) -> list[Token]:
        logprobs = choice.get("logprobs") or {}
        ids = choice.get("token_ids") or ()
        if not all(isinstance(token_id, int) and token_id >= 0 for token_id in ids):
            raise TypeError("token ids are no numbers")
        if entries := logprobs.get("content"):
            tokens = [self._token(e["token"], e.get("bytes"), e["logprob"], _chat_top(e)) for e in entries]
        elif strings := logprobs.get("tokens"):
            numbers = logprobs.get("token_logprobs") or ()
            tops = logprobs.get("top_logprobs") or ()
            tokens = [
                self._token(string, None, number, _completion_top(top))
                for string, number, top in zip_longest(strings, numbers, tops)
            ]
        else:
            tokens = [Token(id=None, text="\ufffd") for _ in ids]
        if self._echo_ids:
            ids, self._echo_ids = self._echo_ids[: len(tokens)], self._echo_ids[len(tokens) :]
        elif len(ids) != len(tokens):
            return tokens
        return [
            token if token_id is None else token._replace(id=token_id)
            for token, token_id in zip_longest(tokens, ids)
        ]

    def _token(
        self, string: str, given: Sequence[int] | None, logprob: float | None, top: list[TopLogprob]
    ) -> Token:
        raw = string.encode() if given is None else bytes(given)
        text = self._utf8.decode(raw)
        if self._num_top is None:
            return Token(id=None, text=text, raw=raw)
        top.sort(key=lambda alternative: -alternative.logprob)
        number = None if logprob is None else _finite(logprob)
        return Token(id=None, text=text, raw=raw, logprob=number, top=tuple(top[: self._num_top]))


def _chat_top(entry: Mapping[str, Any]) -> list[TopLogprob]:
    return [
        TopLogprob(
            id=None,
            raw=top["token"].encode() if top.get("bytes") is None else bytes(top["bytes"]),
            logprob=_finite(top["logprob"]),
        )
        for top in entry.get("top_logprobs") or ()
    ]


def _completion_top(top: Mapping[str, float] | None) -> list[TopLogprob]:
    return [TopLogprob(None, string.encode(), _finite(number)) for string, number in (top or {}).items()]


def _finite(logprob: float | None) -> float:
    if logprob is None or not math.isfinite(logprob):
        return LOGPROB_FLOOR
    return max(float(logprob), LOGPROB_FLOOR)
