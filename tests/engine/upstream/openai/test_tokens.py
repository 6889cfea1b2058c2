from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Token
from engine.upstream.openai.tokens import TextAndTokens, TokenAligner


def tokens(*strings: str) -> list[Token]:
    return [Token(id=i, text=string, raw=string.encode()) for i, string in enumerate(strings)]


def told(released: TextAndTokens) -> tuple[str, list[tuple[str, str]]]:
    """The text, and each token's own string and the text that it was given."""
    text, given = released
    return text, [(token.raw.decode(), token.text) for token in given]


def test_a_token_comes_with_its_text() -> None:
    aligner = TokenAligner()
    assert told(aligner.feed(tokens("Hel", "lo"), "Hello")) == ("Hello", [("Hel", "Hel"), ("lo", "lo")])


def test_a_special_token_goes_with_the_text_that_follows() -> None:
    aligner = TokenAligner()
    assert told(aligner.feed(tokens("a", "</think>"), "a")) == ("a", [("a", "a")])
    assert told(aligner.feed(tokens("\n\n"), "")) == ("", [])
    assert told(aligner.feed(tokens("b"), "b")) == ("b", [("</think>", ""), ("\n\n", ""), ("b", "b")])


def test_a_special_token_goes_with_the_end() -> None:
    aligner = TokenAligner()
    assert told(aligner.feed(tokens("a", "</s>"), "a")) == ("a", [("a", "a")])
    assert told(aligner.flush()) == ("", [("</s>", "")])


def test_parts_of_a_character_share_it() -> None:
    aligner = TokenAligner()
    assert told(aligner.feed(tokens("a", "\ufffd"), "a")) == ("a", [("a", "a")])
    assert told(aligner.feed(tokens("\ufffd", "b"), "éb")) == (
        "éb",
        [("\ufffd", ""), ("\ufffd", "é"), ("b", "b")],
    )


def test_a_character_of_its_own_is_no_part() -> None:
    aligner = TokenAligner()
    assert told(aligner.feed(tokens("\ufffd", "b"), "\ufffdb")) == (
        "\ufffdb",
        [("\ufffd", "\ufffd"), ("b", "b")],
    )


def test_what_cannot_be_told_apart_moves_as_one_piece() -> None:
    aligner = TokenAligner()
    assert told(aligner.feed(tokens("▁the", "▁cat"), "the cat")) == (
        "the cat",
        [("▁the", ""), ("▁cat", "the cat")],
    )


def test_text_without_tokens_passes() -> None:
    for aligner in (TokenAligner(), TokenAligner(("stop",))):
        assert aligner.feed([], "Hello") == ("Hello", ())


def test_a_token_waits_for_text_that_lags() -> None:
    aligner = TokenAligner(stop=("stop",))
    assert told(aligner.feed(tokens("Hello"), "He")) == ("", [])
    assert told(aligner.feed(tokens(" you"), "llo y")) == ("Hello", [("Hello", "Hello")])
    assert told(aligner.feed([], "ou")) == (" you", [(" you", " you")])


def test_a_stop_string_takes_its_tokens_with_it() -> None:
    aligner = TokenAligner(stop=("STOP",))
    assert told(aligner.feed(tokens("a", "bS", "TO", "P!"), "a")) == ("a", [("a", "a")])
    assert aligner.feed([], "b") == ("", ())
    assert aligner.flush() == ("b", (Token(id=None, text="b", raw=b"b"),))


def test_text_that_contradicts_for_long_passes_without_tokens() -> None:
    aligner = TokenAligner(stop=("stop",))
    text = ""
    for _ in range(100):
        piece = aligner.feed(tokens("▁x"), " x")
        assert not piece[1]
        text += piece[0]
    text += aligner.flush()[0]
    assert text == " x" * 100


def test_mute_gives_the_text_alone() -> None:
    aligner = TokenAligner(stop=("stop",))
    aligner.feed(tokens("Hello"), "He")
    assert aligner.waits
    assert aligner.mute() == "He"
    assert aligner.feed(tokens("x"), "llo") == ("llo", ())
    assert aligner.flush() == ("", ())


