"""A share of some streams, with its interval."""

import math
from dataclasses import dataclass
from typing import Any

_Z = 1.96
"""The normal distribution's quantile for 95 %."""


@dataclass(frozen=True, slots=True)
class Share:
    """The number of some streams that were flagged."""

    count: int
    total: int

    @property
    def value(self) -> float | None:
        return self.count / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of Wilson (1927). None: there were no streams."""
        n, z2 = self.total, _Z * _Z
        if not n:
            return None
        p = self.count / n
        middle = (p + z2 / (2 * n)) / (1 + z2 / n)
        half = _Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
        return max(0.0, middle - half), min(1.0, middle + half)

    def as_json(self) -> dict[str, Any]:
        return {"flagged": self.count, "of": self.total, "share": self.value, "interval": self.interval}

    def __str__(self) -> str:
        if self.value is None or self.interval is None:
            return "-"
        low, high = self.interval
        return f"{self.value:.3f} ({low:.3f}-{high:.3f})"
