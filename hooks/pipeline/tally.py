"""Counts of what hooks did, for the metrics: a `Tally` for each hook."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, fields, replace

HELD_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
"""The upper ends of the buckets of `Tally.held`, in seconds. Longer times have a bucket too."""


@dataclass(slots=True)
class Tally:
    """One hook's verdicts in all streams, and the time that its calls took."""

    num_emitted: int = 0
    """Verdicts that released the pending text untouched. Almost every chunk has one."""
    others: Counter[str] = field(default_factory=Counter)
    """By action: `rewrite`, `suppress`, `terminate`, `rewind`, `hold` or `redact`; and `error`."""
    seconds: float = 0.0
    """Wall time from its calls to its verdicts."""
    num_streams: int = 0
    """Streams that the hook saw to their end, or to its own."""
    num_characters: int = 0
    """Characters that the hook was shown in these streams. Counted as `held` is."""
    held: Counter[int] = field(default_factory=Counter)
    """How often text was held for how long, by the bucket's place. Counted while somebody listens to the
    hooks' decisions."""
    held_seconds: float = 0.0
    """The sum of these times."""

    @property
    def verdicts(self) -> Counter[str]:
        """How often each action was taken, without those that never were."""
        return self.others + Counter(emit=self.num_emitted)

    def count(self, action: str) -> None:
        if action == "emit":
            self.num_emitted += 1
        else:
            self.others[action] += 1

    def count_held(self, seconds: float) -> None:
        """Text was held for `seconds`; then it was released or withheld."""
        self.held[bisect_left(HELD_SECONDS, seconds)] += 1
        self.held_seconds += seconds

    def add(self, other: "Tally") -> None:
        self.num_emitted += other.num_emitted
        self.others.update(other.others)
        self.seconds += other.seconds
        self.num_streams += other.num_streams
        self.num_characters += other.num_characters
        self.held.update(other.held)
        self.held_seconds += other.held_seconds

    def take(self) -> "Tally":
        """The counts since the last `take`."""
        taken, nothing = replace(self), Tally()
        for one in fields(self):
            setattr(self, one.name, getattr(nothing, one.name))
        return taken

    def since(self, before: "Tally") -> "Tally":
        """The counts since an earlier copy of this tally was made."""
        return Tally(
            self.num_emitted - before.num_emitted,
            self.others - before.others,
            self.seconds - before.seconds,
            self.num_streams - before.num_streams,
            self.num_characters - before.num_characters,
            self.held - before.held,
            self.held_seconds - before.held_seconds,
        )

    def copy(self) -> "Tally":
        return replace(self, others=self.others.copy(), held=self.held.copy())


Tallies = dict[str, Tally]
"""By the hook's name."""
