"""Text as it reads: what escapes and markup hide from nobody but a guard is found, at every cut the same."""

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.protocol import GenerationRequest
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import PhraseDetector, Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.prompt_leak import LeakDetector, PromptLeak
from hooks.builtin.secrets import Secrets
from hooks.detect.excerpt import Excerpt
from hooks.detect.readings import ESCAPES, LOOSE, MARKUP, Reader
from hooks.detect.span_guard import SpanGuard
from hooks.loading.loader import HookSpec
from hooks.testing import assert_chunk_invariant, stream_of
from tests.helpers import make_request
from tests.hooks.builtin.streams import PLACES, Watch, cut, replaced, said, ways_to_cut

KEY = "sk-EXAMPLE7f3K9mQ2xT8vB4nL6pR1"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"a\nb\tc\rd\"e\/f", 'a\nb\tc\rd"e/f'),
        (r"\u0068unter2 \\u0068unter2 \\\u0068unter2", "hunter2 hunter2 hunter2"),
        (r"\\n \\\"", '\n "'),
        (r"\\\\n", "\\\n"),
        (r"\ud83d\ude00 \\ud83d\\ude00 \ud83d! \ude00", "😀 😀 \ufffd! \ufffd"),
        (r"a\\b \\\\srv \x \b \u12g4", r"a\b \\\\srv \x \b \u12g4"),
        ("a\\", "a\\"),
        ("\\ud83d\\", "\\ud83d\\"),
    ],
)
def test_escapes_are_read(written: str, read: str) -> None:
    assert ESCAPES.read(written) == MARKUP.read(written) == LOOSE.read(written) == read


def test_markup_is_read_as_what_is_left_of_it() -> None:
    assert MARKUP.read("t**he** _code_ ~~is~~ `x`").replace("\u2060", "") == "the code is x"
    assert MARKUP.read('<b>a</b><i class="x">b</i>').replace("\u2060", "") == "ab"
    assert MARKUP.read("a<br/>b<td>c</td></tr>") == "a b c  "
    assert MARKUP.read("a < b, a<b and c < d") == "a < b, a<b and c < d"
    assert MARKUP.read("a\u3164b\u2800c\u180ed\u200be") == "a b c d\u200be"
    assert LOOSE.read('{"a": 1, "b":true, "c": "1"}') == '{"a":, "b":, "c": "1"}'
    assert LOOSE.read("[a](http://b.example/c_d), [e](f g)") == "[a], [e](f g)"
    assert LOOSE.read("a\u200bb\ufeffc") == "a b c"


