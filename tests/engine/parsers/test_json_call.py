"""Reading a call as JSON while it comes."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.parsers import Parsers, json_call
from engine.parsers.harmony import ENDS as HARMONY_ENDS
from engine.parsers.json_reader import Nesting
from engine.protocol import ToolCall
from tests.engine.parsers.streams import CUTS, cut_at, parse, said, untold

HERMES = Parsers(tool_calls="hermes")
LLAMA = Parsers(tool_calls="llama3_json")
MISTRAL = Parsers(tool_calls="mistral")


def test_arguments_are_streamed_as_they_come() -> None:
    pieces = ["<tool_call>", '{"name": "f", ', '"arguments": ', '{"a"', ": 1", "}", "}", "</tool_call>"]
    made = parse(HERMES, untold(pieces))
    assert [d.text for d in made] == ['{"a"', ": 1", "}", ""]
    assert made[0].tool_call == ToolCall(0, "f")


def test_an_answer_in_json_is_not_held_until_its_end() -> None:
    made = parse(LLAMA, untold(['{"answer"', ": ", "42}"]))
    assert [d.text for d in made] == ['{"answer": ', "42}", ""]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    arguments=st.dictionaries(st.text(), JSON, max_size=3),
    indent=st.none() | st.integers(0, 2),
    is_ascii=st.booleans(),
    cuts=CUTS,
)
def test_any_json_object_comes_through_unchanged(
    arguments: object, indent: int | None, is_ascii: bool, cuts: list[int]
) -> None:
    written = json.dumps(arguments, indent=indent, ensure_ascii=is_ascii)
    call = f'{{"name": "f", "arguments": {written}}}'
    texts = {HERMES: f"<tool_call>\n{call}\n</tool_call>", LLAMA: call, MISTRAL: f"[TOOL_CALLS][{call}]"}
    if not any(end in written for end in HARMONY_ENDS):  # which end a message wherever they stand
        openai = Parsers(tool_calls="openai")
        texts[openai] = f"<|channel|>commentary to=functions.f<|message|>{written}<|call|>"
    for parsers, text in texts.items():
        assert said(parse(parsers, untold(cut_at(text, cuts)))) == [("f", written)]


@pytest.mark.parametrize(
    ("text", "end", "depth"),
    [('{"a": [1, {"}": "\\"{"}]} more', 24, 0), ("{} {}", 2, 0), ('{"a": 1<', 7, 1), ('{"a": "<', 8, 1)],
)
def test_an_object_ends_at_its_bracket_or_where_it_is_no_json_any_more(
    text: str, end: int, depth: int
) -> None:
    for size in (1, 3, 100):
        nesting, position = Nesting(), 0
        for seen in range(size, len(text) + size, size):
            position = nesting.end(text[:seen], position)
        assert (position, nesting.depth) == (end, depth)


class Counting:
    """A pattern that counts the characters that it matches."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.num_read = 0
        self._pattern = pattern

    def match(self, text: str, position: int = 0) -> re.Match[str] | None:
        found = self._pattern.match(text, position)
        self.num_read += len(found[0]) if found else 0
        return found


@pytest.mark.parametrize("before", ['"', '"null', '"{}'])
@pytest.mark.parametrize("blanks", ["    ", "\\n \\t", "\\"])
def test_blanks_without_end_in_a_string_are_read_once(
    monkeypatch: pytest.MonkeyPatch, before: str, blanks: str
) -> None:
    counting = Counting(json_call._BLANKS)
    monkeypatch.setattr(json_call, "_BLANKS", counting)
    pieces = [
        '<tool_call>{"name": "f", "arguments": ' + before,
        *[blanks, " " if len(blanks) > 1 else "n"] * 500,
    ]
    parse(HERMES, untold(pieces))
    assert counting.num_read <= len("".join(pieces))


@given(
    arguments=st.sampled_from(["", "null", "{}", '{"a": " "}']),
    around=st.tuples(*[st.text(" \n\t", max_size=4)] * 2),
    cuts=CUTS,
)
def test_blanks_around_arguments_in_a_string_do_not_count(
    arguments: str, around: tuple[str, str], cuts: list[int]
) -> None:
    written = json.dumps(around[0] + arguments + around[1])
    text = f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>'
    expected = arguments if arguments.startswith("{") else "{}"
    assert said(parse(HERMES, untold(cut_at(text, cuts)))) == [("f", expected)]
