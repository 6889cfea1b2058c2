"""Tokens fitted to a text, whole and cut."""

from engine.protocol import Token
from engine.text.alignment import align_tokens, cut_tokens


def tokens(*texts: str) -> tuple[Token, ...]:
    return tuple(Token(i, text, text.encode(), -0.5) for i, text in enumerate(texts))


def test_tokens_that_fit_stay_unchanged() -> None:
    fitting = tokens("a", "", "bc")
    assert align_tokens(fitting, "abc") == fitting
    assert align_tokens((), "") == ()


def test_tokens_that_do_not_fit_become_one_piece() -> None:
    assert [(t.id, t.text) for t in align_tokens(tokens("x", "y"), "abc")] == [(0, ""), (1, "abc")]
    assert align_tokens((), "abc") == ()


def test_a_token_that_is_cut_keeps_its_scores() -> None:  # contract 2.10
    (cut,) = cut_tokens([Token(7, "ab", b"ab", -0.5, scores=(1.5,))], 1)
    assert cut == Token(None, "a", b"a", scores=(1.5,))


def test_a_token_that_is_cut_keeps_only_its_text() -> None:
    first, _ = tokens("ab", "cde")
    assert cut_tokens(tokens("ab", "cde", "f"), 3) == [first, Token(None, "c", b"c")]
    assert cut_tokens(tokens("ab", "cde"), 2) == [first]
