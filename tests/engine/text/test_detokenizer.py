"""Ids streamed to text: each token with the text that it completes, and no part of a stop string."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine.protocol import Token
from engine.text.detokenizer import Detokenizer, SpecialTokens, WholeTexts
from tests.engine.text.test_text_search import STOPS, TEXTS

VOCAB_SIZE = 400
IDS = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=30)


def stream(
    fast: Tokenizer, ids: Sequence[int], prompt: Sequence[int] = (), stop: Sequence[str] = ()
) -> tuple[list[Token], str | None]:
    """All tokens that come out, and the stop string. Checks that text and tokens stay together."""
    detokenizer = Detokenizer(fast, prompt, stop)
    tokens: list[Token] = []
    for i in ids:
        tokens += (released := detokenizer.decode(Token(i, "")))
        assert not released or released[-1].text, "a token without text waits for the text that follows"
        if detokenizer.stopped is not None:
            return tokens, detokenizer.stopped
        held = [t.text for t in detokenizer._pending]
        assert not any(s in "".join(held) for s in stop)
    return [*tokens, *detokenizer.flush()], None


def text_of(tokens: Sequence[Token]) -> str:
    return "".join(t.text for t in tokens)


@given(IDS, IDS)
def test_any_ids_stream_to_the_text_that_the_tokenizer_decodes(
    fast_tokenizer: Tokenizer, prompt: list[int], ids: list[int]
) -> None:
    tokens, _ = stream(fast_tokenizer, ids)
    whole = fast_tokenizer.decode(ids)
    assert [t.id for t in tokens] == ids
    assert whole.startswith(text_of(tokens))
    assert set(whole[len(text_of(tokens)) :]) <= {"�"}, "only an incomplete character is left out"

    continued, _ = stream(fast_tokenizer, ids, prompt=prompt)
    before, after = fast_tokenizer.decode(prompt), fast_tokenizer.decode([*prompt, *ids])
    assert after.rstrip("�") == (before.rstrip("�") + text_of(continued)).rstrip("�"), (
        "the output completes the prompt's last character"
    )


@given(IDS, IDS, STOPS, st.booleans())
def test_known_texts_of_tokens_change_no_token(
    fast_tokenizer: Tokenizer, prompt: list[int], ids: list[int], stop: list[str], skips: bool
) -> None:
    """Neither inside of split characters nor behind special tokens."""
    special, known = SpecialTokens(skips, spaces_between_special_tokens=False), WholeTexts(fast_tokenizer)
    usual = Detokenizer(fast_tokenizer, prompt, stop, special)
    fast = Detokenizer(fast_tokenizer, prompt, stop, special, known)
    for i in ids:
        assert fast.decode(Token(i, "")) == usual.decode(Token(i, ""))
        if usual.stopped is not None:
            break
    assert (fast.stopped, fast.flush()) == (usual.stopped, usual.flush())


def test_only_tokens_of_whole_characters_have_known_texts(
    fast_tokenizer: Tokenizer, sentencepiece: Tokenizer
) -> None:
    known = WholeTexts(fast_tokenizer)
    texts = {fast_tokenizer.id_to_token(i): known[i] for i in range(fast_tokenizer.get_vocab_size())}
    assert texts["a"] == "a"
    assert texts["Ġ"] == " "
    assert texts["Ń"] == "", "a byte in the middle of a character"
    assert not any(texts[name] for name in texts if name.startswith("<|"))
    assert not any(WholeTexts(sentencepiece)[i] for i in range(20)), "the text depends on what is before"


@given(IDS, IDS, STOPS, st.integers(0, 30))
def test_after_a_rewind_withdrawn_tokens_leave_no_trace(
    fast_tokenizer: Tokenizer, ids: list[int], withdrawn: list[int], stop: list[str], num_kept: int
) -> None:
    """But returned tokens do not come again, and no stop string ends within the kept ones."""
    num_kept = min(num_kept, len(ids))
    straight = Detokenizer(fast_tokenizer, (5, 6, 7), stop)
    before = [t for i in ids[:num_kept] for t in straight.decode(Token(i, ""), may_stop=False)]
    detour = straight.rewound([5, 6, 7, *ids[:num_kept]], num_kept)
    for i in withdrawn:
        if detour.stopped is None:
            detour.decode(Token(i, ""))
    back = detour.rewound([5, 6, 7, *ids[:num_kept]], num_kept)
    expected, given = list(before), list(before) + list(straight._pending)
    for i in ids[num_kept:]:
        if straight.stopped is None:
            assert back.stopped is None
            expected += straight.decode(Token(i, ""))
            given += back.decode(Token(i, ""))
    assert back.stopped == straight.stopped
    if straight.stopped is None:
        expected += straight.flush()
        given += back.flush()
    # A stop string that began in the kept tokens ends the output.
    assert [(t.id, t.text) for t in given[num_kept:]] == [(t.id, t.text) for t in expected[num_kept:]]


@given(TEXTS)
def test_a_token_arrives_with_the_text_that_it_completes(fast_tokenizer: Tokenizer, text: str) -> None:
    raw = fast_tokenizer.encode(text, add_special_tokens=False)
    tokens, _ = stream(fast_tokenizer, raw.ids)
    num_bytes = end = 0
    data = text.encode()
    for token, (_, last) in zip(tokens, raw.offsets, strict=True):
        end += len(token.text)
        num_bytes = len(text[:end].encode())
        assert text[:end] == data[:num_bytes].decode()
        assert end <= last
    assert end == len(text)


@given(TEXTS, STOPS)
@example("aab", ["ab"])
@example("abc.", ["b", "abcd"])
@example("é", ["é"])
def test_stop_strings_are_found_wherever_they_are_and_no_part_is_delivered(
    fast_tokenizer: Tokenizer, text: str, stop: list[str]
) -> None:
    ids = fast_tokenizer.encode(text, add_special_tokens=False).ids
    tokens, stopped = stream(fast_tokenizer, ids, stop=stop)
    matches = [(begin + len(s), begin, s) for s in stop if (begin := text.find(s)) >= 0]
    if not matches:
        assert (text_of(tokens), stopped) == (text, None)
        return
    _, begin, expected = min(matches)
    assert (text_of(tokens), stopped) == (text[:begin], expected)
    assert [t.id for t in tokens if t.id is not None] == ids[: sum(t.id is not None for t in tokens)]
    assert all(t.id is not None for t in tokens[:-1]), "only the last can be cut short"


def test_a_stop_string_that_may_not_stop_yet_is_delivered(fast_tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(fast_tokenizer, (), ["ab"])
    a, b = (fast_tokenizer.token_to_id(c) for c in "ab")
    released = [detokenizer.decode(Token(i, ""), may_stop=n > 2) for n, i in enumerate((a, b, a, b))]
    assert [text_of(r) for r in released] == ["", "ab", "", ""]
    assert detokenizer.stopped == "ab"


def test_a_token_that_a_stop_string_cuts_loses_its_identity(fast_tokenizer: Tokenizer) -> None:
    hello, world = fast_tokenizer.encode(" hello world").ids
    detokenizer = Detokenizer(fast_tokenizer, (), ["lo w"])
    assert detokenizer.decode(Token(hello, "", b" hello", -0.5)) == ()
    assert detokenizer.decode(Token(world, "", b" world", -0.5)) == (Token(None, " hel"),)
    assert detokenizer.stopped == "lo w"


def test_special_tokens_have_no_text_and_wait(fast_tokenizer: Tokenizer) -> None:
    hello = fast_tokenizer.token_to_id("Ġhello")
    detokenizer = Detokenizer(fast_tokenizer)
    assert detokenizer.decode(Token(2, "")) == ()
    assert detokenizer.decode(Token(hello, "")) == (Token(2, ""), Token(hello, " hello"))


@pytest.fixture(scope="module")
def sentencepiece() -> Tokenizer:
    """Like Llama 2's: words begin with ▁, unknown characters are bytes."""
    pieces = ["<unk>", "<s>", "▁", "▁hello", "▁world", "!", *(f"<0x{i:02X}>" for i in range(256))]
    tokenizer = Tokenizer(
        models.Unigram([(p, -float(i)) for i, p in enumerate(pieces)], 0, byte_fallback=True)
    )
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    return tokenizer


