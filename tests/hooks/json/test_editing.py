"""Tool calls' arguments, and answers that are JSON, are guarded as they read, and stay JSON."""

import json
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.protocol import Delta
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.detect.span_guard import SpanGuard
from hooks.json.editing import MAX_SCALAR
from tests.helpers import guard_all, make_deltas, make_request, pipeline_of, text_of
from tests.hooks.builtin.streams import PLACES, cut, replaced, said, ways_to_cut

PHRASES = ["project bluebird", "hunter2", "süß", "4111"]


@pytest.mark.parametrize(
    ("written", "released"),
    [
        (r'{"a": "x\nproject bluebird"}', r'{"a": "x\n[phrase]"}'),
        (r'{"a": "project\n\tbluebird\n"}', r'{"a": "[phrase]\n"}'),
        (r'{"a": "\u0068unter\u0032"}', '{"a": "[phrase]"}'),
        (
            r'["\ud83dhunter2\ude00", "\ude00\u0068unter2\ud83d"]',
            r'["\ud83d[phrase]\ude00", "\ude00[phrase]\ud83d"]',
        ),
        (
            r'["\\hunter2\\", "\u005chunter2", "\/hunter2\u0022"]',
            r'["\\[phrase]\\", "\u005c[phrase]", "\/[phrase]\u0022"]',
        ),
        (r'{"a": "\\nhunter2", "b": "\\\nhunter2"}', r'{"a": "\\n[phrase]", "b": "\\\n[phrase]"}'),
        (r'{"a": "\ud83c\udd77unter2 \ud83d\ude00"}', r'{"a": "[phrase] \ud83d\ude00"}'),
        (r'{"a": "s\u00fc\u00df", "b": "s\ud83d\u00fc"}', r'{"a": "[phrase]", "b": "s\ud83d\u00fc"}'),
        ('{"a": 4111, "b": [1, 4111]}', '{"a": "[phrase]", "b": [1, "[phrase]"]}'),
        ('{"4111": "4111"}', '{"[phrase]": "[phrase]"}'),
        (r'{"a": "hunter2\u00', r'{"a": "[phrase]\u00'),
        ("not json: hunter2", "not json: [phrase]"),
        ('{"a": 4111}', '{"a": "[phrase]"}'),
        ('{"a":' + " " * 40 + "4111}", '{"a":' + " " * 40 + '"[phrase]"}'),
        ("4111", '"[phrase]"'),
        ("[-4111.50e2, 4111,4111]", '["[phrase]", "[phrase]","[phrase]"]'),
        ("I have 4111 left", "I have [phrase] left"),
        ("{4111 hunter2}", "{[phrase] [phrase]}"),
    ],
)  # fmt: skip
def test_escapes_are_read_and_written(written: str, released: str) -> None:
    for pieces in ([written], list(written), cut(written, range(0, 99, 3))):
        assert said(Phrases(PHRASES), pieces, "tool_call") == released


def test_a_replacement_is_escaped_as_its_place_asks() -> None:
    guard = Phrases(PHRASES, template='"{entity}"\n')
    assert said(guard, list('{"a": "hunter2", "b": 4111}'), "tool_call") == (
        '{"a": "\\"phrase\\"\\n", "b": "\\"phrase\\"\\n"}'
    )


def test_terminating_never_cuts_an_escape_in_two() -> None:
    written = r'{"a": "\ud83d\ude00\n\u0068unter2"}'
    for i in range(len(written)):
        guard = Phrases(PHRASES, action="terminate")
        assert said(guard, cut(written, [i]), "tool_call") == r'{"a": "\ud83d\ude00\n'


def everywhere(guard: Any, text: str) -> str:
    """The release of `text`, which is the same wherever the text is cut."""
    rng = random.Random(1)
    got = {said(guard, pieces, "tool_call") for pieces in [[text], *ways_to_cut(text, rng, 10)]}
    (one,) = got
    return one


