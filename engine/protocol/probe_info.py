"""Probes as the rest of Weir sees them: values only. `engine.execution.probes` has the probes themselves.

A probe reads the activations of the served model, and gives every token scores: numbers that say what the
model represents once it has read this token. `Token.scores` has the scores of all probes, one after another.
"""

from dataclasses import dataclass
from typing import Literal

ProbeKind = Literal["linear", "mlp", "attention"]
Smoothing = Literal["ema", "rolling_mean", "max_of_means"]

Scores = tuple[float, ...]
"""One token's scores, in the order of `ModelInfo.score_names`. Each is finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The threshold that was measured for a probe, with the smoothing that it is for."""

    threshold: float
    """The least smoothed score (a logit) that counts as found."""
    smoothing: Smoothing = "ema"
    """The way to a running score: `hooks.builtin.probe_scores`."""
    span: int = 1
    """Tokens that the smoothing spans. 1: a token's score counts alone."""
    false_positive_rate: float | None = None
    """The share of harmless streams that reach the threshold, as measured."""
    interval: tuple[float, float] | None = None
    """Confidence interval of `false_positive_rate`, 95 %."""
    num_streams: int | None = None
    """Harmless streams that were measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeInfo:
    """A probe's outputs, and how they are read."""

    name: str
    kind: ProbeKind
    labels: tuple[str, ...]
    """A label for each of the probe's outputs."""
    calibration: Calibration | None = None
    """None: nobody has calibrated the probe."""

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of the probe's scores. A linear probe or an MLP gives a logit for each label.

        An attention probe gives `NAME.weight` in front of them: the logit of the token's weight. Its output
        for a text is the mean of all tokens' logits, weighted by the softmax of all tokens' weights.
        """
        logits = (self.name,) if len(self.labels) == 1 else tuple(f"{self.name}.{x}" for x in self.labels)
        return (f"{self.name}.weight", *logits) if self.kind == "attention" else logits


@dataclass(frozen=True, slots=True)
class PromptScores:
    """The scores of a prompt's tokens, and the probes that gave them."""

    probes: tuple[ProbeInfo, ...]
    tokens: tuple[Scores, ...]
    """One entry for each token of the prompt."""
