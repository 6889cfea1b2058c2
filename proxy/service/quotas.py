"""The limits of keys and policies: requests and tokens within a minute, and requests at the same time.

A request is refused before anything is generated for it. Its tokens are known, and counted, when it ends: the
requests that run when a limit is reached may exceed it.
"""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import NamedTuple

from engine.protocol import Delta, GenerationRequest, Usage
from engine.protocol.prompt_size import prompt_size
from engine.streams.flow import Stage
from proxy.service.rates import Rates
from proxy.service.running import RequestLimits
from proxy.settings.limits import SETTINGS, WHOSE, Subject
from proxy.wire.errors import APIError

CHARACTERS_PER_TOKEN = 4
"""The estimate for a request that ends before its engine has reported the tokens."""


class LimitError(APIError):
    """A request is one too many for a limit."""

    def __init__(self, subject: Subject, name: str, limit: str, seconds: int) -> None:
        """`name`: the name of the limit. `limit`: in words. `seconds`: until another try may succeed."""
        reason = f"Too many requests for {WHOSE[subject.kind]}: the limit is {limit} ({name})."
        super().__init__(429, reason, "rate_limit_error", code="rate_limit_exceeded", retry_after=seconds)
        self.limit = f"{SETTINGS[subject.kind]}.{name}"
        """The setting, such as `policies.limits_per_key.requests_per_minute`."""


class _Rate(NamedTuple):
    """One limit of a minute."""

    subject: Subject
    what: str
    """`requests` or `tokens`."""
    limit: int

    @property
    def name(self) -> str:
        return self.subject.of(self.what)


class Spending:
    """The spending of one admitted request."""

    def __init__(self, rates: Rates, names: list[str]) -> None:
        """`names`: its tokens count under these names."""
        self._rates = rates
        self._names = names
        self.is_limited = bool(names)
        """Whether its tokens count for a limit."""
        self._num_generated = 0
        """Characters, the withheld ones among them."""

    def spend(self, tokens: int) -> None:
        for name in self._names:
            self._rates.spend(name, tokens)

    def count(self, delta: Delta) -> None:
        """Count what the engine generates. `settle` estimates by it if the request ends before its usage is
        known."""
        self._num_generated += len(delta.text)

    def settle(self, request: GenerationRequest, usage: Usage | None) -> None:
        """Count the tokens of the request, which ends now. `usage`: as the client got it, if it did."""
        if usage is None:
            self.spend(estimated_tokens(request) + self._num_generated // CHARACTERS_PER_TOKEN)
        else:
            self.spend(usage.prompt_tokens + usage.completion_tokens)


class Counting(Stage):
    """Feeds the engine's deltas, and counts them for a request with limits."""

    __slots__ = ("_count",)

    def __init__(self, spending: Spending) -> None:
        self._count = spending.count

    def feed(self, delta: Delta) -> None:
        self._count(delta)
        self.next.feed(delta)


class Quotas:
    """Enforces the limits of keys and policies, in all processes that share the state."""

    def __init__(self, in_flight: RequestLimits, rates: Rates) -> None:
        self._in_flight = in_flight
        self._rates = rates
        self.none = nullcontext(Spending(rates, []))
        """As `admitted`, for a request whose key and policy have no limit."""

    @asynccontextmanager
    async def admitted(self, subjects: Sequence[Subject], headers: dict[str, str]) -> AsyncIterator[Spending]:
        """Counts a request, to its end, for its `subjects`, which have limits. Puts these into `headers`, by
        OpenAI's names. Raises `LimitError` if it is one too many."""
        rates = [rate for subject in subjects for rate in _rates_of(subject)]
        async with AsyncExitStack() as stack:
            for subject in subjects:
                if limit := subject.limits.concurrent_requests:
                    await self._enter(stack, subject, limit)
            if rates:
                await self._spend_request(rates, headers)
            yield Spending(self._rates, [rate.name for rate in rates if rate.what == "tokens"])

    async def _enter(self, stack: AsyncExitStack, subject: Subject, limit: int) -> None:
        name = subject.of("under_way")
        if not await self._in_flight.enter(name, limit):
            raise LimitError(subject, "concurrent_requests", f"{limit} requests at the same time", 1)
        stack.callback(self._in_flight.leave, name)

    async def _spend_request(self, rates: list[_Rate], headers: dict[str, str]) -> None:
        """Count the request, unless it is one too many. In between, this process learns the spending of its
        peers, so that no two processes admit the same last request."""
        self._check(rates, headers, own=1)
        try:
            for rate in rates:
                self._rates.spend(rate.name, _cost(rate))
            await self._rates.settle()
            self._check(rates, headers, own=0)
        except BaseException:
            for rate in rates:
                self._rates.spend(rate.name, -_cost(rate))
            raise

    def _check(self, rates: list[_Rate], headers: dict[str, str], own: int) -> None:
        """Raise `LimitError` if a limit is exceeded. `own`: this request, if it is not counted yet."""
        headers.update(self._headers(rates, own))
        for rate in rates:
            # A request that is let in may spend any number of tokens: one of them must be left.
            most = rate.limit - (own if rate.what == "requests" else 1)
            if self._rates.used(rate.name) > most:
                seconds = max(1, math.ceil(self._rates.seconds_until(rate.name, most)))
                limit = f"{rate.limit} {rate.what} in a minute"
                raise LimitError(rate.subject, f"{rate.what}_per_minute", limit, seconds)

    def _headers(self, rates: list[_Rate], own: int) -> dict[str, str]:
        """As OpenAI names them. If several subjects have a limit, the headers report the tightest one."""
        headers: dict[str, str] = {}
        left = {rate: self._left(rate, own) for rate in rates}
        for what in ("requests", "tokens"):
            tightest = min((rate for rate in rates if rate.what == what), key=left.__getitem__, default=None)
            if tightest is not None:
                headers[f"x-ratelimit-limit-{what}"] = str(tightest.limit)
                headers[f"x-ratelimit-remaining-{what}"] = str(left[tightest])
                reset = math.ceil(self._rates.seconds_until(tightest.name, 0))
                headers[f"x-ratelimit-reset-{what}"] = f"{reset}s"
        return headers

    def _left(self, rate: _Rate, own: int) -> int:
        used = self._rates.used(rate.name) + (own if rate.what == "requests" else 0)
        return max(0, math.floor(rate.limit - used))


def estimated_tokens(request: GenerationRequest) -> int:
    """The tokens of a request's prompts, about."""
    return prompt_size(request) // CHARACTERS_PER_TOKEN


def _rates_of(subject: Subject) -> list[_Rate]:
    limits = subject.limits
    each = ("requests", limits.requests_per_minute), ("tokens", limits.tokens_per_minute)
    return [_Rate(subject, what, limit) for what, limit in each if limit is not None]


def _cost(rate: _Rate) -> int:
    return 1 if rate.what == "requests" else 0
