"""Learns what prompt tokens add to a step. Arithmetic on given times.

A token attends to all tokens before it, so the last tokens of a long prompt cost more than its first ones.
The cost of a token is counted in units: 1 for a token with nothing before it, 2 for a token with `reach`
tokens before it, 3 for one with twice as many. The time that prompts add to a step is then a line:

    added = overhead + units * seconds per unit

The reach is learned as well. Some reaches are tried at the same time, each with its own line, and the
line that predicts the times best is used.
"""

import math

REACHES = (256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 32768.0)
"""In tokens. The first one counts until something is learned."""


def num_attended(num_tokens: int, num_context: int) -> float:
    """The tokens that come before each of the tokens, added up. `num_context` come before the first one."""
    return num_tokens * (num_context + num_tokens / 2)


class PromptCost:
    """Prompt tokens are given by their number, and by `attended`: the sum of `num_attended`."""

    def __init__(self) -> None:
        self._lines = {reach: _Line() for reach in REACHES}
        self._reach = REACHES[0]

    def units(self, num_tokens: int, attended: float) -> float:
        return num_tokens + attended / self._reach

    def num_tokens(self, units: float, num_context: int) -> int:
        """The tokens that the units pay for, in a prompt of which `num_context` tokens are computed."""
        first = 1 + num_context / self._reach
        # Solves n * first + n * n / (2 * reach) = units.
        return int(self._reach * (math.sqrt(first * first + 2 * units / self._reach) - first) + 1e-6)

    def fit(self) -> tuple[float, float]:
        """The overhead, and the seconds per unit. Neither is less than 0. Unknown: both are 0."""
        return self._lines[self._reach].fit()

    def seconds(self, num_tokens: int, attended: float) -> float:
        """The time that the tokens are expected to add to a step."""
        return self._lines[self._reach].at(self.units(num_tokens, attended))

    def learn(self, num_tokens: int, attended: float, added: float) -> None:
        for reach, line in self._lines.items():
            line.put(num_tokens + attended / reach, added)
        self._reach = min(self._lines, key=lambda reach: self._lines[reach].error)

    def forget(self) -> None:
        """Forget the times. The reach stays: a machine that is slow now is slow at everything."""
        self._lines = {reach: _Line() for reach in REACHES}


class _Line:
    """The line through points. The latest points weigh most."""

    FORGETTING = 0.9
    """A new point weighs 1, and multiplies the weights of all earlier points by this."""
    PRIOR = 0.02
    """The weight of the guess that the line goes through the origin. The guess decides if points hardly
    differ."""

    def __init__(self) -> None:
        self.error = 0.0
        """The sum of the line's errors: the distance of each point from the line, before the line learned the
        point. The latest errors weigh most."""
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        """Weighted sums."""

    def put(self, x: float, y: float) -> None:
        keep = self.FORGETTING
        if self._n:
            self.error = keep * self.error + abs(y - self.at(x))
        self._n = keep * self._n + 1
        self._x = keep * self._x + x
        self._y = keep * self._y + y
        self._xx = keep * self._xx + x * x
        self._xy = keep * self._xy + x * y

    def fit(self) -> tuple[float, float]:
        """The line's value at 0, and its slope. Neither is less than 0."""
        if not self._n:
            return 0.0, 0.0
        x, y = self._x / self._n, self._y / self._n
        spread, together = self._xx / self._n - x * x, self._xy / self._n - x * y
        slope = (together + self.PRIOR * x * y) / (spread + self.PRIOR * x * x)
        slope = min(max(slope, 0.0), y / x)
        return y - slope * x, slope

    def at(self, x: float) -> float:
        start, slope = self.fit()
        return start + slope * x
