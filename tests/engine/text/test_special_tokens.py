"""Special tokens in a text: with `skip_special_tokens: false` they are a part of it (contract 2.4, 8.4)."""

import copy
import random
import re
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from engine.parsers import Parsers
from engine.protocol import Delta, Token
from engine.text.detokenizer import Detokenizer, SpecialTokens
from hooks import Chunk, Verdict, emit, redact
from tests.engine.conftest import SPECIAL
from tests.helpers import Script, guard_all, ids_of, make_request, pipeline_of, text_of

KEPT = SpecialTokens(skip_special_tokens=False)


def texts_of(fast: Tokenizer, ids: list[int], **options: Any) -> list[str]:
    """The text that each id completes."""
    detokenizer = Detokenizer(fast, **options)
    tokens = [t for i in ids for t in detokenizer.decode(Token(i, ""))] + [*detokenizer.flush()]
    assert [t.id for t in tokens] == ids
    return [t.text for t in tokens]


def test_a_special_token_has_its_text_only_if_asked_for(fast_tokenizer: Tokenizer) -> None:
    ids = fast_tokenizer.encode("hello<|im_end|> world<s>", add_special_tokens=False).ids
    assert "".join(texts_of(fast_tokenizer, ids)) == "hello world"
    kept = texts_of(fast_tokenizer, ids, special=KEPT)
    assert "".join(kept) == "hello<|im_end|> world<s>"
    assert [text for text in kept if "<" in text] == ["<|im_end|>", "<s>"]


def test_the_texts_joined_are_those_of_the_tokenizer(fast_tokenizer: Tokenizer) -> None:
    rng = random.Random(4)
    for _ in range(200):
        ids = [rng.choice([rng.randrange(4), rng.randrange(400)]) for _ in range(rng.randint(1, 30))]
        ids = [i for i in ids if fast_tokenizer.id_to_token(i) is not None]
        joined = "".join(texts_of(fast_tokenizer, ids, special=KEPT))
        whole = fast_tokenizer.decode(ids, skip_special_tokens=False)
        assert joined == whole.rstrip("\ufffd") or "\ufffd" in whole


def test_a_special_token_can_end_a_stop_string(fast_tokenizer: Tokenizer) -> None:  # contract 2.7
    ids = fast_tokenizer.encode("hello<|im_end|>", add_special_tokens=False).ids
    detokenizer = Detokenizer(fast_tokenizer, stop=["o<|im_end|>"], special=KEPT)
    text = "".join(t.text for i in ids for t in detokenizer.decode(Token(i, "")))
    assert (text, detokenizer.stopped) == ("hell", "o<|im_end|>")


def test_a_rewind_keeps_the_way_of_special_tokens(fast_tokenizer: Tokenizer) -> None:  # contract 8.3
    ids = fast_tokenizer.encode("hello<|im_end|>", add_special_tokens=False).ids
    rewound = Detokenizer(fast_tokenizer, (5,), special=KEPT).rewound([5, *ids], len(ids))
    (end,) = rewound.decode(Token(fast_tokenizer.token_to_id("<s>"), ""))
    assert end.text == "<s>"


@pytest.fixture(scope="module")
def spaced() -> Tokenizer:
    """A tokenizer whose decoder writes a space before each word, special tokens included."""
    words = ["[UNK]", "[A]", "[B]", "one", "two", "##s"]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.add_special_tokens([AddedToken(text) for text in ("[A]", "[B]")])
    return tokenizer


@pytest.mark.parametrize(
    ("special", "text"),
    [
        (SpecialTokens(), "one twos two"),
        (SpecialTokens(spaces_between_special_tokens=False), "one twos two"),
        (KEPT, "one [A] [B] [A] twos [B] two"),
        (KEPT._replace(spaces_between_special_tokens=False), "one [A][B][A] twos [B] two"),
    ],
)
def test_spaces_between_special_tokens_can_be_left_out(
    spaced: Tokenizer, special: SpecialTokens, text: str
) -> None:
    assert "".join(texts_of(spaced, [3, 1, 2, 1, 4, 5, 2, 4], special=special)) == text


