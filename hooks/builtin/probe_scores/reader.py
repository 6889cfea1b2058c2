"""Compares the running scores of one text with a threshold."""

from collections.abc import Callable, Collection, Sequence

from engine.protocol import Calibration, ProbeInfo, Scores
from hooks.builtin.probe_scores.smoothing import AttentionMean, RunningScore, running_score

Read = Callable[[Scores | None], float | None]
"""Returns the running score of one label after a token with these scores. With None, at the stream's end, it
returns the last score."""


Finding = tuple[str | None, float | None]
"""The first label whose running score reaches the threshold, and the greatest running score. `max_of_means`
has no score before its first whole window."""


class ScoreReader:
    """Reads one text's scores, token by token."""

    def __init__(
        self,
        info: ProbeInfo,
        probes: Sequence[ProbeInfo],
        calibration: Calibration,
        labels: Collection[str] | None = None,
    ) -> None:
        """`info`: the probe, one of the model's `probes`. `calibration`: threshold, smoothing and span; an
        attention probe needs only the threshold. `labels`: those that count (None: all)."""
        first = sum(len(one.score_names) for one in probes[: probes.index(info)])
        is_attention = info.kind == "attention"
        self._columns: list[tuple[str, Read]] = []
        for at, label in enumerate(info.labels, first + is_attention):
            if labels is None or label in labels:
                running = running_score(calibration.smoothing, calibration.span)
                self._columns.append(
                    (label, _attended(first, at) if is_attention else _smoothed(at, running))
                )
        self._threshold = calibration.threshold

    def end(self) -> Finding:
        """The text has ended."""
        return self.add(None)

    def add(self, scores: Scores | None) -> Finding:
        """Read one more token. None: as `end`."""
        label: str | None = None
        greatest: float | None = None
        for one, read in self._columns:
            value = read(scores)
            if value is None:
                continue
            greatest = value if greatest is None else max(greatest, value)
            # NaN is not below the threshold either.
            if label is None and not value < self._threshold:
                label = one
        return label, greatest


def _smoothed(column: int, running: RunningScore) -> Read:
    return lambda scores: running.end() if scores is None else running.add(scores[column])


def _attended(weight: int, column: int) -> Read:
    mean = AttentionMean()
    return lambda scores: None if scores is None else mean.add(scores[weight], scores[column])
