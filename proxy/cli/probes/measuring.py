"""Findings of a probe in labelled replies: the running scores of the guard `probe`, a threshold, shares."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from torch import Tensor

from engine.execution.probes.probe_file import Probe
from engine.protocol.probe_info import Calibration, Smoothing
from hooks.builtin.probe_scores.reader import ScoreReader
from proxy.cli.labelled.share import Share
from proxy.cli.probes.training import logits


@dataclass(frozen=True, slots=True)
class RunningScores:
    """One reply's running scores."""

    scores: tuple[float, ...]
    """After each token, and at the end. Minus infinity where there is none yet."""
    label: int

    @property
    def greatest(self) -> float:
        return max(self.scores, default=-math.inf)

    def first_at(self, threshold: float) -> int | None:
        """Tokens read until the running score reaches the threshold. None: it never does."""
        return next((i for i, score in enumerate(self.scores, 1) if score >= threshold), None)


def running_scores(
    probe: Probe, inputs: Iterable[Tensor], labels: Iterable[int], smoothing: Smoothing, span: int
) -> Iterator[RunningScores]:
    """`inputs`: each reply's activations, `[tokens, inputs]`. An attention probe needs no smoothing."""
    mean, scale = probe.tensors["mean"], probe.tensors["scale"]
    read_as = Calibration(threshold=math.inf, smoothing=smoothing, span=span)
    for one, label in zip(inputs, labels, strict=True):
        scores = logits(probe.info.kind, probe.tensors, (one - mean) / scale).tolist()
        reader = ScoreReader(probe.info, (probe.info,), read_as)
        findings = [*(reader.add(tuple(of_token)) for of_token in scores), reader.end()]
        yield RunningScores(tuple(-math.inf if score is None else score for _, score in findings), label)


def calibration(
    harmless: Sequence[RunningScores], false_positive_rate: float, smoothing: Smoothing, span: int
) -> Calibration:
    """The lowest threshold that at most this share of harmless replies reaches. Raises `ValueError` if there
    are none."""
    if not harmless:
        raise ValueError("calibration needs exchanges with the label 0")
    greatest = sorted((one.greatest for one in harmless), reverse=True)
    num_allowed = math.floor(false_positive_rate * len(greatest))
    above = greatest[min(num_allowed, len(greatest) - 1)]
    threshold = math.nextafter(above, math.inf)
    num_found = sum(score >= threshold for score in greatest)
    return Calibration(
        threshold=threshold,
        smoothing=smoothing,
        span=span,
        false_positive_rate=num_found / len(greatest),
        interval=Share(num_found, len(greatest)).interval,
        num_streams=len(greatest),
    )


def calibrated(probe: Probe, measured: Calibration) -> Probe:
    """The probe with another calibration."""
    return replace(probe, info=replace(probe.info, calibration=measured))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The findings of a probe at its threshold, in replies that it has not seen."""

    threshold: float
    detected: Share
    """The replies with the label that the probe finds."""
    false_positives: Share
    """The other replies that it finds."""
    median_tokens: int | None
    """Tokens of a reply that the probe reads until it finds the reply, in the median. None: it finds none."""
    auroc: float | None
    """The share of pairs of replies, one with the label and one without, that their greatest running scores
    put in the right order. None: there is no such pair."""


def report(scored: Sequence[RunningScores], threshold: float) -> Report:
    offensive = [one for one in scored if one.label]
    harmless = [one for one in scored if not one.label]
    delays = sorted(delay for one in offensive if (delay := one.first_at(threshold)) is not None)
    num_wrong = sum(one.greatest >= threshold for one in harmless)
    return Report(
        threshold=threshold,
        detected=Share(len(delays), len(offensive)),
        false_positives=Share(num_wrong, len(harmless)),
        median_tokens=delays[len(delays) // 2] if delays else None,
        auroc=_auroc([one.greatest for one in offensive], [one.greatest for one in harmless]),
    )


def _auroc(higher: Sequence[float], lower: Sequence[float]) -> float | None:
    if not higher or not lower:
        return None
    ranked = sorted([(score, 1) for score in higher] + [(score, 0) for score in lower])
    right, num_below = 0.0, 0
    for _, tied in groupby(ranked, key=lambda one: one[0]):
        labels = [label for _, label in tied]
        num_lower = labels.count(0)
        right += (len(labels) - num_lower) * (num_below + num_lower / 2)
        num_below += num_lower
    return right / (len(higher) * len(lower))
