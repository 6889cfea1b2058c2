"""`prompt_logprobs` of a whole answer, in vLLM's form."""

from collections.abc import Iterable
from typing import Any

from engine.protocol import Token, TopLogprob

Entry = dict[str, dict[str, Any]]
"""The tokens at one place of a prompt, by id: the prompt's own first, then the most likely ones."""


def prompt_logprobs(tokens: Iterable[Token], num_top: int) -> list[Entry | None]:
    """An entry for each released token of a prompt. None: the prompt's first token, which has no logprob.

    Another token without an id has no entry, because entries are by id.
    """
    return [_entry(token, num_top) for token in tokens if token.id is not None or token.logprob is None]


def _entry(token: Token, num_top: int) -> Entry | None:
    if token.logprob is None:
        return None
    entry = {str(token.id): _token(token, token.logprob, token.rank)}
    for rank, top in enumerate(token.top[:num_top], 1):
        if top.id is not None:
            entry.setdefault(str(top.id), _token(top, top.logprob, rank))
    return entry


def _token(token: Token | TopLogprob, logprob: float, rank: int | None) -> dict[str, Any]:
    """`decoded_token` is None where nobody may know the text (contract 8.4)."""
    text = token.raw.decode("utf-8", "replace") if token.raw else None
    return {"logprob": logprob, "rank": rank, "decoded_token": text}
