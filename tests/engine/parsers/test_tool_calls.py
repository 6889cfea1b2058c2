"""Tool-call parsers: each call is a stream of its own, its arguments in the model's own words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.parsers import Parsers
from engine.parsers.harmony import ENDS as HARMONY_ENDS
from engine.protocol import Delta, ToolCall
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
from tests.helpers import make_request

HERMES = Parsers(tool_calls="hermes")
LLAMA = Parsers(tool_calls="llama3_json")
MISTRAL = Parsers(tool_calls="mistral")
CALL = '{"name": "f", "arguments": {"a": 1}}'
ESCAPED = r'{"a": "}\"{ \\", "é": ["你好 \u00e9", {"b": []}], "🎉": null}'


@pytest.mark.parametrize(
    ("parsers", "text", "expected"),
    [
        (HERMES, f"<tool_call>\n{CALL}\n</tool_call>", [("f", '{"a": 1}')]),
        (HERMES, f"Sure.\n<tool_call>{CALL}</tool_call>", [("content", "Sure.\n"), ("f", '{"a": 1}')]),
        (
            HERMES,
            f'\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{{"name":"g","arguments":{{}}}}</tool_call>\n',
            [("f", '{"a": 1}'), ("g", "{}")],
        ),
        (HERMES, f"<tool_call>{CALL}</tool_call> Done.", [("f", '{"a": 1}'), ("content", " Done.")]),
        (HERMES, '<tool_call>{"arguments": {"a":"b"}, "name": "f"}</tool_call>', [("f", '{"a":"b"}')]),
        (HERMES, '<tool_call>{"type":"function","name":"f","parameters":{}}</tool_call>', [("f", "{}")]),
        (HERMES, '<tool_call>{"name": "f"}</tool_call>', [("f", "{}")]),
        (HERMES, r'<tool_call>{"name": "\u0066\"", "arguments": {}}</tool_call>', [('f"', "{}")]),
        (HERMES, f'<tool_call>{{"name": "f", "arguments": {ESCAPED}}}</tool_call>', [("f", ESCAPED)]),
        (LLAMA, '{"name": "f", "parameters": {"a": 1}}', [("f", '{"a": 1}')]),
        (
            LLAMA,
            f'<|python_tag|>{CALL}; {{"name":"g","parameters":{ESCAPED}}}',
            [("f", '{"a": 1}'), ("g", ESCAPED)],
        ),
        (LLAMA, f"Sure. <|python_tag|>{CALL}", [("content", "Sure. "), ("f", '{"a": 1}')]),
        (LLAMA, f" {CALL} and more", [("f", '{"a": 1}'), ("content", " and more")]),
        (MISTRAL, f"[TOOL_CALLS][{CALL}]", [("f", '{"a": 1}')]),
        (
            MISTRAL,
            f'[TOOL_CALLS] [{CALL}, {{"arguments": {ESCAPED}, "name": "g"}}]',
            [("f", '{"a": 1}'), ("g", ESCAPED)],
        ),
        (MISTRAL, '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g-2{}', [("f", '{"a": 1}'), ("g-2", "{}")]),
        (MISTRAL, 'Hi[TOOL_CALLS]f[CALL_ID]a1B2[ARGS]{"a": 1}', [("content", "Hi"), ("f", '{"a": 1}')]),
    ],
)
def test_calls_are_told_from_content(parsers: Parsers, text: str, expected: list[tuple[str, str]]) -> None:
    for pieces in ([text], list(text), cut_at(text, range(0, 300, 5))):
        made = parse(parsers, untold(pieces))
        assert said(made) == expected
        assert made[-1].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("parsers", "text"),
    [
        (HERMES, "<tool_call>not JSON</tool_call>"),
        (HERMES, '<tool_call>{"name": "f", </tool_call>'),
        (HERMES, '<tool_call>{"name": "", "arguments": {}}</tool_call>'),
        (HERMES, '<tool_call>{"arguments": {"a": 1}}</tool_call>'),
        (HERMES, '<tool_call>{"name": "f", "arguments": "{}"}</tool_call>'),
        (HERMES, '<tool_call>{"name": "f", "thought": "x", "arguments": {}}</tool_call>'),
        (HERMES, '<tool_call>{"name": "f\\q", "arguments": {}}</tool_call>'),
        (HERMES, '\n<tool_call>\n{"name": "f"'),
        (HERMES, '<tool_call>{"name": "' + "f" * 300 + '", "arguments": {}}</tool_call>'),
        (MISTRAL, "[TOOL_CALLS]" + "f" * 300 + "[ARGS]{}"),
        (HERMES, "Write <tool_call"),
        (HERMES, "a < b"),
        (LLAMA, '{"answer": 42}'),
        (LLAMA, "[1, 2]"),
        (LLAMA, "{"),
        (LLAMA, "<|python_tag|>print(1)"),
        (MISTRAL, "[TOOL_CALLS] none are needed."),
        (MISTRAL, "[TOOL_CALLS][]"),
        (MISTRAL, "[TOOL_CALLS]f[ARGS]"),
        (MISTRAL, "[TOOL_"),
    ],
)
def test_what_is_no_call_is_content_as_it_was_written(parsers: Parsers, text: str) -> None:
    for pieces in ([text], list(text)):
        made = parse(parsers, untold(pieces))
        assert said(made) == [("content", text)]
        assert made[-1].finish_reason == "stop"


@pytest.mark.parametrize(
    ("parsers", "text", "expected"),
    [
        (HERMES, '<tool_call>{"name": "f", "arguments": {"a": "</tool_call', [("f", '{"a": "</tool_call')]),
        (
            HERMES,
            '<tool_call>{"name":"f","arguments":{"a": 1</tool_call>!',
            [("f", '{"a": 1'), ("content", "!")],
        ),
        (
            HERMES,
            '<tool_call>{"name":"f","arguments":{},"more":1}</tool_call>',
            [("f", "{}"), ("content", ',"more":1}</tool_call>')],
        ),
        (MISTRAL, f'[TOOL_CALLS][{CALL}, {{"name": 1}}]', [("f", '{"a": 1}'), ("content", ', {"name": 1}]')]),
        (LLAMA, f"{CALL}; stop", [("f", '{"a": 1}'), ("content", "; stop")]),
    ],
)
def test_nothing_is_lost_of_a_call_that_breaks_off(
    parsers: Parsers, text: str, expected: list[tuple[str, str]]
) -> None:
    for pieces in ([text], list(text)):
        assert said(parse(parsers, untold(pieces))) == expected


def test_arguments_are_streamed_as_they_come() -> None:
    pieces = ["<tool_call>", '{"name": "f", ', '"arguments": ', '{"a"', ": 1", "}", "}", "</tool_call>"]
    made = parse(HERMES, untold(pieces))
    assert [d.text for d in made] == ['{"a"', ": 1", "}", ""]
    assert made[0].tool_call == ToolCall(0, "f")


def test_an_answer_in_json_is_not_held_to_its_end() -> None:
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
    texts = {
        HERMES: f"<tool_call>\n{call}\n</tool_call>",
        LLAMA: call,
        MISTRAL: f"[TOOL_CALLS][{call}]",
    }
    if not any(end in written for end in HARMONY_ENDS):  # which end a message wherever they stand
        openai = Parsers(tool_calls="openai")
        texts[openai] = f"<|channel|>commentary to=functions.f<|message|>{written}<|call|>"
    for parsers, text in texts.items():
        assert said(parse(parsers, untold(cut_at(text, cuts)))) == [("f", written)]


def test_tokens_of_the_wrapping_go_with_the_text_that_follows_or_with_the_end() -> None:
    pieces = ["<tool_call>", '{"name": "', "f", '", "arguments": {', '"a": 1', "}}", "</tool_call>"]
    made = parse(HERMES, tokenised(pieces))
    assert [(c, t.id, t.text) for c, t in tokens_of(made)] == [
        (ToolCall(0, "f"), token_id, text)
        for token_id, text in [
            *((0, ""), (1, ""), (2, ""), (3, ""), (None, "{"), (4, '"a": 1'), (5, ""), (None, "}")),
            *((6, ""), (9999, "")),
        ]
    ]


@pytest.mark.parametrize("parsers", [HERMES, MISTRAL, LLAMA])
def test_a_special_token_is_known_by_its_bytes(parsers: Parsers) -> None:
    opening = {HERMES: "<tool_call>", MISTRAL: "[TOOL_CALLS]", LLAMA: "<|python_tag|>"}[parsers]
    body = {MISTRAL: [f"[{CALL}]"]}.get(parsers, [CALL])
    made = parse(parsers, tokenised(["Sure.", opening, *body], [opening]))
    assert said(made) == [("content", "Sure."), ("f", '{"a": 1}')]
    assert [t.id for _, t in tokens_of(made) if t.id is not None] == [0, 1, 2, 9999]


def test_the_named_form_is_known_by_its_special_tokens() -> None:
    pieces = ["[TOOL_CALLS]", "get", "_it", "[ARGS]", '{"a"', ":1}", "[TOOL_CALLS]", "g", "[ARGS]", "{}"]
    made = parse(MISTRAL, tokenised(pieces, ["[TOOL_CALLS]", "[ARGS]"]))
    assert said(made) == [("get_it", '{"a":1}'), ("g", "{}")]
    assert [(c.index, t.id) for c, t in tokens_of(made)] == [
        *((0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5)),
        *((1, 6), (1, 7), (1, 8), (1, 9), (1, 9999)),
    ]


def test_without_tools_nothing_is_looked_for() -> None:
    text = f"<tool_call>{CALL}</tool_call>"
    for request in (make_request(), request_with_tools(tool_choice="none")):
        assert said(parse(HERMES, untold([text]), request)) == [("content", text)]


def test_without_parallel_calls_later_ones_are_withheld_tokens_and_all() -> None:
    pieces = [
        f"<tool_call>{CALL}</tool_call>",
        "<tool_call>",
        '{"name": "g", "arguments": ',
        '{"secret"',
        ": 1}",
        "}",
    ]
    request = request_with_tools(parallel_tool_calls=False)
    made = parse(HERMES, tokenised(pieces), request)
    assert said(made) == [("f", '{"a": 1}')]
    assert {c for c, _ in tokens_of(made)} == {ToolCall(0, "f")}
    assert [t.id for _, t in tokens_of(made) if t.id is not None] == [0]
    assert made[-1].finish_reason == "tool_calls"


def test_an_engine_that_tells_calls_itself_is_left_alone() -> None:
    call = ToolCall(0, "f", "id1")
    deltas = [
        Delta(text="Sure. <"),
        Delta(text="{}", channel="tool_call", tool_call=call),
        Delta(text="<tool_call>", finish_reason="stop"),
    ]
    made = parse(HERMES, deltas)
    assert said(made) == [("content", "Sure. <"), ("f", "{}"), ("content", "<tool_call>")]
    assert made[-1].finish_reason == "stop"


def test_a_length_limit_is_told_though_a_call_was_begun() -> None:
    deltas = [Delta(text='<tool_call>{"name": "f", "arguments": {"a'), Delta(finish_reason="length")]
    assert parse(HERMES, deltas)[-1].finish_reason == "length"


@given(cuts=CUTS)
def test_reasoning_comes_first_and_calls_after_it(cuts: list[int]) -> None:
    text = (
        "<think>\nI could <tool_call> f.\n</think>\n\n"
        f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>"
    )
    pieces = cut_at(text, cuts)
    made = parse(Parsers("qwen3", "hermes"), tokenised(pieces))
    assert said(made) == [
        *(("reasoning", "\nI could <tool_call> f.\n"), ("f", '{"a": 1}'), ("f", '{"a": 1}')),
    ]
    ids = [t.id for _, t in tokens_of(made) if t.id is not None]
    assert ids == sorted(ids)


def test_a_call_id_is_told_by_no_token() -> None:  # contract 5.3
    """It is text of the model's own that nobody is shown: the service makes ids itself."""
    pieces = ["[TOOL_CALLS]", "f", "[CALL_ID]", "SEC", "RET12", "[ARGS]", "{}"]
    for special in (["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"], []):
        made = parse(MISTRAL, tokenised(pieces, special))
        assert said(made) == [("f", "{}")]
        assert {3, 4}.isdisjoint(token.id for _, token in tokens_of(made))
        assert not [token for _, token in tokens_of(made) if b"SEC" in token.raw or b"RET" in token.raw]
