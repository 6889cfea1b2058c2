"""Whether a replica that fails gets requests. No clock: the caller gives the time, in seconds.

closed ──3 failures in a row──► open ──its time is over──► half-open ──the trial's answer──► closed
                                  ▲                            │
                                  └──── the trial's failure ───┘  for twice as long, 30 s at most
"""

from typing import Literal

BreakerState = Literal["closed", "open", "half_open"]

FAILURES = 3
"""Failures in a row that open a breaker."""
SHORTEST, LONGEST = 1.0, 30.0
"""Seconds that a breaker is open."""


class Breaker:
    """One replica's breaker. A half-open one lets one request through: the trial."""

    def __init__(self) -> None:
        self.failures = 0
        """Failures in a row. 0: the breaker is closed, and an answer or a begin changes nothing."""
        self._on_trial = False
        self._wait = 0.0
        self._open_until: float | None = None
        """None: closed."""

    def state(self, now: float) -> BreakerState:
        if self._open_until is None:
            return "closed"
        return "open" if now < self._open_until else "half_open"

    def allows(self, now: float) -> bool:
        """Whether a request may begin."""
        return self._open_until is None or (now >= self._open_until and not self._on_trial)

    def begin(self) -> bool:
        """A request begins. Returns whether it is a trial, which must end by `succeed`, `fail` or `leave`."""
        if self._open_until is None or self._on_trial:
            return False
        self._on_trial = True
        return True

    def succeed(self, *, trial: bool) -> None:
        """A request was answered. If the breaker is not closed, only the trial's answer counts: the other
        requests began before the failures."""
        self.leave(trial=trial)
        if trial or self._open_until is None:
            self.failures, self._wait, self._open_until = 0, 0.0, None

    def fail(self, now: float, *, trial: bool = False) -> bool:
        """A request failed. Returns whether the breaker opened. Failures of requests that began before it
        opened do not count."""
        if self._open_until is not None and not trial:
            return False
        self.leave(trial=trial)
        self.failures += 1
        if not trial and self.failures < FAILURES:
            return False
        self._wait = min(max(2 * self._wait, SHORTEST), LONGEST)
        self._open_until = now + self._wait
        return True

    def leave(self, *, trial: bool) -> None:
        """A request ended without saying how the replica is."""
        if trial:
            self._on_trial = False

    def admit_trial(self, now: float) -> None:
        """There is reason to think that the replica is back: an open breaker becomes half-open."""
        if self._open_until is not None:
            self._open_until = min(self._open_until, now)
