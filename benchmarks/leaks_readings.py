"""Does it matter where a text is cut within its escapes and markup? A part of `make bench NAME=leaks`.

Random texts of escapes, markup, invisible characters and their parts go through guards of a few short rules,
in each reading. Short rules match such a text almost anywhere, so a cut that changes the reading shows. The
texts are judged as those of `benchmarks.leaks_families`.
"""

import random
from collections.abc import Iterator

from benchmarks.cases.finders import cut_by
from benchmarks.leaks_families import problem
from hooks.detect.readings import ESCAPES, KEYS, LOOSE, MARKUP, VALUES, Reader
from hooks.detect.rules import Rule, RuleDetector
from hooks.detect.span_guard import SpanGuard

_PARTS = (
    *(
        "a",
        "b",
        "1",
        "1",
        "2",
        "11",
        "12",
        "ab1",
        "a:1",
        " 1",
        " ",
        "-",
        ":",
        "１",
        "а",
        "٣",
        "\u2007",
        "\u2011",
    ),
    *("\r", "\n ", "\n    ", "\r\n ", r"\n", "\u200b", "\u00ad", "\u2060", r"\u200b", r"\u00ad", "&shy;"),
    *("%E2%80%8B", "%C2%AD", "%31", "%2531", "&#49;", "&amp;#49;", r"\u0031", r"\\u0031", r"\x31"),
    *("\\", "%", "&", "<b>", "*"),
)
_RULES = (
    [Rule("A", "1{2,5}"), Rule("B", "(?<=b)a{1,3}"), Rule("C", "b1{2}", until="a1")],
    [
        Rule("A", r"(?<![^\W_])1[1 -]{2,6}1(?![^\W_])"),
        Rule("B", "2{2,4}", near="ab"),
        Rule("C", "1{1,3}", behind="a:"),
    ],
    [
        Rule("A", r"(?<!\w)a[\w-]{3,9}(?!\w)", length=lambda text: len(text.rstrip("b"))),
        Rule("B", r"1-?1-?2(?![\w-])"),
        Rule("C", "[a1]{4,400}", max_length=8),
    ],
    [
        Rule("A", "1{3}(?:[ -]?1{2}){0,3}", until="2b"),
        Rule("B", "(?<=:)[^ ]{1,4}(?=1)", behind="a:"),
        Rule("C", "a{1,9}b?", unless="1"),
    ],
    [
        Rule("A", r"b[\s\S]{0,3}a", near="1 1|22"),
        Rule("B", r"[\w-]{2,6}+(?![\w-])", length=lambda text: text.find("1") + 1),
    ],
)


class _Alone(RuleDetector):
    """Finds no value where it comes again by itself: `benchmarks.leaks_again` tries that."""

    is_worded = None  # type: ignore[assignment]


def guards() -> Iterator[SpanGuard]:
    for reading in (ESCAPES, MARKUP, LOOSE, VALUES, KEYS):
        for rules in _RULES:
            yield SpanGuard(Reader(_Alone(rules), reading))


async def run(num_texts: int, seed: int) -> int:
    """Run so many texts, each whole and cut short. Returns the matches in them. Raises `AssertionError`."""
    rng = random.Random(seed)
    every = list(guards())
    num_found = 0
    for _ in range(num_texts):
        guard = rng.choice(every)
        text = "".join(rng.choices(_PARTS, k=rng.randint(1, 14)))
        spans = cut_by(guard.detector, text)
        num_found += len(spans)
        wrong = await problem(rng, guard, text, spans)
        assert wrong is None, f"{text!r}: {wrong}"
    return num_found
