"""Reads the logprobs of a prompt that an OpenAI-compatible upstream gives as `prompt_logprobs`. No I/O.

An entry has the tokens at one place of the prompt by their ids. The first entry is null, as in vLLM.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.protocol import Prompt, RequestError, Token, TopLogprob
from engine.text.alignment import align_tokens
from engine.upstream.openai.tokens import finite, is_id

_MAX_DIGITS = 10
"""Digits of a token id."""


class PromptReader:
    """The prompts of one request. Outputs that share the entries of a prompt share its tokens."""

    def __init__(self, num_top: int) -> None:
        self._num_top = num_top
        self._entries: object = None
        self._read: tuple[str, tuple[Token, ...]] = ("", ())

    def read(
        self, entries: Any, ids: Sequence[int] | None, prompt: Prompt | None
    ) -> tuple[str, tuple[Token, ...]]:
        if entries is None or entries is not self._entries:
            self._read = read_prompt(entries, ids, prompt, self._num_top)
            self._entries = entries
        return self._read


def read_prompt(
    entries: Sequence[Mapping[str, Any] | None] | None,
    ids: Sequence[int] | None,
    prompt: Prompt | None,
    num_top: int,
) -> tuple[str, tuple[Token, ...]]:
    """The prompt's text and tokens. `ids`: the prompt's, if the upstream gave them. `prompt`: the caller's;
    None: a chat.

    The text is the caller's own, or else that of all tokens but the first: the upstream does not report the
    first token's text. Without `ids`, the first token of each entry is the prompt's. Raises `RequestError`
    if the upstream gives no logprobs of prompts, and `LookupError`, `TypeError`, `ValueError` or
    `AttributeError` for invalid entries.
    """
    if not entries:
        raise RequestError(
            "prompt_logprobs: the upstream engine does not give them.", param="prompt_logprobs"
        )
    own = ids if ids is not None else [_id(next(iter(entry))) if entry else None for entry in entries]
    tokens = [_token(token_id, entry, num_top) for token_id, entry in zip(own, entries, strict=True)]
    rest = "".join(token.text for token in tokens[1:])
    if not isinstance(prompt, str):
        return rest, tuple(tokens)
    if not entries[0] and prompt.endswith(rest):
        first = prompt[: len(prompt) - len(rest)]
        tokens[0] = tokens[0]._replace(text=first, raw=first.encode())
    return prompt, align_tokens(tokens, prompt)


def _token(token_id: int | None, entry: Mapping[str, Any] | None, num_top: int) -> Token:
    if not entry:
        return Token(token_id, "")
    chosen = entry[str(token_id)]
    raw, rank = _raw(chosen), chosen.get("rank")
    top = [TopLogprob(_id(key), _raw(one), finite(one["logprob"])) for key, one in entry.items()]
    top.sort(key=lambda one: -one.logprob)
    return Token(
        token_id,
        raw.decode(),
        raw,
        finite(chosen["logprob"]),
        tuple(top[:num_top]),
        rank=rank if is_id(rank) and rank else None,
    )


def _raw(chosen: Mapping[str, Any]) -> bytes:
    text = chosen.get("decoded_token")
    return text.encode() if isinstance(text, str) else b""


def _id(key: str) -> int:
    if not (key.isdecimal() and key.isascii() and len(key) <= _MAX_DIGITS and is_id(int(key))):
        raise ValueError("a prompt logprob is of no token id")
    return int(key)
