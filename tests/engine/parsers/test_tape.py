"""The fate of a token whose text is divided among streams and markers (contract 2.4, 3.11)."""

from engine.parsers.tape import CONTENT, REASONING, SettledText, Tape
from engine.protocol import Delta, Token

END = Token(7, "", b"<end>")


def tape_of(*texts: str, markers: tuple[str, ...] = ()) -> Tape:
    """A tape with a token for each text, numbered from 0."""
    tape = Tape(markers)
    for i, text in enumerate(texts):
        tape.put(Delta(text=text, tokens=(Token(i, text, text.encode(), -0.5),)))
    return tape


def test_a_token_waits_until_all_of_its_text_is_decided() -> None:
    tape = tape_of("abc")
    tape.give(2, CONTENT)
    assert (tape.text, tape.drain()) == ("c", [])
    tape.give(1, CONTENT)
    assert tape.drain() == [SettledText(CONTENT, "abc", (Token(0, "abc", b"abc", -0.5),))]


def test_text_without_tokens_does_not_wait() -> None:
    tape = Tape()
    tape.put(Delta(text="abc"))
    tape.give(2, CONTENT)
    assert tape.drain() == [SettledText(CONTENT, "ab", ())]


def test_a_part_of_a_token_keeps_the_tokens_scores() -> None:  # contract 2.10
    tape = Tape()
    for text in ("a<m>b", "c<m>"):
        tape.put(Delta(text=text, tokens=(Token(1, text, scores=(0.5,)),)))
    tape.give(1, REASONING)
    tape.drop(3)
    tape.give(2, CONTENT)
    tape.drop(3)
    tokens = [(t.text, t.scores) for piece in tape.drain() for t in piece.tokens]
    assert tokens == [("a", (0.5,)), ("b", (0.5,)), ("", (0.5,)), ("c", None)]


def test_a_token_of_a_marker_goes_with_the_text_that_follows() -> None:
    tape = tape_of("<m>", "a")
    tape.drop(3)
    assert tape.drain() == []
    tape.give(1, REASONING)
    (piece,) = tape.drain()
    assert [(t.id, t.text) for t in piece.tokens] == [(0, ""), (1, "a")]


def test_text_next_to_a_marker_goes_together_with_its_token() -> None:
    tape = tape_of("a<m>")
    tape.give(1, REASONING)
    tape.drop(3)
    (piece,) = tape.drain()
    assert [(t.id, t.text) for t in piece.tokens] == [(0, ""), (None, "a")]
    assert piece.text == "a"


def test_a_token_on_both_sides_of_a_marker_leaves_only_its_text() -> None:
    tape = tape_of("a<m>b")
    tape.give(1, REASONING)
    tape.drop(3)
    tape.give(1, CONTENT)
    assert tape.drain() == [
        SettledText(REASONING, "a", (Token(None, "a"),)),
        SettledText(CONTENT, "b", (Token(None, "b"),)),
    ]


def test_a_special_token_is_read_as_the_marker_that_its_bytes_are() -> None:
    tape = Tape(["<m>"])
    tape.put(Delta(tokens=(Token(3, "", b"<m>"),)))
    assert tape.text == "<m>"
    tape.drop(3)
    assert [t.id for t in tape.waiting] == [3]


def test_no_token_reveals_muted_text() -> None:
    tape = tape_of("[ID]", "secret", "{}")
    tape.mute(4, 10)
    tape.drop(10)
    tape.give(2, CONTENT)
    (piece,) = tape.drain()
    assert [t.id for t in piece.tokens] == [0, 2]


def test_inserted_text_has_no_token() -> None:
    tape = tape_of("a")
    tape.drop(1)
    tape.insert("{}", REASONING)
    (piece,) = tape.drain()
    assert [(t.id, t.text) for t in piece.tokens] == [(0, ""), (None, "{}")]
    assert tape.last == REASONING