async def test_an_output_has_the_text_of_special_tokens(engine: Any) -> None:
    biased = {"logit_bias": dict.fromkeys(range(4), 9.0), "max_tokens": 20, "ignore_eos": True}
    (plain,) = await engine.complete((5, 6), **biased)
    (kept,) = await engine.complete((5, 6), **biased, extra={"skip_special_tokens": False})
    assert kept.ids == plain.ids
    special = [t for t in kept.tokens if t.id in range(4)]
    assert {t.text for t in special} <= set(SPECIAL)
    assert all(t.text.encode() == t.raw for t in special)
    assert len(special) > 1
    assert not any(text in plain.text for text in SPECIAL)


async def test_hooks_see_the_text_of_special_tokens(engine: Any) -> None:  # contract 2.4, 3.6, 8.4
    def cut(chunk: Chunk) -> Verdict:
        spans = [(*found.span(), "") for found in re.finditer("</s>", chunk.pending)]
        return redact(spans) if spans else emit(chunk.pending)

    extra = {"skip_special_tokens": False}
    (answer,) = await engine.complete(
        (5, 6), logit_bias=dict.fromkeys(range(4), 9.0), max_tokens=40, ignore_eos=True, extra=extra
    )
    hook = Script(cut)
    released = await guard_all(pipeline_of(hook), answer.deltas)
    assert "".join(chunk.text_diff for chunk in hook.chunks) == answer.text
    assert "</s>" in answer.text
    assert text_of(released) == answer.text.replace("</s>", "")
    assert 1 in answer.ids
    assert 1 not in ids_of(released)
    assert not any(token.raw == b"</s>" for delta in released for token in delta.tokens)


@pytest.mark.parametrize("special", [SpecialTokens(), KEPT])
def test_parsers_read_markers_with_and_without_text(
    special: SpecialTokens, fast_tokenizer: Tokenizer
) -> None:  # contract 5.4
    fast = copy.deepcopy(fast_tokenizer)
    markers = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    fast.add_special_tokens([AddedToken(text, special=True) for text in markers])
    text = '<think>why</think>hello <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    tool = {"type": "function", "function": {"name": "f"}}
    parsers = Parsers("qwen3", "hermes").open(make_request(tools=(tool,)))
    detokenizer, deltas = Detokenizer(fast, special=special), list[Delta]()
    for i in fast.encode(text, add_special_tokens=False).ids:
        tokens = detokenizer.decode(Token(i, "", (fast.id_to_token(i) or "").encode()))
        deltas.append(Delta(text="".join(t.text for t in tokens), tokens=tokens))
    last = detokenizer.flush()
    deltas.append(Delta(text="".join(t.text for t in last), tokens=last, finish_reason="stop"))
    for parser in parsers:
        deltas = [made for delta in deltas for made in parser.feed(delta)]
    found = {channel: text_of(deltas, channel) for channel in ("reasoning", "content", "tool_call")}
    assert found == {"reasoning": "why", "content": "hello ", "tool_call": '{"a": 1}'}


async def test_the_token_that_ends_an_output_has_no_text(engine: Any) -> None:
    for fields in ({"logit_bias": {1: 200.0}}, {"logit_bias": {2: 200.0}, "stop_token_ids": (2,)}):
        (answer,) = await engine.complete(
            (5, 6), max_tokens=9, extra={"skip_special_tokens": False}, **fields
        )
        assert (answer.text, answer.finish_reason) == ("", "stop")


async def test_beams_have_the_text_of_special_tokens(engine: Any) -> None:
    extra = {"use_beam_search": True, "skip_special_tokens": False}
    prompts = [(5, i) for i in range(6, 30)]
    answers = await engine.complete(*prompts, n=2, max_tokens=12, ignore_eos=True, extra=extra)
    tokens = [token for answer in answers for token in answer.tokens]
    assert any(token.id in range(4) for token in tokens)
    assert all(token.text.endswith(SPECIAL[token.id]) for token in tokens if token.id in (0, 2, 3))


async def test_an_echo_of_ids_has_the_text_of_its_special_tokens(engine: Any) -> None:
    prompt = (0, 5, 2, 6)
    for skips, shown in ((True, ["", ""]), (False, ["<s>", "<|im_start|>"])):
        extra = {"skip_special_tokens": skips}
        (answer,) = await engine.complete(prompt, echo=True, max_tokens=1, extra=extra)
        assert [t.text for t in answer.echo][::2] == shown
        text = "a <|im_end|> b"
        (answer,) = await engine.complete(text, echo=True, max_tokens=1, extra=extra)
        assert "".join(t.text for t in answer.echo) == text
