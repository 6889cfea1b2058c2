"""The cuts of a stream and its tokens do not change a parser's result."""

from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.parsers import REASONING_PARSERS, TOOL_CALL_PARSERS, Parsers
from tests.engine.parsers.streams import (
    CUTS,
    SIZES,
    parse,
    regrouped,
    said,
    split_specials,
    tokenised,
    tokens_of,
    untold,
)
from tests.engine.parsers.written_calls import HELD
from tests.helpers import examples

FRAGMENTS = [
    *("<think>", "</think>", "[THINK]", "[/THINK]", "<seed:think>", "</seed:think>", "<", "</", "[", "<th"),
    *("Here is my thought process:", "Here's my response:", "Here is my"),
    *("<tool_call>", "</tool_call>", "<tool_", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]a1"),
    *("<|start|>", "assistant", "<|channel|>", "analysis", "commentary", "final", " to=functions.f"),
    *("<|constrain|>json", "<|message|>", "<|end|>", "<|call|>", "<|return|>"),
    *('{"name": "f", "arguments": {"a": "}\\"{"}}', '{"parameters": {"é": [1, {}]}, "name":"gé"}'),
    *('{"name"', ":", '"f"', ",", '"arguments"', "{", "}", "]", '"', "\\", ";", "f", " ", "\n", "你好", "🎉"),
    *('{"type": "function", ', '{"other": 1}', "{}"),
    *(
        "<|channel>thought\n",
        "<channel|>",
        "<response>",
        "</response>",
        "\n</think>\n<answer>\n",
        "\n</answer>",
    ),
    *("<function=f>", "<parameter=a>1</parameter>", "</function>", "<arg_key>a</arg_key>", "f<arg_value>"),
    *(
        "</arg_value>",
        '<invoke name="f">',
        '<parameter name="a">',
        "</parameter>",
        "</invoke>",
        "[f(a=1)",
        ")",
    ),
    *(
        '<|tool_call>call:f{a:<|"|>x<|"|>}',
        "<tool_call|>",
        "<function_calls>f(",
        "</function_calls>",
        "```json",
    ),
    *("<|tool_calls_section_begin|>", "<|tool_call_begin|>f:0", "<|tool_call_argument_begin|>", "functools["),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "f<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
]
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)
SPECIAL = ("[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<tool_call>", "</think>", "[THINK]", "<|channel|>")
HARMONY_SPECIAL = (
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
)
CONFIGURED = [
    *(Parsers(reasoning=name) for name in REASONING_PARSERS),
    *(Parsers(tool_calls=name) for name in TOOL_CALL_PARSERS),
    Parsers("qwen3", "hermes"),
    Parsers("deepseek_r1", "llama3_json"),
    Parsers("mistral", "mistral"),
    Parsers("glm45", "glm45"),
    Parsers("qwen3", "qwen3_coder"),
]


@pytest.mark.parametrize("parsers", CONFIGURED, ids=str)
@examples(40)
@given(text=TEXTS, cuts=CUTS)
def test_text_cut_anywhere_is_parsed_alike(parsers: Parsers, text: str, cuts: list[int]) -> None:
    whole = parse(parsers, untold([text]))
    pieces = parse(parsers, untold(split_specials(text, (), cuts)))
    letters = parse(parsers, untold(list(text)))
    assert said(pieces) == said(whole) == said(letters)
    assert pieces[-1].finish_reason == whole[-1].finish_reason


@pytest.mark.parametrize("parsers", CONFIGURED, ids=str)
@examples(40)
@given(text=TEXTS, cuts=CUTS, sizes=SIZES)
def test_tokens_grouped_into_other_deltas_go_the_same_way(
    parsers: Parsers, text: str, cuts: list[int], sizes: list[int]
) -> None:
    deltas = tokenised(split_specials(text, SPECIAL + HARMONY_SPECIAL, cuts), SPECIAL + HARMONY_SPECIAL)
    single, grouped = parse(parsers, deltas), parse(parsers, regrouped(deltas, sizes))
    assert said(single) == said(grouped)
    assert tokens_of(single) == tokens_of(grouped)


@pytest.mark.parametrize("parsers", CONFIGURED, ids=str)
@examples(40)
@given(text=TEXTS, cuts=CUTS)
def test_tokens_stay_in_order_and_none_comes_twice(parsers: Parsers, text: str, cuts: list[int]) -> None:
    pieces = split_specials(text, (), cuts)
    made = parse(parsers, tokenised(pieces))
    assert said(made) == said(parse(parsers, untold([text])))
    ids = [token.id for _, token in tokens_of(made) if token.id is not None]
    assert ids == sorted(set(ids))
    for _, token in tokens_of(made):
        if token.id is not None and token.text:
            assert token.text == pieces[token.id], "a token comes with its whole text"


@pytest.mark.parametrize("parsers", CONFIGURED, ids=str)
@examples(40)
@given(text=TEXTS)
def test_only_markers_and_the_text_around_a_calls_arguments_are_consumed(parsers: Parsers, text: str) -> None:
    made = parse(parsers, untold([text]))
    is_held = parsers.tool_calls in HELD  # the arguments are written anew
    given_out = "".join(delta.text for delta in made if not (is_held and delta.tool_call))
    left = iter(text)
    inserted = given_out.replace("{}", "")
    assert all(character in left for character in inserted), "text comes as it was written, in order"


@pytest.mark.parametrize("parsers", CONFIGURED, ids=str)
@examples(40)
@given(text=TEXTS, cuts=CUTS)
@example(text='</think>{"name": "f", "arguments": {"a": "}\\"{"}}<think>', cuts=[])
def test_a_token_is_on_a_stream_only_if_no_other_stream_has_its_text(
    parsers: Parsers, text: str, cuts: list[int]
) -> None:
    """Otherwise a suppressed stream's ids would come out on another stream."""
    stream_of = {t.id: stream for stream, t in tokens_of(parse(parsers, tokenised(list(text)))) if t.text}
    pieces = split_specials(text, (), cuts)
    begins = [0, *accumulate(map(len, pieces))]
    for stream, token in tokens_of(parse(parsers, tokenised(pieces))):
        if token.id is not None and token.id < len(pieces):
            characters = range(begins[token.id], begins[token.id + 1])
            given_to = {stream_of[i] for i in characters if i in stream_of}
            assert given_to <= {stream}
