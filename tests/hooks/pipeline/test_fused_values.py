"""Values that only the words before them show are found after guards that one screen reads for."""

import random
from collections.abc import Sequence
from functools import cache
from itertools import permutations
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.families import every_entity, families
from engine.protocol import Delta
from hooks.builtin.links import Links
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from tests.helpers import examples
from tests.hooks.builtin.streams import cut
from tests.hooks.pipeline.test_fused import REQUEST, deltas_of, everything


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no worker"


class Sample(NamedTuple):
    """A text, and the place of a value in it that `guard` finds because of the words before the value."""

    guard: Any
    text: str
    start: int
    end: int


@cache
def samples() -> list[Sample]:
    """One text of each family of each guard."""
    rng = random.Random(48)
    found: list[Sample] = []
    for guard in (every_entity(), Secrets()):
        for family in families(guard):
            if family.rule.near or family.rule.behind or family.rule.also:
                before, value, after = family.text(rng)
                begin = rng.choice(("Here is ", "Well: ", "So it was, and the "))
                text = f"{begin}{before}{value}{after} and that was all."
                found.append(Sample(guard, text, len(begin + before), len(begin + before + value)))
    return found


OTHERS: Sequence[Any] = (
    Phrases(["the weir", "blue heron"]),
    Phrases(["quiet harbour"], action="suppress"),
    Patterns({"ticket": "T-[0-9]{6}"}),
    Pii(),
    Secrets(),
    Links(allow=["ok.example"]),
)


def test_there_are_samples_of_many_families() -> None:
    assert len(samples()) > 100
    assert len({sample.guard for sample in samples()}) == 2


@given(
    number=st.integers(0, 10_000),
    others=st.lists(st.sampled_from(OTHERS), min_size=1, max_size=2),
    places=st.lists(st.integers(1, 200), max_size=12),
    with_tokens=st.booleans(),
)
@examples(120)
def test_a_value_is_found_whatever_other_guards_there_are(
    number: int, others: list[Any], places: list[int], with_tokens: bool
) -> None:
    guard, text, start, end = samples()[number % len(samples())]
    words = [place for place in range(start) if text[place] == " "]
    pieces = cut(text, [*words, start, *places])
    deltas = [*deltas_of(pieces, with_tokens=with_tokens, channel="content"), Delta(finish_reason="stop")]
    for order in permutations([guard, *others]):
        hooks = [(hook, False) for hook in order]
        ours = everything(hooks, deltas, REQUEST, joint=True)
        assert ours == everything(hooks, deltas, REQUEST, joint=False)
        assert text[start:end] not in ours[0][0] or end - start < 6
