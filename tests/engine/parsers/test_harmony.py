"""The harmony format, with the examples of its published description."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.parsers import Parsers
from engine.parsers.harmony import MARKERS, MAX_WORDS
from engine.protocol import Delta
from tests.engine.parsers.streams import (
    CUTS,
    cut_at,
    parse,
    said,
    split_specials,
    tokenised,
    tokens_of,
    untold,
)
from tests.helpers import examples

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


def test_unknown_words_of_a_header_are_on_no_channel() -> None:  # contract 5.3
    text = "<|channel|>analysis and a secret<|message|>Hm"
    assert said(parse(GPTOSS, untold([text]))) == [("reasoning", "Hm")]
    made = parse(GPTOSS, tokenised(split_specials(text, MARKERS, ()), MARKERS))
    assert said(made) == [("reasoning", "Hm")]
    assert not [token for _, token in tokens_of(made) if b"secret" in token.raw]


def test_a_header_without_an_end_is_not_held_for_ever() -> None:
    made = parse(GPTOSS, untold(["<|channel|>", *["on and on "] * 50]))
    assert len(made) > 10
    assert said(made)[0][1].endswith("on and on ")


@pytest.mark.parametrize("begin", ["", "assistant", "to=functions.f", "assistant to=functions.f"])
def test_blanks_between_messages_are_not_held_for_ever(begin: str) -> None:
    pieces = ["<|channel|>final<|message|>a<|end|>" + begin, *[" "] * MAX_WORDS * 2]
    made = parse(GPTOSS, untold(pieces))
    assert said(made) == [("content", "a" + begin + " " * MAX_WORDS * 2)]
    assert max(len(delta.text) for delta in made) <= len(begin) + MAX_WORDS + 1


@pytest.mark.parametrize("end", ["", CALL])
@pytest.mark.parametrize("begin", ["", "assistant", " to=functions.f"])
@given(num=st.integers(MAX_WORDS - 18, MAX_WORDS + 2), cuts=CUTS)
def test_many_blanks_between_messages_mean_the_same_wherever_they_are_cut(
    begin: str, end: str, num: int, cuts: list[int]
) -> None:
    text = "<|channel|>final<|message|>a<|end|>" + begin + " " * num + end
    assert said(parse(GPTOSS, untold(cut_at(text, cuts)))) == said(parse(GPTOSS, untold(list(text))))


def test_a_message_that_is_cut_short_was_streamed() -> None:
    text = CALL.removesuffix('Francisco"}<|call|>')
    made = parse(GPTOSS, [Delta(text=text), Delta(finish_reason="length")])
    assert said(made)[-1] == ("get_weather", '{"location":"San ')
    assert made[-1].finish_reason == "length"


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("<|channel|>commentary to=functions.f <|constrain|>json", "f"),
        ("<|channel|>commentary  to=functions.f <|constrain|>json", "f"),
        ("<|channel|>commentary\nto=functions.f\n<|constrain|>\njson\n", "f"),
        ("<|channel|>commentary to=f <|constrain|>json", "f"),
        ("<|channel|>commentary to=browser.open code", "browser.open"),
        ("<|channel|>commentary to=functions.f<|channel|>json", "f"),
        ("<|channel|>commentary to=functions.f <|constrain|>JSON", "f"),
        ("<|channel|>commentary <|constrain|>json to=functions.f", "f"),
        ("<|channel|>commentary<|constrain|>to=functions.f json", "f"),
        ("<|channel|>commentary functions.f <|constrain|>json", "f"),
        ("<|channel|>Commentary TO=functions.f", "f"),
        ("<|channel|>––commentary to=functions.f ", "f"),
        ("<|channel|>commentary to=functions.f to=functions.f", "f"),
        ("<|channel|>to=functions.f commentary", "f"),
        ("<|channel|>analysis to=functions.f code", "f"),
        (" to=functions.f<|channel|>commentary", "f"),
        ("<|constrain|>json to=functions.f", "f"),
        ("commentary to=functions.f <|constrain|>json", "f"),
        (" commentary to=functions.f", "f"),
    ],
)
def test_the_recipient_may_stand_anywhere_in_a_header(header: str, name: str) -> None:
    """At the output's beginning, whose prompt has the role, and in later messages."""
    call = header + '<|message|>{"a": 1}<|call|>'
    for text, before in (
        (call, []),
        ("<|start|>assistant" + call, []),
        (f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{call}", [("reasoning", "Hm.")]),
        (f"<|channel|>analysis<|message|>Hm.<|start|>assistant{call}", [("reasoning", "Hm.")]),
    ):
        for special in ((), MARKERS):
            made = parse(GPTOSS, tokenised(split_specials(text, special, range(99)), special))
            assert said(made) == [*before, (name, '{"a": 1}')], text
            assert made[-1].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Okay.<|start|>assistant<|channel|>final<|message|>Hi.", [("content", "Okay.Hi.")]),
        ("<|channel|>analysis<|message|>A<|end|>So.<|channel|>final<|message|>B", "A/So.B"),
        ("<|channel|>analysis<|message|>A<|end|>\n\n<|start|>assistant<|channel|>final<|message|>B", "A/B"),
        ("<|channel|>analysis<|message|>A<|end|>assistant<|channel|>final<|message|>B", "A/B"),
        ("<|start|><|start|>assistant<|channel|>analysis<|message|>A", "A/"),
        ("<|channel|>analysis<|message|>A<|channel|>final<|message|>B", "A/B"),
        ("<|channel|>analysis<|message|>A<|message|>a<|end|>", "Aa/"),
        ("<|channel|>analysis<|message|>A<|constrain|>x<|message|>a<|end|>", "Aa/"),
        ("<|channel|>analysis A<|end|><|start|>assistant<|channel|>final B<|return|>", " A/ B"),
        ("<|channel|>analysis A<|start|>assistant<|channel|>final<|message|>B<|return|>", " A/B"),
        ("<|channel|>ANALYSIS<|message|>A<|end|><|channel|>Final<|message|>B<|return|>", "A/B"),
        ("<|channel|>odd analysis<|message|>A<|end|><|channel|>json<|message|>B<|return|>", "A/B"),
        ("<|channel|>analysis<|channel|>json<|message|>A", "A/"),
        ("<|channel|>analysis", "/"),
        ("<|channel|>commentary to=<|constrain|>json<|message|>B<|call|>", "/B"),
        ("<|start|>assistant<|message|>B<|end|>", "/B"),
        ("<|start|>functions.f to=assistant<|channel|>commentary<|message|>B<|end|>", "/B"),
        ("<|message|>B<|end|><|end|><|return|>", "/B"),
        ("go to<|channel|>final<|message|> B", "/go to B"),
        ("analysis<|message|>A<|end|>assistantfinal<|message|>B", "A/B"),
        (" analysis<|message|>A<|end|>\nassistant final json<|constrain|>json<|message|>B", "A/B"),
        ("analysis<|channel|>final<|message|>B", "/B"),
        ("finally<|message|>B", "/finallyB"),
        ("The final<|message|>B", "/The finalB"),
        ("final", "/final"),
        ("analysis<|end|>B", "/analysisB"),
    ],
)
def test_a_later_marker_begins_a_message_anew(text: str, expected: str | list[tuple[str, str]]) -> None:
    if isinstance(expected, str):
        reasoning, content = expected.split("/")
        expected = [(name, one) for name, one in (("reasoning", reasoning), ("content", content)) if one]
    for pieces in ([text], list(text)):
        assert said(parse(GPTOSS, untold(pieces))) == expected


