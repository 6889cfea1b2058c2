"""Training a probe, its threshold and the report: on made activations, where the right answer is known."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.probes.probe_file import Probe
from engine.protocol.probe_info import ProbeInfo, ProbeKind
from proxy.cli.probes.measuring import RunningScores, calibration, report, running_scores
from proxy.cli.probes.training import Replies, fit

SPAN = 3
NUM_INPUTS = 6


def replies(seed: int, count: int = 120) -> tuple[list[torch.Tensor], list[int]]:
    """Noise. In every second reply, a few tokens in a row have a large first input."""
    generator = torch.Generator().manual_seed(seed)
    inputs, labels = [], []
    for i in range(count):
        length = 6 + i % 20
        one = torch.randn(length, NUM_INPUTS, generator=generator)
        if label := i % 2:
            start = i % (length - 4)
            one[start : start + 4, 0] += 6.0
        inputs.append(one)
        labels.append(label)
    return inputs, labels


@pytest.mark.parametrize("kind", ["linear", "mlp", "attention"])
def test_a_probe_finds_a_planted_pattern_in_replies_that_it_has_not_seen(kind: ProbeKind) -> None:
    tensors = fit(Replies(*replies(1)), kind, span=SPAN, seed=0)
    probe = Probe(ProbeInfo(name="p", kind=kind, labels=("p",)), ("model.norm",), "m", "hash", tensors)
    unseen, labels = replies(2)
    scored = [*running_scores(probe, unseen, labels, "rolling_mean", SPAN)]
    known = calibration([one for one in scored if not one.label], 0.05, "rolling_mean", SPAN)
    found = report(scored, known.threshold)
    assert (found.detected.value or 0) >= 0.95
    assert (found.false_positives.value or 0) <= 0.05
    assert found.auroc is not None
    assert found.auroc >= 0.99


@pytest.mark.slow
def test_the_same_seed_gives_the_same_probe() -> None:
    one, other = (fit(Replies(*replies(1, 20)), "mlp", span=SPAN, seed=5) for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_exchanges_of_one_label_teach_nothing() -> None:
    inputs, _ = replies(1, 4)
    with pytest.raises(ValueError, match="label 0"):
        Replies(inputs, [1, 1, 1, 1])


SCORES = st.lists(st.floats(-50, 50), min_size=1, max_size=60)


@given(SCORES, st.floats(0, 0.99))
def test_a_threshold_finds_no_more_harmless_replies_than_asked(scores: list[float], rate: float) -> None:
    harmless = [RunningScores((score,), 0) for score in scores]
    known = calibration(harmless, rate, "ema", 4)
    num_found = sum(score >= known.threshold for score in scores)
    assert num_found <= rate * len(scores)
    assert known.false_positive_rate == num_found / len(scores)


@given(SCORES, SCORES)
def test_the_auroc_is_the_share_of_pairs_in_order(higher: list[float], lower: list[float]) -> None:
    scored = [RunningScores((x,), 1) for x in higher] + [RunningScores((x,), 0) for x in lower]
    pairs = [1.0 if x > y else 0.5 if x == y else 0.0 for x in higher for y in lower]
    assert report(scored, 0.0).auroc == pytest.approx(sum(pairs) / len(pairs))


def test_a_reply_shorter_than_a_whole_window_is_judged_at_its_end() -> None:
    info = ProbeInfo(name="p", kind="linear", labels=("p",))
    tensors = {"mean": torch.zeros(1), "scale": torch.ones(1)}
    tensors |= {"weight": torch.ones(1, 1), "bias": torch.zeros(1)}
    probe = Probe(info, ("model.norm",), "m", "hash", tensors)
    (scored,) = running_scores(probe, [torch.tensor([[1.0], [3.0]])], [1], "max_of_means", 4)
    assert scored.scores == (-math.inf, -math.inf, 2.0)
    assert scored.first_at(2.0) == 3
