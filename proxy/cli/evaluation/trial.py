"""Plays one exchange through hooks: when they first object, which text leaves, and how long text is held."""

import asyncio
import time
from bisect import bisect_left, bisect_right
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import accumulate

from engine.protocol import Deltas, EngineError
from engine.streams.recording import Recording
from hooks.api.decision import NOTES
from hooks.decisions.failure import HookError
from hooks.pipeline.admission import RefusedError
from hooks.pipeline.open_guard import GuardFactory
from hooks.testing import Judgement
from hooks.testing.play import vetted
from proxy.cli.labelled.exchange import Exchange

_NOTHING = {"emit", "hold", "error"}


@dataclass(frozen=True, slots=True)
class Flag:
    """A hook's first objection to a reply."""

    hook: str
    num_tokens: int
    """Tokens of the reply that the hook had been shown."""
    is_suspicion: bool
    """The hook withheld nothing: it said `suspect`, or another note."""


@dataclass(slots=True)
class Trial:
    """The result of one exchange."""

    exchange: Exchange
    num_tokens: int = 0
    """Tokens of the whole reply."""
    tokens_before: int = 0
    """Tokens of the reply that end before the offence begins."""
    is_refused: bool = False
    """A hook refused the prompt."""
    failed: str | None = None
    """The hook that failed. The request then failed closed, which is not a verdict."""
    is_broken_off: bool = False
    """The reply is a recording that ends with an error, before a hook ended it."""
    flags: dict[str, Flag] = field(default_factory=dict)
    """By hook."""
    flag: Flag | None = None
    """The first objection of any hook that withheld something."""
    num_leaked: int = 0
    """Characters of the offence that left before the flag."""
    held_seconds: list[float] = field(default_factory=list)
    """For each piece of text that left: how long its first character waited."""
    num_calls: dict[str, int] = field(default_factory=dict)
    """Calls of each hook."""
    seconds: float = 0.0

    @property
    def delay(self) -> int | None:
        """Tokens from the offence's first one to the flag. Below 1: the flag came before the offence. Where
        the offence's place is not known, tokens from the reply's beginning. None: no flag."""
        return None if self.flag is None else self.flag.num_tokens - self.tokens_before


async def play_exchange(
    opener: GuardFactory,
    judgements: list[Judgement],
    exchange: Exchange,
    *,
    stream: Recording | None = None,
    speed: float = 0.0,
) -> Trial:
    """Play an exchange through the hooks of `opener`, which add to `judgements`. `stream`: the exchange's
    stream in other chunks. `speed`: tokens a second; 0: without waiting."""
    judgements.clear()
    trial = Trial(exchange)
    clock = _Clock()
    played = _paced(stream or exchange.stream, _token_ends(exchange.stream), speed, clock)
    request = replace(exchange.stream.request, stream=True, hooks=())
    started = time.perf_counter()
    try:
        guard = opener.open(request)
        async with aclosing(played), aclosing(vetted(guard, lambda _: played)) as released:
            async for delta in released:
                if delta.index == 0 and delta.channel == "content" and delta.text:
                    clock.left(delta.text)
        trial.is_refused = clock.is_unasked
    except HookError as error:
        trial.failed = error.hook
    except RefusedError:
        trial.is_refused = True
    except EngineError:
        trial.is_broken_off = True
    trial.seconds = time.perf_counter() - started
    trial.held_seconds = clock.held
    _add_flags(trial, judgements)
    _add_leak(trial, "".join(clock.released))
    return trial


class _Clock:
    """The times at which the reply's text came, and how long it was held."""

    def __init__(self) -> None:
        self.is_unasked = True
        """Nothing of the reply was asked for: a hook answered in its place."""
        self._came: list[tuple[int, float]] = [(0, 0.0)]
        self.released: list[str] = []
        self.held: list[float] = []
        self._num_left = 0

    def came(self, text: str) -> None:
        self._came.append((self._came[-1][0] + len(text), time.perf_counter()))

    def left(self, text: str) -> None:
        at = bisect_right(self._came, self._num_left, key=lambda one: one[0])
        if at < len(self._came):
            self.held.append(time.perf_counter() - self._came[at][1])
        self._num_left += len(text)
        self.released.append(text)


async def _paced(stream: Recording, ends: list[int], speed: float, clock: _Clock) -> Deltas:
    """`ends`: where the reply's tokens end, in characters."""
    clock.is_unasked = False
    started, num_characters = time.perf_counter(), 0
    for timed in stream.deltas:
        delta = timed.delta
        is_reply = delta.index == 0 and delta.channel == "content"
        num_characters += len(delta.text) if is_reply else 0
        if speed:
            due = started + bisect_left(ends, num_characters) / speed
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        if is_reply and delta.text:
            clock.came(delta.text)
        yield delta
    if stream.failure:
        raise EngineError(stream.failure.message, status=stream.failure.status)


def _add_flags(trial: Trial, judgements: list[Judgement]) -> None:
    ends = _token_ends(trial.exchange.stream)
    trial.num_tokens = len(ends)
    trial.tokens_before = bisect_right(ends, trial.exchange.unsafe_from or 0)
    for one in judgements:
        trial.num_calls[one.hook] = trial.num_calls.get(one.hook, 0) + 1
        if one.output_index or one.action in _NOTHING or one.hook in trial.flags:
            continue
        num_tokens = bisect_left(ends, one.end) + 1 if one.channel == "content" else len(ends)
        flag = Flag(one.hook, min(num_tokens, len(ends)), one.action in NOTES)
        trial.flags[one.hook] = flag
        if trial.flag is None and not flag.is_suspicion and not one.is_shadow:
            trial.flag = flag


def _token_ends(stream: Recording) -> list[int]:
    """The end of each token of the first output's content, in characters."""
    deltas = [one.delta for one in stream.deltas if not one.delta.index and one.delta.channel == "content"]
    return list(accumulate(len(token.text) for delta in deltas for token in delta.tokens))


def _add_leak(trial: Trial, released: str) -> None:
    start = trial.exchange.unsafe_from
    if start is None:
        return
    said = "".join(one.delta.text for one in trial.exchange.stream.deltas if one.delta.channel == "content")
    same = next((i for i, (a, b) in enumerate(zip(said, released, strict=False)) if a != b), len(released))
    trial.num_leaked = max(0, min(same, len(said)) - start)
