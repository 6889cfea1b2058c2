"""Fitting tokens to text: which token stands for which characters."""

from collections.abc import Sequence

from engine.protocol import Token

LOGPROB_FLOOR = -9999.0
"""Stands for minus infinity, which JSON cannot say. vLLM's own."""


def align_tokens(tokens: Sequence[Token], text: str) -> tuple[Token, ...]:
    """Tokens fitted to the text that they completed together, so that their texts joined are `text`.

    Where they already are, they stay. Otherwise they cannot be told apart, and move as one piece: all but
    the last are left without text, and the last gets all of it (contract 3.11).
    """
    if "".join(t.text for t in tokens) == text:
        return tuple(tokens)
    return (*(t._replace(text="") for t in tokens[:-1]), tokens[-1]._replace(text=text)) if tokens else ()


def cut_tokens(tokens: Sequence[Token], length: int) -> list[Token]:
    """The tokens of the first `length` characters. One that is cut short keeps nothing but its text."""
    kept = []
    for token in tokens:
        if length <= 0:
            break
        text = token.text[:length]
        kept.append(token if text == token.text else Token(id=None, text=text, raw=text.encode()))
        length -= len(text)
    return kept
