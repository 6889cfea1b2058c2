"""Counts of hooks' verdicts, for the metrics: a `Tally` for each hook, and one stream's judged tokens."""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import ClassVar

from engine.protocol import Delta

HELD_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
"""The upper ends of the buckets of `Tally.held`, in seconds. Longer times have a bucket too."""

CALL_SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""The upper ends of the buckets of `Tally.calls`, in seconds. Longer calls have a bucket too."""
FIRST_BUCKET = CALL_SECONDS[0]
"""Almost every call is shorter. Each chunk has a call, so such a one costs two additions."""

UNJUDGED_TOKENS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""The upper ends of the buckets of `Tally.unjudged`, in tokens. More tokens have a bucket too."""

_CHARACTERS = 4
"""Characters that count as one token, in text without tokens."""


@dataclass(slots=True)
class Tally:
    """One hook's verdicts in all streams, and the time that its calls took."""

    is_logged: ClassVar[bool] = True
    """Whether a failure is a line in the log."""
    num_emitted: int = 0
    """Verdicts that released the pending text untouched. Almost every chunk has one."""
    num_holds: int = 0
    """`hold` verdicts: they hold text, and change none."""
    others: Counter[str] = field(default_factory=Counter)
    """Other verdicts, answers to prompts (`admit`, `refuse`, `rewrite_prompt`), and `error`, by action."""
    seconds: float = 0.0
    """Wall time from its calls to its verdicts. Of a call that fused guards share, each has an equal part."""
    num_calls: int = 0
    """Its calls. A call that fused guards share counts for each of them."""
    slow_calls: Counter[int] = field(default_factory=Counter)
    """Those that took longer than `FIRST_BUCKET`, by their bucket."""
    shared_seconds: float = 0.0
    """The part of shared calls that `seconds` leaves to the other guards."""
    num_streams: int = 0
    """Streams that the hook saw to their end, or to its own."""
    num_characters: int = 0
    """Characters that the hook was shown in these streams. Counted as `held` is."""
    held: Counter[int] = field(default_factory=Counter)
    """Holds that ended, by the bucket of their time. Counted while somebody listens to the hooks'
    decisions."""
    held_seconds: float = 0.0
    """The sum of these times."""
    unjudged: Counter[int] = field(default_factory=Counter)
    """Streams, by the bucket of the most tokens that were out at once and not judged. Streams that the judge
    was not asked about do not count."""
    num_unjudged: int = 0
    """The sum of these tokens."""

    @property
    def verdicts(self) -> Counter[str]:
        """The count of each action that was taken."""
        return self.others + Counter(emit=self.num_emitted, hold=self.num_holds)

    def count(self, action: str) -> None:
        if action == "emit":
            self.num_emitted += 1
        elif action == "hold":
            self.num_holds += 1
        else:
            self.others[action] += 1

    def count_slow(self, seconds: float) -> None:
        """A call took `seconds`, more than `FIRST_BUCKET`."""
        self.slow_calls[bisect_left(CALL_SECONDS, seconds)] += 1

    def count_shared(self, calls: "Tally", num_sharing: int) -> None:
        """Count the calls that this hook shared with others: `num_sharing` hooks in all."""
        part = calls.seconds / num_sharing
        self.seconds += part
        self.shared_seconds += calls.seconds - part
        self.num_calls += calls.num_calls
        if calls.slow_calls:  # `update` takes long for nothing
            self.slow_calls.update(calls.slow_calls)

    @property
    def calls(self) -> Counter[int]:
        """All calls, by the bucket of their time. A shared call has the bucket of its whole time."""
        return self.slow_calls + Counter({0: self.num_calls - self.slow_calls.total()})

    @property
    def call_seconds(self) -> float:
        """The sum of the calls' times, those of shared calls whole."""
        return self.seconds + self.shared_seconds

    def count_held(self, seconds: float) -> None:
        """Text was held for `seconds`; then it was released or withheld."""
        self.held[bisect_left(HELD_SECONDS, seconds)] += 1
        self.held_seconds += seconds

    def count_unjudged(self, num_tokens: int) -> None:
        """At most `num_tokens` tokens of a stream were out at once that were not judged."""
        self.unjudged[bisect_left(UNJUDGED_TOKENS, num_tokens)] += 1
        self.num_unjudged += num_tokens

    def add(self, other: "Tally") -> None:
        self.num_emitted += other.num_emitted
        self.num_holds += other.num_holds
        self.others.update(other.others)
        self.seconds += other.seconds
        self.num_calls += other.num_calls
        self.slow_calls.update(other.slow_calls)
        self.shared_seconds += other.shared_seconds
        self.num_streams += other.num_streams
        self.num_characters += other.num_characters
        self.held.update(other.held)
        self.held_seconds += other.held_seconds
        self.unjudged.update(other.unjudged)
        self.num_unjudged += other.num_unjudged

    def drain(self) -> "Tally":
        """The counts since the last `drain`."""
        taken = type(self)(*_counts_of(self))
        Tally.__init__(self)
        return taken

    def repeated(self) -> "Tally":
        """The counts to keep if the text was counted before: the calls, and the verdicts that end a text."""
        ends = {action: self.others[action] for action in ("terminate", "error") if action in self.others}
        return Tally(
            seconds=self.seconds,
            num_calls=self.num_calls,
            slow_calls=self.slow_calls.copy(),
            shared_seconds=self.shared_seconds,
            others=Counter(ends),
        )

    def since(self, before: "Tally") -> "Tally":
        """The counts since an earlier copy of this tally was made."""
        return Tally(*(getattr(self, one.name) - getattr(before, one.name) for one in fields(self)))

    def copy(self) -> "Tally":
        own = {name: getattr(self, name).copy() for name in ("others", "slow_calls", "held", "unjudged")}
        return replace(self, **own)


