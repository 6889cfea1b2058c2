"""Probes as the rest of Weir sees them: values only. `engine.probes` has the probes themselves.

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
class ProbeInfo:
    """A probe of a model, and how its author means its scores to be read."""

    name: str
    kind: ProbeKind
    labels: tuple[str, ...]
    """What the probe detects, one label for each of its outputs."""
    score_names: tuple[str, ...]
    """Linear and MLP probes give each token a logit for each label. An attention probe also gives each token
    the logit of the token's weight, in front of them: the weight of all tokens is a softmax of these."""
    threshold: float | None = None
    """The least smoothed score (a logit) that counts as found. None: nobody has calibrated the probe."""
    false_positive_rate: float | None = None
    """The share of harmless streams that reach `threshold`, as measured."""
    false_positive_interval: tuple[float, float] | None = None
    """Its confidence interval of 95 %."""
    smoothing: Smoothing = "ema"
    """How the scores of a stream's tokens become one running score, before the threshold."""
    span: int = 1
    """Tokens that the smoothing spans. 1: a token's score counts alone."""


@dataclass(frozen=True, slots=True)
class PromptScores:
    """The scores of a prompt's tokens, and the probes that gave them."""

    probes: tuple[ProbeInfo, ...]
    tokens: tuple[Scores, ...]
    """One entry for each token of the prompt."""
