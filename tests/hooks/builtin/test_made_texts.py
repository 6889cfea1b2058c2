"""Guards that go by rules find what they are for in made texts, and it comes out the same at every cut."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import pii_samples, secret_samples
from benchmarks.detection import measure, samples_of
from benchmarks.samples import Kind
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.detect.span_guard import SpanGuard
from tests.helpers import draws, examples, text_of
from tests.hooks.builtin.streams import (
    PLACES,
    SELDOM_IN_A_WORKER,
    Watch,
    assert_untouched,
    cut,
    replaced,
    run,
    run_all,
    ways_to_cut,
)

GUARDS: dict[str, tuple[SpanGuard, tuple[Kind, ...]]] = {
    "pii": (Pii(), pii_samples.KINDS),
    "secrets": (Secrets(), secret_samples.KINDS),
}
TEXTS = {
    name: [sample.text for _, sample in samples_of(kinds, seed=12, count=12)]
    for name, (_, kinds) in GUARDS.items()
}


BY_KIND = [(name, kind) for name, (_, kinds) in GUARDS.items() for kind in kinds]


@pytest.mark.parametrize("mode", ["no stream"], indirect=True)
@pytest.mark.parametrize(("name", "kind"), BY_KIND, ids=[kind.entity for _, kind in BY_KIND])
def test_each_entity_is_found_and_little_else(name: str, kind: Any) -> None:
    """Less than the figures that the README states, of which `make bench NAME=detection` tells."""
    score = measure(GUARDS[name][0].detector, [kind], seed=11, count=100)
    assert score.recall(kind.entity) >= 0.97, score.wrong
    assert score.precision(kind.entity) >= 0.97, score.wrong


@SELDOM_IN_A_WORKER
@pytest.mark.parametrize("name", GUARDS)
def test_made_texts_come_out_the_same_at_every_cut(name: str) -> None:
    rng = random.Random(13)
    detector = GUARDS[name][0].detector
    watch = Watch(GUARDS[name][0])
    for text in rng.sample(TEXTS[name], draws(150)):
        matches, _ = detector.scan(text)
        for out in run_all(watch, ways_to_cut(text, rng, 2)):
            assert text_of(out) == replaced(text, matches)
    assert watch.most_held <= detector.longest


@pytest.mark.parametrize("name", GUARDS)
@examples(100)
@given(st.data(), PLACES, st.sampled_from(["", " ", "\n"]))
def test_where_a_stream_is_cut_changes_nothing(
    name: str, data: st.DataObject, places: list[int], between: str
) -> None:
    guard, _ = GUARDS[name]
    text = between.join(data.draw(st.lists(st.sampled_from(TEXTS[name]), min_size=1, max_size=3)))
    pieces = cut(text, places)
    matches, _ = guard.detector.scan(text)
    out = run(guard, pieces)
    assert text_of(out) == replaced(text, matches)
    assert_untouched(out, pieces, matches)