_counts_of = attrgetter(*(one.name for one in fields(Tally)))


class SilentTally(Tally):
    """The counts of a self-test, whose failure is reported as an error of its own."""

    is_logged = False


Tallies = dict[str, Tally]
"""Tallies by the hook's name."""


@dataclass(slots=True)
class JudgedTokens:
    """The tokens that a judging hook released of one stream, and those that its judge has judged
    (contract 3.17)."""

    num_released: int = 0
    num_unjudged: int = 0
    """Released tokens that no verdict covers."""
    max_unjudged: int = 0
    """The most such tokens at a time, while the judge was asked."""
    was_asked: bool = False
    """Whether the judge was asked about a part of the stream."""
    is_asked: bool = True
    """Whether the judge is asked about the text that was released last."""
    _num_characters: int = 0
    _unjudged: deque[tuple[int, int]] = field(default_factory=deque)
    """The released texts that are not judged: where each ends, and its tokens."""

    def release(self, texts: Iterable[tuple[str, int | None]], unjudged: int | None) -> None:
        """Texts were released, each with the number of tokens that it completes (None: it has none).
        `unjudged`: see `emit`. Raises `ValueError` for more characters than were released."""
        for text, num_tokens in texts:
            self._add(len(text), -(-len(text) // _CHARACTERS) if num_tokens is None else num_tokens)
        self.is_asked = unjudged is not None
        if unjudged is None:
            self._unjudged = deque([(self._num_characters, self.num_unjudged)])  # one text from now on
            return
        if type(unjudged) is not int or not 0 <= unjudged <= self._num_characters:
            raise ValueError("unjudged= is out of range")
        self.was_asked = True
        self._judge(self._num_characters - unjudged)
        self.max_unjudged = max(self.max_unjudged, self.num_unjudged)

    def pass_on(self, text: str, num_tokens: int) -> bool:
        """Count text that was released whole and that a verdict covers. False: an earlier text is not judged,
        or there are no tokens; then nothing was counted."""
        if self._unjudged or not num_tokens:
            return False
        self._num_characters += len(text)
        self.num_released += num_tokens
        self.is_asked = self.was_asked = True
        return True

    def _add(self, num_characters: int, num_tokens: int) -> None:
        self._num_characters += num_characters
        self._unjudged.append((self._num_characters, num_tokens))
        self.num_released += num_tokens
        self.num_unjudged += num_tokens

    def _judge(self, num_judged: int) -> None:
        """A verdict covers the first `num_judged` characters."""
        unjudged = self._unjudged
        while unjudged and unjudged[0][0] <= num_judged:
            self.num_unjudged -= unjudged.popleft()[1]

    @property
    def num_judged(self) -> int:
        return self.num_released - self.num_unjudged


class ReleasedUsage:
    """Counts one request's released tokens, for a server that reports these as usage (contract 6.1)."""

    def __init__(self) -> None:
        self._num_tokens = 0
        self._num_reasoning = 0

    def count(self, released: Delta) -> Delta:
        if released.channel != "echo":
            self._num_tokens += len(released.tokens)
        if released.channel == "reasoning":
            self._num_reasoning += len(released.tokens)
        used = released.usage
        if used is None:
            return released
        num_reasoning = min(used.reasoning_tokens, self._num_reasoning)
        counted = replace(used, completion_tokens=self._num_tokens, reasoning_tokens=num_reasoning)
        return replace(released, usage=counted)
