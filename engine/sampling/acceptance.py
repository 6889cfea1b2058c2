"""Decides for one sequence whether the draft model is asked.

Each guess costs time, and a wrong one gives none back. So the draft model pauses for a sequence while few of
its guesses come true, and tries again later.
"""

from dataclasses import dataclass

LEAST_RATE = 0.2
"""The share of guesses that must come true."""
WEIGHT = 0.25
"""The weight of the last draft in the share."""
FIRST_PAUSE = 16
"""Tokens without drafts. Each pause is twice as long as the one before."""
LONGEST_PAUSE = 256


@dataclass(slots=True)
class Acceptance:
    """The share of the guesses that came true. Lengths count the sequence's tokens."""

    _rate: float = 0.5
    _pause: int = FIRST_PAUSE
    _resume_at: int = 0
    _num_guesses: int = 0
    """The guesses whose outcome is not known yet; 0: none."""
    _guessed_at: int = 0
    """The sequence's length when they were made."""

    def guess(self, num_tokens: int, num_guesses: int) -> None:
        """Note a draft for a sequence of `num_tokens`."""
        self._guessed_at, self._num_guesses = num_tokens, num_guesses

    def is_paused(self, num_tokens: int) -> bool:
        """Whether a sequence of `num_tokens` gets no draft now."""
        if self._num_guesses:
            # A step draws one token more than come true.
            self._learn(num_tokens, (num_tokens - self._guessed_at - 1) / self._num_guesses)
            self._num_guesses = 0
        return num_tokens < self._resume_at

    def _learn(self, num_tokens: int, share: float) -> None:
        self._rate += WEIGHT * (min(1.0, max(0.0, share)) - self._rate)
        if self._rate >= LEAST_RATE:
            self._pause = FIRST_PAUSE
            return
        self._resume_at = num_tokens + self._pause
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
