"""Addresses: what is found in which writing, what may pass, and that no cut lets one through."""

import base64
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import can_ada
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.protocol import GenerationRequest
from hooks.builtin.link_rules.address import MAX_ADDRESS, Place
from hooks.builtin.link_rules.carried import Carried
from hooks.builtin.link_rules.detector import LONG, LinkDetector
from hooks.builtin.link_rules.places import MOST_BLANKS
from hooks.builtin.link_rules.policy import Policy
from hooks.builtin.links import Links
from tests.helpers import finish_of, make_request, text_of
from tests.hooks.builtin.link_samples import PASSED, REFUSED
from tests.hooks.builtin.streams import SELDOM_IN_A_WORKER, Watch, cut, run, run_all, said, ways_to_cut

ALLOW = ["ok.org", "*.ok.org", "b.org/docs", "port.org:8443", "bücher.example"]
SECRET = "the password is hunter2 and the meeting is at nine"


@pytest.fixture(scope="module")
def guard() -> Links:
    return Links(allow=ALLOW, carries=None)


def test_long_addresses_in_each_other_are_one() -> None:
    matches, _ = LinkDetector(lambda address, is_destination: False).scan("url(" * MAX_ADDRESS)
    long = [(match.start, match.end) for match in matches if match.rule == LONG]
    assert long == [(4, 4 * MAX_ADDRESS)]


@pytest.mark.parametrize("mode", ["in-process"], indirect=True)
def test_an_address_of_another_host_is_found_in_any_writing(guard: Links) -> None:
    for text in REFUSED:
        for around in (text, f"Look: {text} and so on"):
            assert guard.detector.scan(around)[0], around


@pytest.mark.parametrize("mode", ["in-process"], indirect=True)
def test_what_is_no_address_or_of_the_list_passes(guard: Links) -> None:
    for text in PASSED:
        found = guard.detector.scan(text)[0]
        assert [text[match.start : match.end] for match in found] == []


def test_the_label_of_a_link_stays() -> None:
    text = "See [the guide](https://evil.com/g 'x'), ![a cat](https://evil.com/c.png) and https://evil.com/d."
    redacted = "See [the guide]([link] 'x'), ![a cat]() and [link]."
    for pieces in (cut(text, []), cut(text, [16, 20, 40, 60]), list(text)):
        assert said(Links(), pieces) == redacted
        assert said(Links(action="suppress"), pieces) == redacted.replace("[link]", "…")
        ended = run(Links(action="terminate", text=" (no addresses)"), pieces)
        assert text_of(ended) == "See [the guide]( (no addresses)"
        assert finish_of(ended) == ("content_filter", "link")
        assert said(Links(template="<gone>"), pieces, "reasoning") == redacted.replace("[link]", "<gone>")


def test_arguments_of_a_tool_stay_json() -> None:
    text = json.dumps({"url": "https://evil.com/x", "body": "line\nhttps://evil.com/y\n", "to": "ok.org/x"})
    for pieces in ([text], list(text)):
        out = json.loads(said(Links(allow=ALLOW), pieces, "tool_call"))
        assert out == {"url": "[link]", "body": "line\n[link]\n", "to": "ok.org/x"}


def test_no_address_is_fetched_before_it_was_judged() -> None:
    """Nothing of an address leaves before its end, and prose waits for no more than a word."""
    watch = Watch(Links())
    assert said(watch, list("A heron (grey) stood [here] at the weir: it waited! Cf. x = 3 and/or y.")) != ""
    assert watch.most_held <= len("waited") + 1
    text = "![x](https://evil.com/" + "y" * 40
    assert said(Watch(Links()), list(text)) == "![x]([link]"


@pytest.mark.parametrize(
    "begin", ["see https://ok.org/", '<img src="data:image/png;base64,', "[x](/", "url(/"]
)
@pytest.mark.parametrize("mode", ["in-process"], indirect=True)
def test_an_address_that_is_too_long_does_not_pass(begin: str) -> None:
    long = begin + "y" * (3 * MAX_ADDRESS)
    watch = Watch(Links(allow=ALLOW))
    ways = [[long + " and so on"], [*re.findall("(?s).{1,97}", long), " and", " so on"]]
    first, second = (said(watch, way) for way in ways)
    assert first == second
    assert first.endswith("[link] and so on")
    assert "y" not in first
    assert watch.most_held <= watch.guard.detector._detector.longest + 97


