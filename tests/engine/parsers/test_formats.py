"""Each format of tool calls: calls of all kinds are read, at every cut, and all other text stays content."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.parsers import Parsers
from engine.parsers.formats import FORMATS
from engine.parsers.scan import hold
from engine.parsers.tape import Tape
from engine.protocol import Delta
from tests.engine.parsers.streams import (
    CUTS,
    cut_at,
    parse,
    request_with_tools,
    said,
    tokenised,
    tokens_of,
    untold,
)
from tests.engine.parsers.written_calls import DRAWN_CALLS, HELD, TOOLS, WRITERS, Call, kinds
from tests.helpers import examples


def read(parser: str, pieces: Sequence[str]) -> tuple[list[tuple[str, str]], str]:
    """The calls, with their arguments as text, and the content."""
    texts: dict[Any, str] = {}
    content = ""
    for delta in parse(Parsers(tool_calls=parser), untold(pieces), request_with_tools(tools=TOOLS)):
        if delta.tool_call is None:
            content += delta.text
        else:
            texts[delta.tool_call] = texts.get(delta.tool_call, "") + delta.text
    return [(call.name, text) for call, text in texts.items()], content


def test_every_format_has_a_sample() -> None:
    assert set(WRITERS) == set(FORMATS)


@pytest.mark.parametrize("parser", WRITERS)
def test_a_text_of_each_kind_is_read_at_every_cut(parser: str) -> None:
    for name, kind in kinds(parser).items():
        whole = read(parser, [kind.text])
        for size in (1, 3):
            assert read(parser, cut_at(kind.text, range(0, len(kind.text), size))) == whole
        calls, content = whole
        if name == "cut in a value" and parser not in HELD:
            assert [call[0] for call in calls] == ["f"]
            assert kind.text.endswith(calls[0][1])
            continue
        assert [(call, json.loads(arguments)) for call, arguments in calls] == list(kind.calls), name
        assert content.strip() == kind.content.strip()
        if not calls:
            assert content == kind.text


@st.composite
def broken_texts(draw: st.DrawFn, parser: str) -> str:
    """Calls in pieces, of which some are missing, twice, or in another order."""
    text = WRITERS[parser](draw(DRAWN_CALLS))
    pieces = [*cut_at(text, draw(st.lists(st.integers(0, 10_000), max_size=6))), *FORMATS[parser].markers]
    return "".join(draw(st.lists(st.sampled_from([*pieces, " ", "\n", "Hm."]), max_size=8)))


@pytest.mark.parametrize("parser", WRITERS)
def test_a_broken_call_loses_no_text_at_any_cut(parser: str) -> None:
    @examples(60)
    @given(text=broken_texts(parser), cuts=CUTS)
    def check(text: str, cuts: list[int]) -> None:
        calls, content = whole = read(parser, [text])
        assert read(parser, cut_at(text, cuts)) == read(parser, list(text)) == whole
        left = iter(text)
        assert all(character in left for character in content), "text comes as it was written, in order"
        if not calls:
            assert content == text

    check()


@pytest.mark.parametrize("parser", WRITERS)
@examples(40)
@given(calls=DRAWN_CALLS, cuts=CUTS)
def test_drawn_calls_are_read_at_every_cut(parser: str, calls: list[Call], cuts: list[int]) -> None:
    text = WRITERS[parser](calls)
    whole = read(parser, [text])
    assert read(parser, cut_at(text, cuts)) == read(parser, list(text)) == whole
    assert ([(name, json.loads(arguments)) for name, arguments in whole[0]], whole[1]) == (calls, "")


def test_a_value_of_any_length_is_looked_at_once() -> None:
    """A delta costs no more the longer the call is."""
    looked_at: list[str] = []

    def search(piece: str) -> int | None:
        looked_at.append(piece)
        return 2 if piece == "!end" else None

    tape, pieces = Tape(), ["ab", "c", "def"]
    scan = hold(tape, 1, search)
    for i, piece in enumerate([">begin", *pieces, "!end"]):
        tape.put(Delta(text=piece))
        found = next(scan, "done")
        assert (found == "done") == (i == 4)
        assert i == 4 or tape.text == ">begin", "held text is not joined before its end"
    assert looked_at == ["begin", *pieces, "!end"]
    assert tape.text == ">beginabcdef!end"


TOKENS = {
    "qwen3_coder": [
        *("<tool_call>", "\n<function=", "f", ">\n<parameter=s>\n", "Par", "is", "\n</parameter>\n"),
        *("</function>\n", "</tool_call>"),
    ],
    "gemma4": ["<|tool_call>", "call:", "f", '{s:<|"|>', "Par", "is", '<|"|>}', "<tool_call|>"],
    "pythonic": ["[", "f", "(s='", "Par", "is", "')", "]"],
}


@pytest.mark.parametrize("parser", TOKENS)
def test_no_token_of_arguments_in_another_form_is_given(parser: str) -> None:  # contract 5.3
    """The text that hooks see is not the tokens' text, so no token may say more than the hooks have seen."""
    pieces = TOKENS[parser]
    for special in ([], [one for one in FORMATS[parser].markers if one in pieces]):
        deltas = tokenised(pieces, special)
        made = parse(Parsers(tool_calls=parser), deltas, request_with_tools(tools=TOOLS))
        assert said(made) == [("f", '{"s": "Paris"}')]
        assert {b"Par", b"is"}.isdisjoint(token.raw for _, token in tokens_of(made))


def test_values_are_typed_by_the_schema() -> None:
    given = {"s": "5", "i": "5", "n": "5.5", "b": "True", "o": "{}", "z": "null", "other": "5"}
    written = "".join(f"<parameter={key}>{value}</parameter>" for key, value in given.items())
    calls, _ = read("qwen3_coder", [f"<tool_call><function=f>{written}</function></tool_call>"])
    assert calls == [("f", '{"s": "5", "i": 5, "n": 5.5, "b": true, "o": {}, "z": null, "other": "5"}')]
