"""Matches in an output that only the text in front of it shows: by words, look-behinds and boundaries."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks import pii_samples, secret_samples
from benchmarks.detection import samples_of
from engine.protocol import Delta, FinishReason, GenerationRequest
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.detect.detector import Detector, Match
from hooks.detect.lead import MAX_LEAD
from hooks.detect.rules import Rule, RuleDetector
from hooks.detect.span_guard import SpanGuard
from hooks.testing import assert_chunk_invariant, play, stream_of
from hooks.testing.streams import request_for
from tests.helpers import examples, guard_all, make_deltas, pipeline_of, text_of
from tests.hooks.builtin.streams import PLACES, cut
from tests.hooks.detect.test_lead import completion, is_part

TICKET = Patterns({"ticket": r"(?<=Ticket )\d{6}"})
CASES = [
    (Secrets(), "Login with password=", "xK9#mQ2$vT7pLw then go.", "[PASSWORD] then go."),
    (Secrets(), "Login with password", "=xK9#mQ2$vT7pLw then go.", "=[PASSWORD] then go."),
    (Secrets(), "api_key: ", "9fK2mQ7xT4vB8nL1pR6sW3 done.", "[PASSWORD] done."),
    (Secrets(), "postgres://app:", "Zx81kQpw7Lm@db.local/", "[CONNECTION_STRING]@db.local/"),
    (Pii(), "Her BSN is ", "111222333 okay.", "[NL_BSN] okay."),
    (Pii(), "Her BSN", " is 111222333 okay.", " is [NL_BSN] okay."),
    (Pii(), "The TFN: ", "123 456 782 okay.", "[AU_TFN] okay."),
    (TICKET, "Ticket ", "482915 is open.", "[ticket] is open."),
    (TICKET, "Tick", "et 482915 is open.", "et [ticket] is open."),
    # the lead ends within an escape
    (Phrases(["bluebird"]), "Say project\\", "nbluebird now", "n[phrase] now"),
    # no lead hides what is a match by itself
    (Phrases(["bluebird"]), "blue", "bluebird now", "[phrase] now"),
    (Pii(), "Invoice ", "020 7946 0018 is paid", "[PHONE_NUMBER] is paid"),
    (Patterns({"ticket": r"(?<!old )\d{6}"}), "old ", "482915 is open.", "[ticket] is open."),
    # matches of the same rule that overlap
    (Patterns({"number": r"\d{4}"}), "1", "23456789 a", "[number] a"),
    (Patterns({"number": r"\d{4}"}), "12", "3456789 a", "[number]9 a"),
]


@pytest.mark.parametrize("mode", ["the kit's own"], indirect=True)
@pytest.mark.parametrize(("guard", "lead", "output", "released"), CASES)
def test_words_in_the_lead_show_a_match(guard: Any, lead: str, output: str, released: str) -> None:
    for stream, num_random in (
        (stream_of(output, lead=lead), 10),
        # The same lead from other requests: how a guard reads it does not depend on the cuts.
        (stream_of(output, prompt=request_for([{"role": "assistant", "content": lead}])), 0),
        (stream_of(output, prompt=completion(lead)), 0),
    ):
        assert play(guard, stream).content == released  # contract 2.8
        assert_chunk_invariant(guard, stream, num_random=num_random)
    assert_chunk_invariant(guard, stream_of(output, lead=lead, is_cut=True), num_random=0)


@pytest.mark.parametrize(
    ("guard", "lead", "output"),
    [
        (Secrets(), "Use postgres://app:", "Zx81kQpw7Lm"),  # the client's stop string is "@db"
        (Secrets(), "Use postgres://app:Zx8", "1kQpw7Lm"),
        (Secrets(), "Login with password=", "xK9#m"),
        (Pii(), "Her BSN is ", "1112223"),
        (TICKET, "Ticket ", "48291"),
    ],
)
def test_a_beginning_that_words_in_the_lead_show_is_withheld_at_a_cut(
    guard: Any, lead: str, output: str
) -> None:
    assert play(guard, stream_of(output)).content == output
    assert play(guard, stream_of(output, lead=lead, is_cut=True)).content == ""  # contract 3.12


def test_each_action_reaches_a_match_that_the_lead_shows() -> None:
    lead, output = "Login with password=", "xK9#mQ2$vT7pLw then go."
    assert play(Secrets(action="suppress"), stream_of(output, lead=lead)).content == " then go."
    ended = play(Secrets(action="terminate", text="No."), stream_of(output, lead=lead))
    assert (ended.content, ended.finish_reason) == ("No.", "content_filter")


def continued(lead: str) -> GenerationRequest:
    return request_for([{"role": "user", "content": "Go on."}, {"role": "assistant", "content": lead}])


def texts(*kinds: Any) -> list[str]:
    return [sample.text for one in kinds for _, sample in samples_of(one.KINDS, 3, 3) if sample.entity]


PIECES = st.lists(
    st.sampled_from(
        ["Ticket ", "482915", "old ", " ", "x", "-", "12", "\\n", "blue", "bird", "project", "**"]
    ),
    max_size=10,
).map("".join)
PATTERNS = [
    r"(?<=Ticket )\d{6}",
    r"(?<!old )\b\d{3}",
    r"\d{4}",
    r"x-?x|-x-",
    r"(?<=\bblue)bird\b",
    r"(?m)^12",
]
GUARDED: dict[str, tuple[SpanGuard, st.SearchStrategy[str]]] = {
    "pii": (Pii(action="suppress"), st.sampled_from(texts(pii_samples))),
    "secrets": (Secrets(action="suppress"), st.sampled_from(texts(secret_samples))),
    "patterns": (Patterns(PATTERNS, action="suppress"), PIECES),
    "phrases": (Phrases(["project bluebird", "bird", "blue 12"], action="suppress"), PIECES),
}


def withheld(detector: Detector, lead: str, output: str) -> set[int]:
    """The characters of the output that are in a match, in the output or in the text that it continues."""
    matches = detector.scan(output)[0]
    for match in detector.scan(lead + output)[0]:
        matches.append(Match(max(0, match.start - len(lead)), match.end - len(lead), match.entity))
    return {i for match in matches for i in range(match.start, match.end)}


@pytest.mark.parametrize("name", GUARDED)
@given(data=st.data(), places=PLACES, request_for=st.sampled_from([completion, continued]))
@examples(150)
async def test_exactly_the_matches_after_the_lead_are_withheld(
    name: str, data: st.DataObject, places: list[int], request_for: Any
) -> None:
    guard, some = GUARDED[name]
    text = data.draw(some, "text")
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2), "cuts"))
    lead, output, asked = text[:first], text[first:], text[first:last]
    gone = withheld(guard.detector, lead[-MAX_LEAD:], output)

    async def released(output: str, finish: FinishReason) -> str:
        deltas = [*make_deltas(cut(output, places), finish=False), Delta(finish_reason=finish)]
        return text_of(await guard_all(pipeline_of(guard), deltas, request_for(lead)))

    assert await released(output, "stop") == "".join(c for i, c in enumerate(output) if i not in gone)
    allowed = "".join(char for i, char in enumerate(asked) if i not in gone)
    assert is_part(await released(asked, "length"), allowed)


class Counting(RuleDetector):
    def __init__(self) -> None:
        super().__init__([Rule("t", r"(?<=Ticket )\d{6}")])
        self.lengths: list[int] = []

    def scan(self, text: str, *args: Any, **options: Any) -> Any:
        self.lengths.append(len(text))
        return super().scan(text, *args, **options)


@given(
    lead=st.sampled_from(["Ticket ", "Ticket 12", "a" * 9, "1 " * 5000]), word=st.sampled_from(["a ", "1 "])
)
@example(lead="Ticket 482915", word="482915")
@examples(20)
def test_the_lead_is_searched_no_longer_than_the_detector_reads_it(lead: str, word: str) -> None:
    detector = Counting()
    guard = SpanGuard(detector)
    play(guard, stream_of([word] * 200, lead=lead))
    with_lead = len(detector.lengths)
    detector.lengths.clear()
    play(guard, stream_of([word] * 200))
    forms = 2 if lead.endswith(" ") else 1  # as written and trimmed
    assert with_lead <= len(detector.lengths) + forms * (detector.reach + detector.longest + 2)