def test_a_call_without_its_message_marker_is_a_call() -> None:
    for type_word in ("", "json", "<|constrain|>json"):
        text = f'<|channel|>commentary to=functions.f {type_word}{{"a": 1}}<|call|>'
        [(name, arguments)] = said(parse(GPTOSS, untold(list(text))))
        assert (name, arguments.strip()) == ("f", '{"a": 1}')


@pytest.mark.parametrize("body", ["", " \n"])
def test_a_call_without_arguments_has_an_empty_object(body: str) -> None:
    header = "<|channel|>commentary to=functions.f<|message|>"
    for end in ("<|call|>", "<|end|>", "<|start|>assistant", ""):
        assert said(parse(GPTOSS, untold(list(header + body + end)))) == [("f", "{}")]
    cut = [Delta(text=header + body), Delta(finish_reason="length")]
    assert said(parse(GPTOSS, cut)) == [], "the arguments were cut, and may have been others"


def test_no_token_reveals_a_recipient_whose_message_does_not_come() -> None:  # contract 5.3
    pieces = ["<|start|>", "assistant", " to=", "SECRET", "<|start|>", "assistant", "<|channel|>", "final"]
    made = parse(GPTOSS, tokenised([*pieces, "<|message|>", "Hi"], MARKERS))
    assert said(made) == [("content", "Hi")]
    assert not [token for _, token in tokens_of(made) if b"SECRET" in token.raw]


BODIES = st.text("abt=. {}\n<é🎉", max_size=12)
HEADER_WORDS = (
    *("assistant", " to=functions.f", " to=g", "to=", "analysis", "final", "commentary", "json", "JSON"),
    *(" ", "\n", "––", "user", "functions.f", "odd"),
)
SOUP = st.lists(st.sampled_from(MARKERS) | st.sampled_from(HEADER_WORDS) | BODIES, max_size=14)


@examples(300)
@given(pieces=SOUP, cuts=CUTS)
def test_no_marker_of_any_soup_is_on_a_channel(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    whole = parse(GPTOSS, untold([text]))
    assert (
        said(whole)
        == said(parse(GPTOSS, untold(cut_at(text, cuts))))
        == said(parse(GPTOSS, untold(list(text))))
    )
    assert not [delta for delta in whole if any(marker in delta.text for marker in MARKERS)]
    assert not [part for _, part in said(whole) if any(marker in part for marker in MARKERS)]


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["analysis", "final", "commentary", "call"]),
        st.sampled_from(["", " ", "\n", "<|constrain|>json", "<|channel|>json", " odd"]),
        st.text("xyz. é", min_size=1, max_size=8).map(str.strip).filter(bool),
        st.sampled_from(["<|end|>", "<|call|>", "<|return|>", "", "<|end|>\n"]),
        st.sampled_from(["<|start|>assistant", "<|start|><|start|>assistant", "<|start|>"]),
    ),
    max_size=6,
)


@examples(300)
@given(messages=MESSAGES, cuts=CUTS)
def test_every_body_is_whole_on_its_own_channel(messages: list[tuple[str, ...]], cuts: list[int]) -> None:
    text, expected = "", {"reasoning": "", "content": ""}
    calls = []
    for kind, odd, body, end, start in messages:
        channel = "commentary to=functions.f" if kind == "call" else kind
        text += f"{start}<|channel|>{channel}{odd}<|message|>{body}{end}"
        if kind == "call":
            calls.append(body)
        else:
            expected["reasoning" if kind == "analysis" else "content"] += body
    made = parse(GPTOSS, untold(cut_at(text, cuts)))
    got = {"reasoning": "", "content": ""}
    got_calls: dict[int, str] = {}
    for delta in made:
        if delta.tool_call:
            got_calls[delta.tool_call.index] = got_calls.get(delta.tool_call.index, "") + delta.text
        else:
            got[delta.channel] += delta.text
    assert (got, list(got_calls.values())) == (expected, calls)