PHRASES = ["hunter2", "project bluebird", "a b"]
SAID: list[tuple[Any, str, str]] = [
    (Phrases(PHRASES), r'{"note":"a\nhunter2"}', r'{"note":"a\n[phrase]"}'),
    (Phrases(PHRASES), r'{"note":"\u0068unter2"}', '{"note":"[phrase]"}'),
    (Phrases(PHRASES), r'{"c":"{\"n\":\"a\\nhunter2\"}"}', r'{"c":"{\"n\":\"a\\n[phrase]\"}"}'),
    (Phrases(PHRASES), r"a project\n\t\u0062luebird!", "a [phrase]!"),
    (Phrases(PHRASES), r"C:\new\hunter2, C:\nhunter2", r"C:\new\[phrase], C:\n[phrase]"),
    (Phrases(["nice", "C:\\new"]), r"nice \nice C:\new", r"[phrase] \[phrase] [phrase]"),
    (Phrases(PHRASES), "project **bluebird** <i>project</i> <b>blue</b>bird", "[phrase]** <i>[phrase]"),
    (Phrases(PHRASES), "project\u3164bluebird project\u2800\u180ebluebird", "[phrase] [phrase]"),
    (Phrases(PHRASES), 'project <a href="http://example.com/">bluebird</a>', "[phrase]</a>"),
    (
        Phrases(PHRASES),
        r'{"a": "hun<\/b>ter2, <b>proj<\\/b>ect bluebird"}',
        r'{"a": "[phrase], <b>[phrase]"}',
    ),
    (Phrases(["f***", "snake_case"]), "f*** f snake_case snakecase", "[phrase] f [phrase] snakecase"),
    (Secrets(), rf"x\n{KEY}\n", r"x\n[OPENAI_KEY]\n"),
    (Secrets(), rf"\u0073k-{KEY[3:]}", "[OPENAI_KEY]"),
    (Pii(), r"mail:\nann\u0040example.org", r"mail:\n[EMAIL_ADDRESS]"),
    (Pii(), r"mail:\nann@example.org, \\tbob@example.org", r"mail:\n[EMAIL_ADDRESS], \\t[EMAIL_ADDRESS]"),
    (Pii(), r"\\nann@example.org or \u0061nn@example.org", r"\\n[EMAIL_ADDRESS] or [EMAIL_ADDRESS]"),
    (Pii(), r"Zoe \u003czoe@example.com\u003e", r"Zoe \u003c[EMAIL_ADDRESS]\u003e"),
    (Pii(), r"to: \nzoe@example.com@b.de, end", r"to: \n[EMAIL_ADDRESS]@b.de, end"),
    (Patterns([r"\w{1,20}:\w{1,20}"]), r"\nuser:pass:word", r"\n[pattern]:word"),
    (Phrases(PHRASES), r'{"a": "hun<b class=\"x\">ter2</b>"}', r'{"a": "[phrase]</b>"}'),
    (Pii(), r"card\n4111\u00201111 1111 1111", r"card\n[CREDIT_CARD]"),
    (Patterns([r"\bT-\d{6}\b"]), r"\nT-123456\t \u0054-123456.", r"\n[pattern]\t [pattern]."),
    (Patterns([r"CORP\\\w{1,9}"]), r"CORP\ann CORP\\bob", "[pattern] [pattern]"),
]


@pytest.mark.parametrize(("guard", "text", "expected"), SAID)
def test_what_escapes_and_markup_hide_is_found(guard: SpanGuard, text: str, expected: str) -> None:
    for pieces in ([text], *ways_to_cut(text, random.Random(1), 10)):
        assert said(guard, pieces) == expected


def test_no_cut_changes_what_is_read() -> None:
    guard = HookSpec("phrases", {"phrases": PHRASES})
    for _, text, _ in SAID[:5]:
        assert_chunk_invariant(guard, stream_of(text), num_random=10)


def test_arguments_are_read_at_two_more_levels() -> None:
    inner = json.dumps({"n": "a\nhunter2", "m": "süß hunter2", "o": '"hunter2"'})
    for value in ({"c": inner}, {"c": json.dumps({"d": inner})}):
        written = json.dumps(value)
        for pieces in ways_to_cut(written, random.Random(2), 10):
            released = said(Phrases(PHRASES), pieces, "tool_call")
            assert "hunter2" not in released
            json.loads(json.loads(released)["c"])


def test_json_in_a_prompt_is_read() -> None:
    result = json.dumps({"note": "a\nhunter2", "more": "\u0433hunter2 hunter2"})
    request = make_request(messages=({"role": "tool", "tool_call_id": "1", "content": result},))
    redacted = Phrases(PHRASES, prompt="redact").on_request
    assert redacted is not None
    changed: GenerationRequest = redacted(request)
    content = json.loads(changed.messages[0]["content"])
    assert content == {"note": "a\n[phrase]", "more": "\u0433hunter2 [phrase]"}


@pytest.mark.parametrize("guard", [Patterns(["ab"]), Phrases(["ab"])])
def test_what_is_held_for_a_token_has_a_bound(guard: SpanGuard) -> None:
    watch = Watch(guard)
    text = "\\" * 500 + r"\u00" * 100 + "<bbbbbb" * 100 + "<c " + "d" * 200
    assert said(watch, list(text)) == text
    assert watch.most_held <= 64


