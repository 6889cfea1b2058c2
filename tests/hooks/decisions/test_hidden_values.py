"""No decision has a caller's value, however its stream is cut and withheld (contract 3.18, 9.1)."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Deltas, GenerationRequest
from hooks import Chunk, Decision, Verdict, emit, hold, redact, suppress
from hooks.decisions.hidden_values import PIECE, HiddenValues
from hooks.testing.play import collect
from tests.helpers import examples, make_deltas, make_request, pipeline_of

MAIL = "alice@initech.com"
QUOTED = 'the "boß" of a/b, ß"é"ß'


@pytest.fixture
def mode() -> str:
    return "in-process"


class Withholds:
    """Says what the caller's values are, withholds text of the answer, and keeps what decisions say."""

    def __init__(self, verdict: Callable[[Chunk], Verdict], values: Iterable[str]) -> None:
        self.verdict = verdict
        self.values = {f"[{i}]": value for i, value in enumerate(values)}
        self.told: list[Decision] = []

    def on_request(self, request: GenerationRequest, state: dict[Any, Any]) -> GenerationRequest:
        state["caller_values"] = self.values
        return request

    def __call__(self, chunk: Chunk) -> Verdict:
        return self.verdict(chunk)

    def on_decision(self, decision: Decision) -> None:
        self.told.append(decision)


def withheld(verdict: Callable[[Chunk], Verdict], pieces: Iterable[str], *values: str) -> list[str]:
    hook = Withholds(verdict, values)

    async def generate(_: GenerationRequest) -> Deltas:
        for delta in make_deltas(pieces):
            yield delta

    asyncio.run(collect(pipeline_of(hook), make_request(), generate))
    return [one.withheld for one in hook.told if one.num_withheld]


def cut(text: str, places: Iterable[int]) -> list[str]:
    ends = [0, *sorted({place % len(text) for place in places} - {0}), len(text)]
    return [text[a:b] for a, b in pairwise(ends)]


def every_character(chunk: Chunk) -> Verdict:
    return redact([(i, i + 1, "") for i in range(len(chunk.pending))])


def every_other_time(chunk: Chunk) -> Verdict:
    """Holds until it has five characters, and then keeps two of them back."""
    if len(chunk.pending) < 5 and not chunk.is_final:
        return hold()
    return suppress() if chunk.is_final else redact([(0, len(chunk.pending) - 2, "")], hold=2)


FORMS = [MAIL, QUOTED, json.dumps(QUOTED)[1:-1], json.dumps(QUOTED, ensure_ascii=False)[1:-1], "a\\/b"]


@pytest.mark.parametrize("verdict", [lambda _: suppress(), every_character, every_other_time])
@examples(160)
@given(
    form=st.sampled_from(FORMS),
    around=st.tuples(st.text("al ic", max_size=6), st.text("om .", max_size=6)),
    places=st.lists(st.integers(0, 60)),
)
def test_no_decisions_together_have_a_part_of_a_value(
    verdict: Callable[[Chunk], Verdict], form: str, around: tuple[str, str], places: list[int]
) -> None:
    """Fewer than `PIECE` characters in a row: nothing says yet how a stream goes on that has begun so."""
    text = form.join(around)
    told = "".join(withheld(verdict, cut(text, places), MAIL, QUOTED))
    assert len(told) == len(text)
    parts = {form[i : i + PIECE] for i in range(len(form) - PIECE + 1)}
    assert [part for part in parts if part in told] == []


def test_a_part_of_a_value_is_hidden_wholly() -> None:
    for pieces in (["ali", "ce@", "ini", "tech", ".co", "m"], list(MAIL), ["ce@ini"], ["ali"]):
        assert "".join(withheld(lambda _: suppress(), pieces, MAIL)) == "*" * len("".join(pieces))


def test_all_other_text_is_told() -> None:
    assert withheld(lambda _: suppress(), ["to your ", "boss at example"], QUOTED) == [
        "to your ",
        "boss at example",
    ]
    assert withheld(lambda _: suppress(), ["say Bo", "b!", "bo"], "Bob", "") == ["say Bo", "*!", "bo"]


def test_text_that_was_delivered_is_no_part_of_what_is_withheld() -> None:
    def verdict(chunk: Chunk) -> Verdict:
        return emit(chunk.pending) if chunk.text_diff == "ali-" else suppress()

    assert withheld(verdict, ["ali-", "ce is here"], MAIL) == ["ce is here"]


def test_many_values_cost_once() -> None:
    values = {f"[{i}]": f"person{i:05}@{i * 7919:09}.example.org" for i in range(4000)}
    hidden = HiddenValues(values)
    assert hidden.hide("is person01234@ here") == "is ************ here"
    start = time.process_time()
    for _ in range(100):
        hidden.hide("nothing of it", "is")
        hidden.hide_part("zz")
    assert time.process_time() - start < 0.5  # sorting them all and escaping each took 50 ms a time


def test_values_that_come_later_are_hidden() -> None:
    values = {"[0]": MAIL}
    hidden = HiddenValues(values)
    assert hidden.hide("for Robert") == "for Robert"
    values["[1]"] = "Robert"
    assert hidden.hide("for Robert") == "for ******"