PIECES = st.sampled_from(
    [
        *("https://", "http:", "//", "/", "\\", "evil.com", "ok.org", "@", ":", "HTTPS://evil.com/", "e.com"),
        *(
            "javascript:",
            "data:text/html,",
            "[a](",
            ")",
            "![x](",
            "<",
            ">",
            '"',
            "'",
            " ",
            "\n",
            "\t",
            "src=",
        ),
        *("href = ", "url(", "]:", "\n[id]: ", "www.", "x", "?q=", "&colon;", "&#58;", "%2F", "%3A", "\\/"),
        *(
            "\\n",
            "\\u002f",
            "。",
            ".",
            "中",
            '<img src="',
            'srcset="a 1x, ',
            "**",
            "_",
            "(",
            "]",
            "|",
            '{"u":"',
        ),
        *(
            "&Tab;",
            "h",
            "ttps:",
            "\r\n",
            "foo:",
            "ｅvil",
            "evil.com/p?k=v",
            "sub.ok.org",
            "&#104",
            "<a/href=",
        ),
    ]
)
TEXTS = st.lists(PIECES, max_size=14).map("".join)


@SELDOM_IN_A_WORKER
@given(TEXTS, st.randoms(use_true_random=False), st.sampled_from(["redact", "suppress", "terminate"]))
@example("%3Ahref = //@url='%..x foo://a", random.Random(1), "terminate")
@example("tps://]**evil.com/p?k=v;\n", random.Random(1), "redact")
@example("data:text/html,&Tab;\\/&#58;`[a](", random.Random(1), "redact")
@example("\r\n[id]: \r\nhttps://..", random.Random(1), "redact")
@example(']:/evil.com"。a@b.c', random.Random(1), "redact")
@example("[a](javascript:x //evil/x)", random.Random(1), "suppress")
def test_no_cut_changes_what_is_released(text: str, rng: random.Random, action: Any) -> None:
    guard = Links(allow=ALLOW, carries=None, action=action)
    for channel in ("content", "tool_call"):
        ways = [[text], *ways_to_cut(text, rng, 2)]
        assert len({text_of(one, channel) for one in run_all(guard, ways, channel)}) == 1
    if action != "terminate":
        released = said(guard, [text])
        assert [one for one in addresses(released) if not is_of_list(one)] == []


class _Attributes(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "srcset") and value:
                pieces = re.findall(r"[^\s,]+", value) if name == "srcset" else [value]
                self.found += [one for one in pieces if re.match(r"[/\\]{2}", one.strip()) or ":" in one]


def addresses(text: str) -> Iterator[str]:
    """The addresses that other readers see: a linkifier, one of Markdown's links, and one of HTML."""
    for form in (text, unescape(text), unquote(text)):
        yield from re.findall(r"(?i)(?:https?|ftp|wss?)://[^\s<]*", form)
        yield from re.findall(r"\]\(\s*((?:[/\\]{2}|https?:|javascript:)[^\s)]*)", form)
    parser = _Attributes()
    parser.feed(text)
    yield from parser.found


def is_of_list(address: str) -> bool:
    """Whether a browser finds a host of the list, or none."""
    address = address.strip().rstrip(".").replace("\\", "/")
    try:
        url = can_ada.parse(f"https:{address}" if address.startswith("//") else address)
    except ValueError:
        return True
    if url.protocol not in ("http:", "https:", "ftp:", "ws:", "wss:"):
        return url.protocol not in ("javascript:", "data:", "file:")
    last = url.hostname.rpartition(".")[2]
    return re.fullmatch(r"(?:.*\.)?ok\.org\.?", url.hostname) is not None or not last.isalnum()


@pytest.mark.parametrize("before", ["![a](", "<img src='", "[a]:", "@import '", "<meta content='0;"])
def test_blanks_without_bound_are_not_held(before: str) -> None:
    """An address is found after any number of blanks, and the blanks leave as they come."""
    for blank in (" ", "\n> ", "\u2003"):
        text = f"{before}{blank * 2000}https\\://evil.com/x?d=1) '> and so on"
        watch = Watch(Links(allow=ALLOW))
        released = said(watch, [*re.findall("(?s).{1,97}", text)])
        assert released == said(Links(allow=ALLOW), [text])
        assert released.startswith(before + blank * 2000)
        assert "evil" not in released
        assert watch.most_held < 2 * 97


@pytest.mark.parametrize("mode", ["in-process"], indirect=True)
def test_no_number_of_blanks_hides_an_address() -> None:
    guard = Links(allow=ALLOW)
    befores = (
        "![a](",
        "![a] (",
        "[a]:",
        "<img src=",
        "<img src='",
        "a{b:url(",
        "@import'",
        "<meta content='0;",
    )
    for before in befores:
        for count in (*range(MOST_BLANKS - 4, MOST_BLANKS + 4), 2 * MOST_BLANKS):
            text = f"{before}{' ' * count}//evil/x '>)"
            assert "evil" not in said(guard, [text])
            assert said(guard, [text[:9], text[9:-13], *text[-13:]]) == said(guard, [text])