def test_a_number_is_replaced_as_a_whole_and_by_a_text() -> None:
    digits = Patterns([r"\d{4}"], template="<{entity}>")
    for number in ("12345", "-1234", "0.12345", "1234.5e-10", "5e1234", "12341234"):
        assert (
            everywhere(digits, f'{{"a": {number}, "b": [{number}]}}')
            == '{"a": "<pattern>", "b": ["<pattern>"]}'
        )
    assert everywhere(digits, '{"a": 123, "b": 7e12}') == '{"a": 123, "b": 7e12}'
    assert everywhere(Patterns(["true|nul"]), '[true, null, "true", tru]') == (
        '["[pattern]", "[pattern]", "[pattern]", tru]'
    )


def test_a_number_too_long_to_wait_for_gets_other_digits() -> None:
    number = "9" * (MAX_SCALAR + 20)
    released = everywhere(Patterns(["9{8}0"]), f'{{"a": {number}0.5}}')
    assert released == f'{{"a": {number[8:]}{"1" * 9}.5}}'


def test_what_is_found_across_strings_leaves_what_holds_them_together() -> None:
    guard = Patterns({"pair": r'name"\s?:\s?"\w{1,20}|(?<=\[)1, "a", 2|b", \{'}, template='"{entity}"\\')
    assert everywhere(guard, '{"name": "Ann", "x": 1}') == '{"\\"pair\\"\\\\": "", "x": 1}'
    assert everywhere(guard, '[1, "a", 2, 3]') == '["\\"pair\\"\\\\", "", "", 3]'
    assert everywhere(guard, '["ab", {"a": 1}]') == '["a\\"pair\\"\\\\", {"a": 1}]'


def test_terminating_leaves_no_part_of_a_number() -> None:
    guard = Patterns([r"\d{4}"], action="terminate")
    assert everywhere(guard, '{"a": 12.0001}') == '{"a": '


PIECES = [
    "1",
    "x",
    " ?",
    r"\[",
    r"\]",
    ":",
    ",",
    '"',
    "[1x]{1,3}",
    r"\d{1,40}",
    "true",
    ".",
    "(?<=1).",
    ".(?=x)",
]
EXPRESSIONS = st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join), max_size=3)
JSON_LIKE = st.lists(
    st.sampled_from(["1", "12", "x", " ", *'[]{}:,"\\-.e', "\\n", "true", "tr", "9" * 33]), max_size=10
).map("".join)


@given(EXPRESSIONS, JSON_LIKE, PLACES, st.sampled_from(["redact", "suppress", "terminate"]))
@example([".,"], "true,1", [5], "redact")
@example([".,"], "[12,1,]", [4], "terminate")
@example([r": ?\[", r"\[1{1,3}\]?"], '{"a": [11]}', [7], "redact")
def test_where_what_looks_like_json_is_cut_changes_nothing(
    patterns: list[str], text: str, places: list[int], action: Any
) -> None:
    guard = Patterns(["hunter2", *patterns], action=action, max_length=40)
    assert said(guard, cut(text, places), "tool_call") == said(guard, [text], "tool_call")


ANSWER = r'{"to": "\u0068unter2", "n": 4111}'


@pytest.mark.parametrize(
    "extra",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema"}},
        {"guided_json": {}},
        {"structured_outputs": {"json": {"type": "object"}}},
        {"structured_outputs": {"json_object": True}},
    ],
)
async def test_an_answer_that_is_to_be_json_stays_json(extra: dict[str, Any]) -> None:
    asked = make_request(extra=extra)
    for pieces in ways_to_cut(ANSWER, random.Random(2), 5):
        released = await guard_all(pipeline_of(Phrases(PHRASES)), make_deltas(pieces), asked)
        assert text_of(released) == '{"to": "[phrase]", "n": "[phrase]"}'


async def test_an_answer_that_may_be_anything_is_text() -> None:
    for extra in ({}, {"response_format": {"type": "text"}}, {"structured_outputs": {"regex": ".*"}}):
        released = await guard_all(
            pipeline_of(Phrases(PHRASES)), make_deltas(ANSWER), make_request(extra=extra)
        )
        assert text_of(released) == '{"to": "[phrase]", "n": [phrase]}'
    thought = [*make_deltas("4111", finish=False, channel="reasoning"), Delta(finish_reason="stop")]
    asked = make_request(extra={"response_format": {"type": "json_object"}})
    released = await guard_all(pipeline_of(Phrases(PHRASES)), thought, asked)
    assert text_of(released, "reasoning") == "[phrase]"