PARTS = [
    *("a", "b", "ab", " ", "\n", "\\", "\\\\", "n", "u", "u0061", r"\u0062", r"\ud83d", r"\ude00", "😀", '"'),
    *["<", ">", "<b>", "</b>", "<br>", "*", "_", "true", "12", ",", ":", "](b)", "](", ")"],
    *("1. ", "\n2) ", '": ', "\u200b", "\u3164", r"\n", r"\\t", r"\u003c", r"<b c=\"d\">"),
    *(f"<b {'c' * 40}>", f"]({'c' * 50})", "d " * 10),
]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=20).map("".join)
REQUEST = make_request(messages=({"role": "system", "content": "a b ab 1. ba b<br>a"},))
PROMPT = str(REQUEST.messages[0]["content"])
GUARDS: list[tuple[Any, Any]] = [
    (Phrases(["a b", "ab", "😀", "b"]), Reader(PhraseDetector(["a b", "ab", "😀", "b"]), MARKUP)),
    (PromptLeak(min_words=2), Reader(LeakDetector([PROMPT], 2), LOOSE)),
    *(
        (guard, guard.detector)
        for guard in (
            Patterns(
                {"a": r"(?<!b )a[\sb]{1,5}", "b": r"\bb{1,9}\b", "c": r'"\\?n', "d": r"\w{1,3}:\w{1,3}"}
            ),
            Secrets(),
        )
    ),
]


@given(st.integers(0, len(GUARDS) - 1), TEXTS, PLACES)
@example(1, "\n2) ", [1, 2])
def test_where_a_stream_is_cut_changes_nothing(which: int, text: str, places: list[int]) -> None:
    guard, detector = GUARDS[which]
    watch = Watch(guard)
    assert said(watch, cut(text, places), request=REQUEST) == replaced(text, detector.scan(text)[0])
    assert watch.most_held <= detector.longest


@given(TEXTS)
def test_nothing_is_lost_that_is_found_as_it_is_written(text: str) -> None:
    detector = PhraseDetector(["a b", "ab", "b"])
    as_written = {match[:3] for match in detector.scan(text)[0]}
    assert as_written <= {match[:3] for match in Reader(detector, MARKUP).scan(text)[0]}


@given(st.sampled_from([ESCAPES, MARKUP, LOOSE]), st.lists(st.sampled_from([*PARTS, "x " * 60]), max_size=30))
@example(MARKUP, ["<b", "x " * 60, "a b", "<", "b>", "x " * 60, "a", " ", "b", "*"])
def test_a_search_of_new_text_finds_what_a_search_of_all_text_finds(reading: Any, pieces: list[str]) -> None:
    reader = Reader(PhraseDetector(["a b", "ab", "b a"]), reading)
    excerpt = Excerpt(is_json=False)
    for piece in pieces:
        text = excerpt.text + piece
        matches, undecided = expected = reader.scan(text, excerpt.start, False)
        assert reader.scan_next(excerpt, text) == expected
        if matches:  # the excerpt is no longer plain
            excerpt = Excerpt(is_json=False)
        else:
            excerpt.go_on(text, undecided, 300)


@given(TEXTS, st.sampled_from([ESCAPES, MARKUP, LOOSE]), st.integers(0, 60))
def test_what_is_read_is_found_where_it_is_written(text: str, reading: Any, start: int) -> None:
    """Read from any place on, a text reads the same, but for a token that is cut in two there."""
    place = min(start, len(text))
    reader = Reader(PhraseDetector(["\ufffe"]), reading)
    left = reader._left(text, place)
    view = reader._view(text, place, True, left)
    is_near = place - left <= PhraseDetector.reach < view.read(place) + 1
    assert reading.read(text).endswith(view.text if is_near else view.text[reading.longest :])
    places = [view.written(i) for i in range(len(view.text) + 1)]
    assert places == sorted(set(places))
    assert places[-1] == len(text)
    assert [view.read(place) for place in places] == list(range(len(places)))
