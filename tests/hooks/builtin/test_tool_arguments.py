"""A tool call's arguments are guarded as they read, and stay the JSON that they were."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hooks.builtin.phrases import PhraseDetector, Phrases
from tests.hooks.builtin.streams import PLACES, cut, replaced, said

PHRASES = ["project bluebird", "hunter2", "süß", "4111"]


@pytest.mark.parametrize(
    ("written", "released"),
    [
        (r'{"a": "x\nproject bluebird"}', r'{"a": "x\n[phrase]"}'),
        (r'{"a": "project\n\tbluebird\n"}', r'{"a": "[phrase]\n"}'),
        (r'{"a": "\u0068unter\u0032"}', '{"a": "[phrase]"}'),
        (r'{"a": "\\nhunter2", "b": "\\\nhunter2"}', r'{"a": "\\nhunter2", "b": "\\\n[phrase]"}'),
        (r'{"a": "\ud83c\udd77unter2 \ud83d\ude00"}', r'{"a": "[phrase] \ud83d\ude00"}'),
        (r'{"a": "s\u00fc\u00df", "b": "s\ud83d\u00fc"}', r'{"a": "[phrase]", "b": "s\ud83d\u00fc"}'),
        ('{"a": 4111, "b": [1, 4111]}', '{"a": "[phrase]", "b": [1, "[phrase]"]}'),
        ('{"4111": "4111"}', '{"[phrase]": "[phrase]"}'),
        (r'{"a": "hunter2\u00', r'{"a": "[phrase]\u00'),
        ("not json: hunter2", "not json: [phrase]"),
    ],
)
def test_escapes_are_read_and_written(written: str, released: str) -> None:
    for pieces in ([written], list(written), cut(written, range(0, 99, 3))):
        assert said(Phrases(PHRASES), pieces, "tool_call") == released


def test_a_replacement_is_escaped_as_its_place_asks() -> None:
    guard = Phrases(PHRASES, template='"{entity}"\n')
    assert said(guard, list('{"a": "hunter2", "b": 4111}'), "tool_call") == (
        '{"a": "\\"phrase\\"\\n", "b": "\\"phrase\\"\\n"}'
    )
    assert said(Phrases(PHRASES, action="suppress"), list('{"b": 4111}'), "tool_call") == '{"b": ""}'


def test_terminating_never_cuts_an_escape_in_two() -> None:
    written = r'{"a": "\ud83d\ude00\n\u0068unter2"}'
    for i in range(len(written)):
        guard = Phrases(PHRASES, action="terminate")
        assert said(guard, cut(written, [i]), "tool_call") == r'{"a": "\ud83d\ude00\n'


PARTS = ["hunter2", "süß", "s", "ü", "hunter", "2", " ", "\n", '"', "\\", "😀", "x", "4111", "n", "u"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)
VALUES = st.recursive(
    TEXTS | st.integers(4109, 4113),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=6,
)


def expected(value: object) -> object:
    detector = PhraseDetector(PHRASES)
    if isinstance(value, list):
        return [expected(one) for one in value]
    if isinstance(value, dict):
        return {expected(k): expected(v) for k, v in value.items()}
    if value == 4111:
        return "[phrase]"
    return replaced(value, detector.scan(value)[0]) if isinstance(value, str) else value


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(TEXTS, VALUES), PLACES, st.booleans())
def test_what_comes_out_is_the_same_json_with_its_texts_redacted(
    value: dict[str, object], places: list[int], escaped: bool
) -> None:
    written = json.dumps(value, ensure_ascii=escaped)
    assert json.loads(said(Phrases(PHRASES), cut(written, places), "tool_call")) == expected(value)