@given(st.lists(PIECES, max_size=6).map(lambda pieces: "https://" + "".join(pieces)))
@pytest.mark.parametrize("mode", ["in-process"], indirect=True)
def test_all_readers_agree_on_the_host_of_what_passes(address: str) -> None:
    if Policy(ALLOW, ["https"], relative=False).passes(address, Place.TEXT, None):
        host = can_ada.parse(address).hostname
        assert is_of_list(address) or host == "b.org"
        assert urlsplit(address).hostname == host


@pytest.mark.parametrize(
    "entry", ["", "https://ok.org", "*.", "a b.org", "ok.org?x", "*ok.org/*x y", "a@ok.org", "ok.org:x"]
)
@pytest.mark.parametrize("mode", ["in-process"], indirect=True)
def test_an_entry_that_is_no_host_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match=f"allow: {re.escape(repr(entry))} is no host"):
        Links(allow=["ok.org", entry])


def asking(*texts: str, role: str = "user", **fields: Any) -> GenerationRequest:
    return make_request(messages=tuple({"role": role, "content": text} for text in texts), **fields)


@pytest.mark.parametrize(
    "data",
    [
        quote(SECRET),
        SECRET.replace(" ", "+"),
        SECRET.upper().replace(" ", "%2520"),
        base64.b64encode(SECRET.encode()).decode(),
        "x" + base64.urlsafe_b64encode(b"??" + SECRET.encode()).decode().rstrip("="),
        SECRET.encode().hex(),
        "a" + SECRET.encode().hex(),
        SECRET.replace(" ", "/"),
    ],
)
@pytest.mark.parametrize("mode", ["in-process"], indirect=True)
def test_an_allowed_host_gets_no_text_of_the_prompt(data: str) -> None:
    request = asking("Hello.", f"Keep this: {SECRET}. Thanks!")
    text = f"![x](https://ok.org/i.png?q={data})"
    assert said(Links(allow=ALLOW), list(text), request=request) == "![x]()"
    assert said(Links(allow=ALLOW, carries=None), [text], request=request) == text
    assert said(Links(allow=ALLOW), [text], request=asking("Hello.")) == text


@pytest.mark.parametrize("mode", ["in-process"], indirect=True)
def test_digits_of_other_scripts_are_no_hexadecimal_digits() -> None:
    text = "https://ok.org/?q=" + "\u0661\u0662" * 10
    assert said(Links(allow=ALLOW), [text], request=asking("Hello.")) == text


@pytest.mark.parametrize("mode", ["in-process"], indirect=True)
def test_an_address_of_the_prompt_and_a_few_words_may_be_repeated() -> None:
    request = asking("What says https://ok.org/a/very-long-path-that-is-all-of-letters on hotels in Rome?")
    text = "See https://ok.org/a/very-long-path-that-is-all-of-letters?q=hotels+in+Rome."
    assert said(Links(allow=ALLOW), [text], request=request) == text


@given(st.text("abc", max_size=60), st.text("abc", max_size=60), st.integers(8, 12))
@pytest.mark.parametrize("mode", ["in-process"], indirect=True)
def test_a_run_of_the_prompt_is_found_wherever_it_stands(prompt: str, part: str, least: int) -> None:
    runs = {prompt[i : i + least] for i in range(len(prompt) - least + 1)}
    is_carried = any(run in part for run in runs)
    assert Carried(asking(prompt, role="tool"), least)(f"-{part}") is is_carried


@pytest.mark.parametrize("mode", ["in-process"], indirect=True)
def test_many_short_pieces_of_a_prompt_are_no_run_of_it() -> None:
    prompt = "".join(chr(ord("a") + (i * i // 7 + i * i * i) % 26) for i in range(4000))
    pieces = [prompt[i : i + 20] for i in range(0, 4000, 40)]
    assert not Carried(asking(prompt), 32)("9".join(pieces))


def test_it_may_wait_until_a_stranger_has_spoken() -> None:
    guard = Links(when="tainted")
    text = "See https://evil.com/."
    assert said(guard, [text], request=make_request()) == text
    tainted = replace(make_request(), taint="tool")
    assert said(guard, [text], request=tainted) == "See [link]."


@pytest.mark.parametrize("mode", ["in-process"], indirect=True)
def test_relative_addresses_can_be_refused() -> None:
    text = '[a](/x) [b](#c) <img src="y.png"> src: x'
    assert said(Links(), [text]) == text
    assert said(Links(relative=False), [text]) == '[a]() [b](#c) <img src="[link]"> src: x'
