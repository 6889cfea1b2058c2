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
from hooks.detect.readings import ESCAPES, KEYS, LOOSE, MARKUP, VALUES, Reader
from hooks.detect.rules import Rule, RuleDetector
from hooks.detect.span_guard import SpanGuard
from hooks.loading.loader import HookSpec
from hooks.testing import assert_chunk_invariant, play, stream_of
from tests.helpers import make_request
from tests.hooks.builtin.streams import PLACES, Watch, cut, replaced, said, ways_to_cut

KEY = "sk-EXAMPLE7f3K9mQ2xT8vB4nL6pR1"
PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----b0JM9gDt9gDt9gDt9gDt-----END PRIVATE KEY-----"
KEY_ID = "AKIA" + "Q3ZL7PXW2MTVK5RD"


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


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a%40b %2540 %252540 %C3%BC %e2%80%93 100% %zz %00 %c3x", "a@b @ @ ü – 100% %zz %00 %c3x"),
        ("&#64;&#x40;&commat;&amp;#64; &nbsp;&nosuch; AT&T; &amp; &", "@@@@ \u00a0&nosuch; AT&T; & &"),
        (r"\x40 \\x40 \u{40} \u{1f600} \u{ffffff}", "@ @ @ 😀 \ufffd"),
    ],
)
def test_encodings_of_addresses_and_pages_are_read(written: str, read: str) -> None:
    assert ESCAPES.read(written) == MARKUP.read(written) == LOOSE.read(written) == read


def test_the_dress_of_a_value_is_left_out() -> None:
    assert VALUES.read("41\u200b11\u00ad &shy;1\u2060\ufeff1 \\u200b2") == "4111 11 2"
    assert VALUES.read("key 4111\n    1111\r\n\t22, x\n  y1 1\n2") == "key 4111111122, x\n  y1 1\n2"
    assert VALUES.read("4111 1111\n  1111 k1\n  2 12-34\n  5") == "4111 1111 1111 k12 12-34-5"
    assert VALUES.read("a8Q~rc\n    hg1 I44.eyX\n  4t, is 4.\n  5") == "a8Q~rchg1 I44.eyX4t, is 4.\n  5"
    assert VALUES.read("hf_kvPKqrs\n    sJcFMP, is kvpk\n    sJc") == "hf_kvPKqrssJcFMP, is kvpk\n    sJc"
    assert VALUES.read("&nbsp;%C2%A0%EF%BC%91") == "  1"
    assert Reader(Pii().detector, VALUES).dressed("４１\u202f1–2\u2212٣") == "41 1-2-3"
    assert Reader(Pii().detector, KEYS).dressed("\u0410K\u0406A") == "AKIA"


def test_what_is_left_out_between_two_characters_has_a_bound() -> None:
    assert VALUES.read("1" + "\u200b" * 9 + "2") == "1\u200b2"
    assert VALUES.read("1" + r"\u200b" * 2 + "2") == r"1\u200b2"


PII, SECRETS = Pii(), Secrets()


@pytest.mark.parametrize("hidden", ["\u200b" * 9, "\u00ad" * 20, "&shy;" * 2])
def test_a_row_of_hidden_characters_reads_the_same_at_every_cut(hidden: str) -> None:
    text = f"{hidden}4111&#49;11111111111 {hidden}ann%40initech.org"
    released = said(PII, [text])
    assert "4111" not in released
    assert "ann%40" not in released
    for pieces in (list(text), *ways_to_cut(text, random.Random(2), 10)):
        assert said(PII, pieces) == released


@pytest.mark.parametrize("hidden", ["\u200b", "\u00ad" * 8, "&shy;"])
def test_a_private_key_goes_on_after_hidden_characters(hidden: str) -> None:
    lines = "MIIEpAIBAAKCAQEA1c7x9z5Pad7OejecsQ0bu3aozN3tihPmljnnudb9G3HE\nlWu2a1gB9JW5TBQzAVpum9Ok"
    text = f"-----BEGIN PRIVATE KEY-----\n{hidden.join(lines)}\n-----END PRIVATE KEY----- ok"
    for pieces in ([text], list(text), [text[i : i + 3] for i in range(0, len(text), 3)]):
        assert said(SECRETS, pieces) == "[PRIVATE_KEY] ok"