@pytest.mark.parametrize(
    ("prompt", "expected"), [([], "hello world"), ([1], "hello world"), ([1, 3], " hello world")]
)
def test_a_first_word_s_space_depends_on_the_prompt(
    sentencepiece: Tokenizer, prompt: list[int], expected: str
) -> None:
    assert text_of(stream(sentencepiece, [3, 4], prompt=prompt)[0]) == expected


@given(st.lists(st.integers(2, 261), max_size=12))
@example([6 + ord("a"), 6 + 0xFF, 5])
def test_byte_tokens_that_do_not_fit_together_do_no_harm(sentencepiece: Tokenizer, ids: list[int]) -> None:
    tokens, _ = stream(sentencepiece, ids)
    assert [t.id for t in tokens] == ids
    valid = "".join(c for c in sentencepiece.decode(ids) if c != "�").strip()
    assert set(text_of(tokens)) >= set(valid) - {" "}


def test_byte_tokens_become_whole_characters(sentencepiece: Tokenizer) -> None:
    ids = [3, *(6 + byte for byte in "你好".encode()), 5]
    tokens, _ = stream(sentencepiece, ids)
    assert [t.text for t in tokens] == ["hello", "", "", "你", "", "", "好", "!"]


def test_the_window_does_not_grow(fast_tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(fast_tokenizer, (), ["no such text"])
    for i in fast_tokenizer.encode("hello world " * 200).ids:
        detokenizer.decode(Token(i, ""))
    assert len(detokenizer._pending) <= 1
    assert len(detokenizer._texts._window) <= 2


def test_bytes_that_never_become_a_character_are_not_held_for_ever(fast_tokenizer: Tokenizer) -> None:
    detokenizer, ids = Detokenizer(fast_tokenizer), [fast_tokenizer.token_to_id("Ń")] * 100
    tokens = [token for i in ids for token in detokenizer.decode(Token(i, ""))]
    assert len(tokens) > 60
    assert text_of([*tokens, *detokenizer.flush()]) == "�" * len(tokens)
    assert len(detokenizer._texts._window) < 100
