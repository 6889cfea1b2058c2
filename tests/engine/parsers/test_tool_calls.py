"""Parsers of tool calls: each call is a stream of its own, with its arguments in the model's own words."""

import pytest

from engine.parsers import Parsers
from engine.protocol import ToolCall
from tests.engine.parsers.streams import cut_at, parse, said, tokenised, tokens_of, untold

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
        (LLAMA, f"{CALL}\n{CALL},\n{CALL}", [("f", '{"a": 1}')] * 3),
        (HERMES, f'<tool_call>{CALL[:-1]}, "id": "call_1"}}</tool_call>', [("f", '{"a": 1}')]),
        (HERMES, f'<tool_call>{{"id": 0, {CALL[1:]}</tool_call>', [("f", '{"a": 1}')]),
        (HERMES, f"<tool_call>\n{CALL}}}\n</tool_call>", [("f", '{"a": 1}'), ("content", "}\n</tool_call>")]),
        (HERMES, f"<tool_call>\n{CALL}}}</tool_call>", [("f", '{"a": 1}')]),
        (MISTRAL, f'[TOOL_CALLS] [{CALL[:-1]}, "id": "abcdefghi"}}, {CALL}]', [("f", '{"a": 1}')] * 2),
        (MISTRAL, f"[TOOL_CALLS]{CALL}", [("f", '{"a": 1}')]),
        (MISTRAL, 'Hi[TOOL_CALLS]f[CALL_ID]a1B2[ARGS]{"a": 1}', [("content", "Hi"), ("f", '{"a": 1}')]),
    ],
)
def test_calls_and_content_are_separated(
    parsers: Parsers, text: str, expected: list[tuple[str, str]]
) -> None:
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
        (HERMES, '<tool_call>{"name": "f", "arguments": "x"}</tool_call>'),
        (HERMES, '<tool_call>{"name": "f", "arguments": "nul"}</tool_call>'),
        (HERMES, '<tool_call>{"name": "f", "arguments": 5}</tool_call>'),
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
def test_text_that_is_no_call_is_content_unchanged(parsers: Parsers, text: str) -> None:
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
        (HERMES, r'<tool_call>{"name": "f", "arguments": "{\"a\": 1"}</tool_call>', [("f", '{"a": 1')]),
        (MISTRAL, f'[TOOL_CALLS][{CALL}, {{"name": 1}}]', [("f", '{"a": 1}'), ("content", ', {"name": 1}]')]),
        (LLAMA, f"{CALL}; stop", [("f", '{"a": 1}'), ("content", "; stop")]),
    ],
)
def test_a_call_that_breaks_off_loses_no_text(
    parsers: Parsers, text: str, expected: list[tuple[str, str]]
) -> None:
    for pieces in ([text], list(text)):
        assert said(parse(parsers, untold(pieces))) == expected


FORMS = [
    (r'"{\"a\": 1}"', '{"a": 1}'),
    (r'"{\n  \"a\": \"max\"\n}"', '{\n  "a": "max"\n}'),
    (r'"\n {\"a\": 1} \n"', '{"a": 1}'),
    (r'"{\"a\": \"}\\\" \u00e9\ud83c\udf26 \ud83d!\"}"', '{"a": "}\\" \xe9\U0001f326 \ufffd!"}'),
    ('"{}"', "{}"),
    ("null", "{}"),
    ('""', "{}"),
    (r'" \n"', "{}"),
    ('"null"', "{}"),
]
SHAPES = [
    (HERMES, '<tool_call>{"name": "f", "arguments": %s}</tool_call>'),
    (HERMES, '<tool_call>\n{"arguments": %s, "name": "f"}\n</tool_call>'),
    (LLAMA, '{"name": "f", "parameters": %s}'),
    (LLAMA, '<|python_tag|>{"parameters": %s, "name": "f"}'),
    (MISTRAL, '[TOOL_CALLS][{"name": "f", "arguments": %s}]'),
    (MISTRAL, '[TOOL_CALLS][{"arguments": %s, "name": "f"}]'),
    (MISTRAL, "[TOOL_CALLS]f[ARGS]%s[TOOL_CALLS]"),
    (MISTRAL, "[TOOL_CALLS]f[ARGS]%s"),
]


