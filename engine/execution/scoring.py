"""The seam of probes, whose code is imported where a configuration names one."""

from typing import Any, Protocol

import torch

from engine.device.capture import Capture
from engine.protocol import ProbeInfo
from engine.protocol.options import EngineConfig
from engine.protocol.parts import load


class TokenScorer(Capture, Protocol):
    """Writes the scores of each token beside its keys and values (`KVCache.scores`)."""

    @property
    def infos(self) -> tuple[ProbeInfo, ...]:
        """The probes whose scores these are."""

    @property
    def num_scores(self) -> int:
        """Scores of a token."""


def scorer_of(
    config: EngineConfig, hidden_size: int, dtype: torch.dtype, device: torch.device
) -> TokenScorer | None:
    """None: the configuration has no probes. Raises `ValueError` for a file that is not a probe, and for a
    probe of another model than `config.model`; `OSError` for a file that cannot be read."""
    if not config.probes:
        return None
    load_probes: Any = load("engine.execution.probes.load:load_probes", "the code of probes")
    scorer: TokenScorer = load_probes(config, hidden_size, dtype, device)
    return scorer
