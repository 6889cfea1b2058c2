"""Fits tokens to text: which token stands for which characters."""

from collections.abc import Sequence

from engine.protocol import Token

LOGPROB_FLOOR = -9999.0
"""Replaces minus infinity, which JSON does not have. vLLM uses the same value."""


def align_tokens(tokens: Sequence[Token], text: str) -> tuple[Token, ...]:
    """The tokens, with texts that joined are `text`, the text that they completed together.

    Tokens that fit already stay unchanged. Otherwise nobody knows which text is whose, and the tokens become
    one piece: the last token gets all the text, and the tokens before it have none (contract 3.11).
    """
    if "".join(t.text for t in tokens) == text:
        return tuple(tokens)
    return (*(t._replace(text="") for t in tokens[:-1]), tokens[-1]._replace(text=text)) if tokens else ()


def cut_tokens(tokens: Sequence[Token], length: int) -> list[Token]:
    """The tokens of the first `length` characters. A token that is cut keeps only its text
    and its scores, without an id."""
    kept = []
    for token in tokens:
        if length <= 0:
            break
        text = token.text[:length]
        cut = Token(id=None, text=text, raw=text.encode(), scores=token.scores)
        kept.append(token if text == token.text else cut)
        length -= len(text)
    return kept