PLAIN = ["a", "b", " a", "ab", "ba", "e", " "]
# What an upstream calls each token, and its text.
UNITS = [[(s, s)] for s in PLAIN] + [
    [("<s>", "")],
    [("\ufffd", ""), ("\ufffd", "é")],
    [(" \ufffd", ""), ("\ufffd", " é")],
]


@given(
    units=st.lists(st.sampled_from(UNITS), max_size=12),
    cuts=st.sets(st.integers(0, 24)),
    lag=st.integers(0, 4),
)
def test_no_token_comes_before_its_text(
    units: Sequence[list[tuple[str, str]]], cuts: set[int], lag: int
) -> None:
    """An upstream cuts its tokens into chunks anywhere, and with stop strings its text lags."""
    drawn = [token for unit in units for token in unit]
    aligner = TokenAligner(("x" * (lag + 1),) if lag else ())
    sent, pieces, batch = 0, [], []
    whole = ""
    for i, (string, text) in enumerate(drawn):
        batch.append(Token(id=i, text=string, raw=string.encode()))
        whole += text
        if i in cuts:
            ready = max(sent, len(whole) - lag)
            pieces.append(aligner.feed(batch, whole[sent:ready]))
            sent, batch = ready, []
    pieces += [aligner.feed(batch, whole[sent:]), aligner.flush()]

    assert "".join(text for text, _ in pieces) == whole
    assert [token.id for _, given in pieces for token in given] == list(range(len(drawn)))
    delivered = 0
    for text, told_tokens in pieces:
        if told_tokens:
            assert "".join(token.text for token in told_tokens) == text
        delivered += len(text)
        for token in told_tokens:
            string, _ = drawn[token.id or 0]
            end = sum(len(own) for _, own in drawn[: (token.id or 0) + 1])
            assert delivered >= end or "\ufffd" in string


@given(cut=st.integers(0, 11), sizes=st.lists(st.integers(1, 4), min_size=12))
@pytest.mark.parametrize("stop", ["STOP", " "])
def test_nothing_of_a_stop_string_is_told(cut: int, sizes: list[int], stop: str) -> None:
    text = "well, hello"[:cut].replace(" ", "_")
    drawn, strings = text + stop + "!", []
    for size in sizes:
        strings.append(drawn[:size])
        drawn = drawn[size:]
    aligner = TokenAligner((stop,))
    pieces = [aligner.feed([token], "") for token in tokens(*filter(None, strings))]
    pieces += [aligner.feed([], text), aligner.flush()]
    if len("".join(strings)) >= len(text + stop):
        assert b"".join(token.raw for _, given in pieces for token in given) == text.encode()
    assert "".join(piece for piece, _ in pieces) == text


def test_tokens_that_come_after_bare_text_are_told_only_if_they_are_their_events_text() -> None:
    """Others may be the bare text's, and would go out with another's (contract 3.11)."""
    aligner = TokenAligner()
    assert aligner.feed([], "Q") == ("Q", ())
    assert aligner.feed(tokens("Q"), "") == ("", ())
    assert aligner.feed(tokens("Q"), "z") == ("z", ())
    assert aligner.feed(tokens("Q", "z"), "z") == ("z", ())
    assert aligner.feed(tokens("Q"), "z") == ("z", ())
    assert aligner.feed(tokens("", "z"), "z") == ("z", ())
    assert aligner.feed([Token(id=7, text="\ufffd")], "\ufffd") == ("\ufffd", ())
    assert told(aligner.feed(tokens("z", "y"), "zy")) == ("zy", [("z", "z"), ("y", "y")])
    assert aligner.flush() == ("", ())


def test_tokens_that_lag_behind_their_text_are_not_released() -> None:  # contract 3.11
    aligner = TokenAligner()
    assert aligner.feed(tokens("a"), "aQ") == ("aQ", ())
    assert aligner.feed(tokens("Q"), "c") == ("c", ())
    assert aligner.flush() == ("", ())


def test_tokens_that_are_of_another_text_are_not_told() -> None:  # contract 3.11
    aligner = TokenAligner()
    assert aligner.feed(tokens("SECRET"), "hello") == ("hello", ())
