"""The probe that a hook needs from the model that it guards (contract 1.10)."""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.protocol import Calibration, ProbeInfo, PromptScores


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeNeeds:
    """Names the probe that a hook reads, and what the probe must have."""

    name: str | None = None
    """The probe's name. None: the model has one probe."""
    labels: tuple[str, ...] | None = None
    """Labels that the probe must have. None: any."""
    is_calibrated: bool = False
    """Whether the hook takes its threshold from the probe."""
    is_pointwise: bool = False
    """Whether the hook needs a score for each token by itself. An attention probe scores a text by a weighted
    mean of all its tokens, so it does not fit."""

    def choose(self, probes: Iterable[ProbeInfo]) -> ProbeInfo:
        """The probe. Raises `ValueError` if no probe fits."""
        known = {probe.name: probe for probe in probes}
        if not known:
            raise ValueError("the model has no probes: --probe FILE gives a model of the engine 'local' some")
        if self.name is None and len(known) > 1:
            raise ValueError(f"probe: the model has several probes: {', '.join(known)}")
        probe = known.get(next(iter(known)) if self.name is None else self.name)
        if probe is None:
            raise ValueError(f"probe: the model has no probe {self.name}; it has {', '.join(known)}")
        for label in self.labels or ():
            if label not in probe.labels:
                raise ValueError(
                    f"labels: probe {probe.name} has no {label}; it has {', '.join(probe.labels)}"
                )
        if self.is_calibrated and probe.calibration is None:
            raise ValueError(f"threshold: probe {probe.name} is not calibrated, so a threshold must be given")
        if self.is_pointwise and probe.kind == "attention":
            raise ValueError(
                f"smoothing: probe {probe.name} is an attention probe, which weighs tokens itself"
            )
        return probe

    def canary(self) -> PromptScores:
        """A prompt of one token, scored by a made-up probe that the hook can read."""
        probe = ProbeInfo(
            name=self.name or "canary",
            kind="linear",
            labels=self.labels or ("canary",),
            calibration=Calibration(threshold=1.0) if self.is_calibrated else None,
        )
        return PromptScores((probe,), ((0.0,) * len(probe.score_names),))
