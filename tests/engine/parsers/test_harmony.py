"""The harmony format, with the examples of its published description."""

import pytest
from hypothesis import given

from engine.parsers import Parsers
from engine.parsers.harmony import MARKERS
from engine.protocol import Delta
from tests.engine.parsers.streams import CUTS, parse, said, split_specials, tokenised, tokens_of, untold

GPTOSS = Parsers("openai_gptoss", "openai")
ANSWER = (
    '<|channel|>analysis<|message|>User asks: "What is 2 + 2?" Simple.<|end|>'
    "<|start|>assistant<|channel|>final<|message|>2 + 2 = 4.<|return|>"
)
CALL = (
    "<|channel|>analysis<|message|>Need to use function get_weather.<|end|><|start|>assistant<|channel|>"
    'commentary to=functions.get_weather <|constrain|>json<|message|>{"location":"San Francisco"}<|call|>'
)
PREAMBLE = (
    "<|channel|>commentary<|message|>**Plan**: one step<|end|><|start|>assistant<|channel|>commentary"
    ' to=functions.f<|constrain|>json<|message|>{"a": 1}<|call|>'
)
EARLY = ' to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>'
TWO = (
    "<|channel|>commentary to=functions.f<|message|>{}<|call|>"
    "<|start|>assistant to=functions.g<|channel|>analysis code<|message|>{}<|call|>"
)
EMPTY = "<|channel|>commentary to=functions.f<|message|><|call|>"


@pytest.mark.parametrize("special", [MARKERS, ()], ids=["special tokens", "plain text"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ANSWER, [("reasoning", 'User asks: "What is 2 + 2?" Simple.'), ("content", "2 + 2 = 4.")]),
        (
            CALL,
            [
                ("reasoning", "Need to use function get_weather."),
                ("get_weather", '{"location":"San Francisco"}'),
            ],
        ),
        (PREAMBLE, [("content", "**Plan**: one step"), ("f", '{"a": 1}')]),
        (EARLY, [("f", '{"a": 1}')]),
        (TWO, [("f", "{}"), ("g", "{}")]),
        (EMPTY, [("f", "{}")]),
    ],
)
def test_each_message_is_on_its_channel(
    text: str, expected: list[tuple[str, str]], special: tuple[str, ...]
) -> None:
    @given(cuts=CUTS)
    def check(cuts: list[int]) -> None:
        made = parse(GPTOSS, tokenised(split_specials(text, special, cuts), special))
        assert said(made) == expected
        assert made[-1].finish_reason == ("tool_calls" if "functions" in text else "stop")
        ids = [t.id for _, t in tokens_of(made) if t.id is not None]
        assert ids == sorted(ids)

    check()


def test_either_name_alone_reads_the_format() -> None:
    for parsers in (Parsers(reasoning="openai_gptoss"), Parsers(tool_calls="openai")):
        assert said(parse(parsers, untold([ANSWER]))) == said(parse(GPTOSS, untold([ANSWER])))


def test_text_without_a_header_is_content() -> None:
    assert said(parse(GPTOSS, untold(["2 + 2 ", "= 4"]))) == [("content", "2 + 2 = 4")]
    assert said(parse(GPTOSS, untold(["assist"]))) == [("content", "assist")]


def test_an_unknown_header_is_content() -> None:
    text = "<|channel|>analysis and a secret<|message|>Hm"
    assert said(parse(GPTOSS, untold([text]))) == [("content", text)]
    made = parse(GPTOSS, tokenised(split_specials(text, MARKERS, ()), MARKERS))
    assert said(made) == [("content", "analysis and a secretHm")]


def test_a_header_without_an_end_is_not_held_for_ever() -> None:
    made = parse(GPTOSS, untold(["<|channel|>", *["on and on "] * 50]))
    assert len(made) > 10
    assert said(made)[0][1].endswith("on and on ")


def test_a_message_that_is_cut_short_was_streamed() -> None:
    text = CALL.removesuffix('Francisco"}<|call|>')
    made = parse(GPTOSS, [Delta(text=text), Delta(finish_reason="length")])
    assert said(made)[-1] == ("get_weather", '{"location":"San ')
    assert made[-1].finish_reason == "length"


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>commentary to=SECRET <|message|>{}",
        "<|channel|>analysis to=hunter2 code<|message|>{}",
        "<|channel|>commentary to=browser.open<|message|>{}",
    ],
)
def test_a_message_to_another_recipient_is_content(text: str) -> None:  # contract 5.3
    assert said(parse(GPTOSS, untold([text]))) == [("content", text)]