@pytest.mark.parametrize("guard", [PII, Phrases(["ab"]), Patterns(["ab"])])
@pytest.mark.parametrize("channel", ["content", "tool_call"])
@pytest.mark.parametrize("escape", [r"\ud83０\ude00", r"\u００40", "%c３%a9", r"\x４０"])
def test_only_ascii_digits_make_an_escape(guard: SpanGuard, channel: Any, escape: str) -> None:
    played = play(guard, stream_of([escape], channel=channel))
    assert escape in (played.content, *(arguments for _, arguments in played.tool_calls))


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
    (Phrases(PHRASES), 'project <a href="http://initech.com/">bluebird</a>', "[phrase]</a>"),
    (
        Phrases(PHRASES),
        r'{"a": "hun<\/b>ter2, <b>proj<\\/b>ect bluebird"}',
        r'{"a": "[phrase], <b>[phrase]"}',
    ),
    (Phrases(["f***", "snake_case"]), "f*** f snake_case snakecase", "[phrase] f [phrase] snakecase"),
    (Secrets(), rf"x\n{KEY}\n", r"x\n[OPENAI_KEY]\n"),
    (Secrets(), rf"\u0073k-{KEY[3:]}", "[OPENAI_KEY]"),
    (Pii(), r"mail:\nann\u0040initech.org", r"mail:\n[EMAIL_ADDRESS]"),
    (Pii(), r"mail:\nann@initech.org, \\tbob@initech.org", r"mail:\n[EMAIL_ADDRESS], \\t[EMAIL_ADDRESS]"),
    (Pii(), r"\\nann@initech.org or \u0061nn@initech.org", r"\\n[EMAIL_ADDRESS] or [EMAIL_ADDRESS]"),
    (Pii(), r"Zoe \u003czoe@initech.com\u003e", r"Zoe \u003c[EMAIL_ADDRESS]\u003e"),
    (Pii(), r"to: \nzoe@initech.com@b.de, end", r"to: \n[EMAIL_ADDRESS]@b.de, end"),
    (Patterns([r"\w{1,20}:\w{1,20}"]), r"\nuser:pass:word", r"\n[pattern]:word"),
    (Phrases(PHRASES), r'{"a": "hun<b class=\"x\">ter2</b>"}', r'{"a": "[phrase]</b>"}'),
    (Pii(), r"card\n4111\u00201111 1111 1111", r"card\n[CREDIT_CARD]"),
    (Patterns([r"\bT-\d{6}\b"]), r"\nT-123456\t \u0054-123456.", r"\n[pattern]\t [pattern]."),
    (Pii(), "ann%40initech.org, bob%2540initech.org", "[EMAIL_ADDRESS], [EMAIL_ADDRESS]"),
    (Pii(), "?to=%3Cann%40initech.org%3E&cc=1", "?to=%3C[EMAIL_ADDRESS]%3E&cc=1"),
    (Pii(), "%20nann@initech.org", "%20[EMAIL_ADDRESS]"),
    (Pii(), "ann&#64;initech&period;org&gt;", "[EMAIL_ADDRESS]&gt;"),
    (Pii(), "ann&amp;#64;initech.org, bob&amp;amp;commat;initech.org", "[EMAIL_ADDRESS], [EMAIL_ADDRESS]"),
    (Pii(), "is 4111\u00a01111\u202f1111\u20071111.", "is [CREDIT_CARD]."),
    (Pii(), "is ４１１１-1111\u20111111\u20121111.", "is [CREDIT_CARD]."),
    (Pii(), "is 4111 1111\n    1111 1111.", "is [CREDIT_CARD]."),
    (Pii(), "is 4111 11\u200b11 1\u00ad111 111\u20601\u200b.", "is [CREDIT_CARD]\u200b."),
    (Pii(), r"is 4111 11\u200b11 1111 1111\u200b\u20601.", r"is [CREDIT_CARD]\u200b\u20601."),
    (Pii(), r"ann\x40initech.org", "[EMAIL_ADDRESS]"),
    (Secrets(), f"is {KEY[:9]}\u200b{KEY[9:]}.", "is [OPENAI_KEY]."),
    (Secrets(), PRIVATE_KEY.replace("9", "\u00ad9").replace("D P", "D \u00adP") + ".", "[PRIVATE_KEY]."),
    (Secrets(), f"is {KEY[:14]}\n      {KEY[14:]}.", "is [OPENAI_KEY]."),
    (Secrets(), "is \u0410KI\u0410" + KEY_ID[4:] + ".", "is [AWS_ACCESS_KEY]."),
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
    *(
        "%",
        "%4",
        "61",
        "%61",
        "%25",
        "%C3%A4",
        "&",
        "&#97;",
        "&amp;",
        ";",
        "\n ",
        "\r",
        "1",
        "\u00ad",
        "１",
        "а",
    ),
    *(r"\u200b", "%E2%80%8B", "&shy;", "\u2060", "%31", "11", "#49;"),
    *(f"<b {'c' * 40}>", f"]({'c' * 50})", "d " * 10),
]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=20).map("".join)
REQUEST = make_request(messages=({"role": "system", "content": "a b ab 1. ba b<br>a"},))
PROMPT = str(REQUEST.messages[0]["content"])
RULES = [Rule("ones", "1{2,5}"), Rule("a", "(?<=b)a{1,3}"), Rule("from b", "b1{1,2}", until="a1")]
DIGITS = SpanGuard(Reader(RuleDetector(RULES), KEYS))
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
            Pii(),
        )
    ),
    (DIGITS, DIGITS.detector),
]


@given(st.integers(0, len(GUARDS) - 1), TEXTS, PLACES)
@example(1, "\n2) ", [1, 2])
@example(5, r"11\u200b\u200b\u00311", [*range(1, 20)])
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


@given(
    st.sampled_from([ESCAPES, MARKUP, LOOSE, VALUES]),
    st.lists(st.sampled_from([*PARTS, "x " * 60]), max_size=30),
)
@example(MARKUP, ["<b", "x " * 60, "a b", "<", "b>", "x " * 60, "a", " ", "b", "*"])
def test_a_search_of_new_text_finds_what_a_search_of_all_text_finds(reading: Any, pieces: list[str]) -> None:
    reader = Reader(PhraseDetector(["a b", "ab", "b a"]), reading)
    excerpt = Excerpt(is_json=False)
    for piece in pieces:
        text = excerpt.text + piece
        matches, undecided = expected = reader.scan(text, excerpt.start, False)
        assert reader.follow(excerpt, text) == expected
        if matches:  # the excerpt is no longer plain
            excerpt = Excerpt(is_json=False)
        else:
            excerpt.go_on(text, undecided, 300)


@given(TEXTS, st.sampled_from([ESCAPES, MARKUP, LOOSE, VALUES]), st.integers(0, 60))
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
