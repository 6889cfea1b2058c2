"""Counts of what hooks did, for the metrics: a `Tally` for each hook."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """One hook's verdicts in all streams, and the time that its calls took."""

    num_emitted: int = 0
    """Verdicts that released the pending text untouched. Almost every chunk has one."""
    others: Counter[str] = field(default_factory=Counter)
    """By action: `rewrite`, `suppress`, `terminate`, `rewind`, `hold` or `redact`; and `error`."""
    seconds: float = 0.0
    """Wall time from its calls to its verdicts."""

    @property
    def verdicts(self) -> Counter[str]:
        """How often each action was taken, without those that never were."""
        return self.others + Counter(emit=self.num_emitted)

    def count(self, action: str) -> None:
        if action == "emit":
            self.num_emitted += 1
        else:
            self.others[action] += 1

    def add(self, other: "Tally") -> None:
        self.num_emitted += other.num_emitted
        self.others.update(other.others)
        self.seconds += other.seconds

    def take(self) -> "Tally":
        """The counts since the last `take`."""
        taken = Tally(self.num_emitted, self.others, self.seconds)
        self.num_emitted, self.others, self.seconds = 0, Counter(), 0.0
        return taken


Tallies = dict[str, Tally]
"""By the hook's name."""
