"""Parsers of reasoning: the text between a family's markers is on the reasoning channel."""

from dataclasses import replace

import pytest

from engine.parsers import REASONING_PARSERS, Parsers
from engine.parsers.reasoning import REASONING_MARKERS
from engine.protocol import Delta, PromptScores
from tests.engine.parsers.streams import cut_at, parse, said, tokenised, tokens_of, untold
from tests.helpers import make_token

QWEN3 = Parsers(reasoning="qwen3")
R1 = Parsers(reasoning="deepseek_r1")


class PromptEnd:
    """A tokenizer that decodes every prompt to the same end."""

    def __init__(self, text: str) -> None:
        self.text = text

    def decode(self, ids: object) -> str:
        return self.text


@pytest.mark.parametrize("name", sorted(REASONING_MARKERS))
def test_every_family_splits_at_its_markers(name: str) -> None:
    markers = REASONING_MARKERS[name]
    text = f"\n{markers.start[0]}Hm, <b>.{markers.end[-1]}\n\nAn answer."
    expected = [("reasoning", "Hm, <b>."), ("content", "\n\nAn answer.")]
    assert said(parse(Parsers(reasoning=name), untold(cut_at(text, range(0, 99, 3))))) == expected
    assert name in REASONING_PARSERS


def test_an_output_may_begin_inside_reasoning() -> None:
    assert said(parse(R1, untold(["Hm.</think>", "Yes."]))) == [("reasoning", "Hm."), ("content", "Yes.")]
    assert said(parse(R1, untold(["<think>Hm.</think>Yes."]))) == [("reasoning", "Hm."), ("content", "Yes.")]


@pytest.mark.parametrize(
    ("parsers", "prompt_end", "channel"),
    [
        (QWEN3, "assistant\n", "content"),
        (QWEN3, "assistant\n<think>\n", "reasoning"),
        (QWEN3, "assistant\n<think>\n\n</think>\n\n", "content"),
        (R1, "<|Assistant|>", "reasoning"),
        (R1, "<|Assistant|><think>\n", "reasoning"),
        (R1, "<|Assistant|><think>\n\n</think>", "content"),
        (QWEN3, "user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n", "content"),
    ],
)
def test_the_prompts_end_shows_where_the_output_begins(
    parsers: Parsers, prompt_end: str, channel: str
) -> None:
    deltas = untold(["Hm", "."])
    scores = PromptScores((), ((0.5,),))
    deltas[0] = replace(deltas[0], prompt_token_ids=(1, 2, 3), prompt_scores=scores)
    made = parse(parsers, deltas, tokenizer=PromptEnd(prompt_end))
    assert said(made) == [(channel, "Hm.")]
    assert [d.prompt_token_ids for d in made] == [(1, 2, 3), *[None] * (len(made) - 1)]
    assert [d.prompt_scores for d in made] == [scores, *[None] * (len(made) - 1)]


def test_an_answer_may_speak_of_the_markers() -> None:
    for text in ("Write <think> first.", "<think>a</think>Write <think> or </think>."):
        assert said(parse(QWEN3, untold(list(text))))[-1] == ("content", text.split("a</think>")[-1])


def test_an_unfinished_marker_is_text_again() -> None:
    assert said(parse(QWEN3, untold(["<thi"]))) == [("content", "<thi")]
    assert said(parse(QWEN3, untold(["<think>Hm</thi"]))) == [("reasoning", "Hm</thi")]


def test_text_goes_on_as_soon_as_it_can_be_no_marker() -> None:
    made = parse(QWEN3, untold(["<think>", "Hm</", "thin", "g</thi", "nk>Yes <", "b"]))
    assert [d.text for d in made] == ["Hm", "</thin" + "g", "Yes <", "b", ""]


def test_a_markers_token_goes_with_the_text_that_follows() -> None:
    made = parse(QWEN3, tokenised(["<think>", "Hm", "</think>", "Yes"]))
    assert [(d.channel, [(t.id, t.text) for t in d.tokens]) for d in made] == [
        ("reasoning", [(0, ""), (1, "Hm")]),
        ("content", [(2, ""), (3, "Yes")]),
        ("content", [(9999, "")]),
    ]
    assert all(t.logprob is not None for _, t in tokens_of(made))


def test_a_special_token_is_known_by_its_bytes() -> None:
    magistral = Parsers(reasoning="mistral")
    made = parse(magistral, tokenised(["[THINK]", "Hm", "[/THINK]", "Yes"], ["[THINK]", "[/THINK]"]))
    assert said(made) == [("reasoning", "Hm"), ("content", "Yes")]
    assert [t.id for _, t in tokens_of(made)] == [0, 1, 2, 3, 9999]


def test_a_token_that_is_part_marker_moves_with_its_text_as_one_piece() -> None:
    made = parse(QWEN3, tokenised(["<think>H", "m</think>"]))
    assert [(c, t.id, t.text) for c, t in tokens_of(made)] == [
        *(("reasoning", 0, ""), ("reasoning", None, "H")),
        *(("reasoning", 1, ""), ("reasoning", None, "m")),
        ("content", 9999, ""),
    ]


def test_a_token_on_both_sides_of_a_marker_is_not_told() -> None:
    made = parse(QWEN3, tokenised(["<think>", "Hm</think>Yes", "!"]))
    assert [(c, t.id, t.text) for c, t in tokens_of(made)] == [
        *(("reasoning", 0, ""), ("reasoning", None, "Hm"), ("content", None, "Yes")),
        *(("content", 2, "!"), ("content", 9999, "")),
    ]


def test_tokens_that_share_a_text_are_not_read_twice() -> None:
    tokens = (make_token("[THINK]", 1), make_token("Hm", 2))
    shared = (tokens[0]._replace(text=""), tokens[1]._replace(text="[THINK]Hm"))
    made = parse(
        Parsers(reasoning="mistral"), [Delta(text="[THINK]Hm", tokens=shared), Delta(finish_reason="stop")]
    )
    assert said(made) == [("reasoning", "Hm")]