@pytest.mark.parametrize(("parsers", "shape"), SHAPES, ids=[shape for _, shape in SHAPES])
@pytest.mark.parametrize(("written", "meant"), FORMS, ids=[form for form, _ in FORMS])
def test_arguments_may_be_json_in_a_string_or_none(
    parsers: Parsers, shape: str, written: str, meant: str
) -> None:
    text = shape % written
    for pieces in ([text], list(text), cut_at(text, range(0, 300, 5))):
        for deltas in (untold(pieces), tokenised(pieces)):
            made = parse(parsers, deltas)
            assert said(made)[:1] == [("f", meant)]
            assert made[-1].finish_reason == "tool_calls"


def test_decoded_arguments_are_streamed_and_their_tokens_withheld() -> None:
    pieces = ['<tool_call>{"name": "f", "arguments": "', r"{\"a\"", ": 1", "}", '"}', "</tool_call>"]
    made = parse(HERMES, tokenised(pieces))
    assert [d.text for d in made] == ['{"a"', ": 1", "}", ""]
    assert not {1, 2, 3} & {token.id for _, token in tokens_of(made)}


@pytest.mark.parametrize(
    "bad",
    [
        '{"name": "f", "arguments": "x"}',
        '{"name": "f", "arguments": 5}',
        '{"name": "f", "arguments": {"a": 1',
        r'{"name": "f", "arguments": "{\"a\": 1}',
        r'{"name": "f", "arguments": "{\"a\": 1} and"}',
        '{"name": "f"',
        "{}",
        "not JSON",
    ],
)
def test_a_bad_call_does_not_hide_a_good_one(bad: str) -> None:
    text = f'<tool_call>{bad}</tool_call>\n<tool_call>{{"name": "g", "arguments": {{"b": 2}}}}</tool_call>'
    for pieces in ([text], list(text)):
        made = parse(HERMES, untold(pieces))
        assert said(made)[-1] == ("g", '{"b": 2}')
        assert made[-1].finish_reason == "tool_calls"


def test_tokens_around_the_arguments_go_with_the_text_that_follows_or_with_the_end() -> None:
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
def test_a_special_token_is_recognized_by_its_bytes(parsers: Parsers) -> None:
    opening = {HERMES: "<tool_call>", MISTRAL: "[TOOL_CALLS]", LLAMA: "<|python_tag|>"}[parsers]
    body = {MISTRAL: [f"[{CALL}]"]}.get(parsers, [CALL])
    made = parse(parsers, tokenised(["Sure.", opening, *body], [opening]))
    assert said(made) == [("content", "Sure."), ("f", '{"a": 1}')]
    assert [t.id for _, t in tokens_of(made) if t.id is not None] == [0, 1, 2, 9999]


def test_the_named_form_is_recognized_by_its_special_tokens() -> None:
    pieces = ["[TOOL_CALLS]", "get", "_it", "[ARGS]", '{"a"', ":1}", "[TOOL_CALLS]", "g", "[ARGS]", "{}"]
    made = parse(MISTRAL, tokenised(pieces, ["[TOOL_CALLS]", "[ARGS]"]))
    assert said(made) == [("get_it", '{"a":1}'), ("g", "{}")]
    assert [(c.index, t.id) for c, t in tokens_of(made)] == [
        *((0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5)),
        *((1, 6), (1, 7), (1, 8), (1, 9), (1, 9999)),
    ]


def test_no_token_reveals_an_id_in_a_calls_json() -> None:  # contract 5.3
    pieces = [
        "<tool_call>",
        '{"id": ',
        '"call',
        '_1"',
        ', "name": "f", "arguments": ',
        "{}",
        "}",
        "</tool_call>",
    ]
    made = parse(HERMES, tokenised(pieces))
    assert said(made) == [("f", "{}")]
    assert not {2, 3} & {token.id for _, token in tokens_of(made)}


def test_no_token_reveals_a_call_id() -> None:  # contract 5.3
    """The model writes the id, and no hook sees it: the service makes its own ids."""
    pieces = ["[TOOL_CALLS]", "f", "[CALL_ID]", "SEC", "RET12", "[ARGS]", "{}"]
    for special in (["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"], []):
        made = parse(MISTRAL, tokenised(pieces, special))
        assert said(made) == [("f", "{}")]
        assert {3, 4}.isdisjoint(token.id for _, token in tokens_of(made))
        assert not [token for _, token in tokens_of(made) if b"SEC" in token.raw or b"RET" in token.raw]