PARTS = ["hunter2", "süß", "s", "ü", "hunter", "2", " ", "\n", '"', "\\", "😀", "x", "4111", "n", "u"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)
VALUES = st.recursive(
    TEXTS | st.integers(4109, 4113),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=6,
)


ALL = Phrases(PHRASES)


def expected(value: object) -> object:
    if isinstance(value, list):
        return [expected(one) for one in value]
    if isinstance(value, dict):
        return {expected(k): expected(v) for k, v in value.items()}
    if value == 4111:
        return "[phrase]"
    return replaced(value, ALL.detector.scan(value)[0]) if isinstance(value, str) else value


@given(st.dictionaries(TEXTS, VALUES), PLACES, st.booleans())
def test_what_comes_out_is_the_same_json_with_its_texts_redacted(
    value: dict[str, object], places: list[int], escaped: bool
) -> None:
    written = json.dumps(value, ensure_ascii=escaped)
    assert json.loads(said(ALL, cut(written, places), "tool_call")) == expected(value)


TEMPLATES = st.sampled_from(
    ["<{entity}>", '"', "\\", "\n\t\x00", '\\"{entity}\\u00', "\u2028é😀", "", "x" * 40]
)
SECRETS = ["hunter2", "ann@initech.org", "4111 1111 1111 1111", "4111111111111111", "+1 202-555-0142"]
GUARDS: dict[str, dict[str, Any]] = {
    "phrases": {"phrases": [*PHRASES, 'say "hi"', "c:\\temp", "true"], "word_boundaries": False},
    "patterns": {
        "patterns": [
            *(r"\d{4,16}", r'b": "\w{1,9}', r"[,:] ?[\[{]", r"\w{1,20}@\w{1,20}", "é😀?"),
            *(r"(?<=1)2", "true|ll"),
        ]
    },
    "pii": {},
}
MADE: dict[str, type[SpanGuard]] = {"phrases": Phrases, "patterns": Patterns, "pii": Pii}


@cache
def made(name: str, template: str) -> SpanGuard:
    return MADE[name](**GUARDS[name], template=template)


MORE = [*PARTS, *SECRETS, 'say "hi"', "c:\\temp", "b", "1", "12", ", ", "@", ".org"]
NAMES = st.lists(st.sampled_from(MORE), max_size=5).map("".join)
NUMBERS = st.integers(-(10**20), 10**20) | st.sampled_from([4111, 12, 0, 4111.25, 1e30, 4111111111111111])
DOCUMENTS = st.recursive(
    NAMES | NUMBERS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


def texts_in(value: Any) -> Iterator[str]:
    """Every scalar and name, as it is written but for escapes."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from texts_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def shape(value: Any) -> Any:
    """The arrays and objects around the scalars, and whether an object has names: two may be equal now."""
    if isinstance(value, dict):
        return "object" if value else "empty object"
    return [shape(one) for one in value] if isinstance(value, list) else "scalar"


@given(st.sampled_from(sorted(GUARDS)), DOCUMENTS, PLACES, st.booleans(), TEMPLATES, st.integers(0, 1))
@example("patterns", {"b": "x"}, [4], False, '"', 1)
@example("phrases", {"a": True}, [7], False, "", 1)
@example("phrases", [4111], [], True, "\n", 0)
def test_whatever_is_redacted_parses_and_tells_nothing(
    name: str, value: Any, places: list[int], escaped: bool, template: str, indent: int
) -> None:
    guard = made(name, template)
    written = json.dumps(value, ensure_ascii=escaped, indent=indent or None)
    released = said(guard, cut(written, places), "tool_call")
    assert released == said(guard, [written], "tool_call")
    parsed = json.loads(released)
    assert shape(parsed) == shape(value)
    scan = guard.detector.scan
    if template == "<{entity}>" and name != "pii":  # others may make a match with the text next to them
        assert [text for text in texts_in(parsed) if scan(text)[0]] == []
    found = {text for text in texts_in(value) if any(match[:2] == (0, len(text)) for match in scan(text)[0])}
    if template not in found:
        assert found.isdisjoint(texts_in(parsed))
    if name == "phrases" and template not in ("", "x" * 40):
        assert not any(phrase in text for text in texts_in(parsed) for phrase in GUARDS[name]["phrases"])
