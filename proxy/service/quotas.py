"""The limits of keys, policies and users: requests and tokens within a minute, a day and a month, and
requests at the same time.

A request is refused before anything is generated for it. Its tokens are known, and counted, when it ends: the
requests that run when a limit is reached may exceed it.
"""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import NamedTuple

from proxy.deployment.deployment import Route
from proxy.service.periods import Period
from proxy.service.rates import Count, Rates
from proxy.service.running import RequestLimits
from proxy.service.spending import Spending
from proxy.service.usage import UsageCounts
from proxy.service.users import Users
from proxy.settings.limits import SETTINGS, WHOSE, Subject
from proxy.storage.records import Account
from proxy.wire.errors import APIError


class LimitError(APIError):
    """A request is one too many for a limit."""

    def __init__(self, subject: Subject, name: str, limit: str, seconds: int) -> None:
        """`name`: the name of the limit. `limit`: in words. `seconds`: until another try may succeed."""
        reason = f"Too many requests for {WHOSE[subject.kind]}: the limit is {limit} ({name})."
        super().__init__(429, reason, "rate_limit_error", code="rate_limit_exceeded", retry_after=seconds)
        self.limit = f"{SETTINGS[subject.kind]}.{name}"
        """The setting, such as `policies.limits_per_key.requests_per_minute`."""


class _Rate(NamedTuple):
    """One limit of a period."""

    subject: Subject
    what: str
    """`requests` or `tokens`."""
    period: Period
    limit: int
    counted: Count

    @property
    def name(self) -> str:
        """As in `Limits`."""
        return f"{self.what}_per_{self.period}"


class Quotas:
    """Enforces the limits of keys and policies, in all processes that share the state."""

    def __init__(self, in_flight: RequestLimits, rates: Rates, users: Users, usage: UsageCounts) -> None:
        self._in_flight = in_flight
        self._rates = rates
        self._users = users
        self._usage = usage

    def subjects(self, route: Route, user: str | None) -> Sequence[Subject]:
        """Who has limits for a request of this user."""
        if route.per_user is None:
            return route.limited
        key = route.per_user.name
        return (*route.limited, route.per_user._replace(name=self._users.name(key, user or "")))

    def admitted(
        self, subjects: Sequence[Subject], headers: dict[str, str], account: Account | None
    ) -> AbstractAsyncContextManager[Spending]:
        """Counts a request, to its end, for its `subjects`, which have limits. Puts these into `headers`, by
        OpenAI's names. `account`: whose usage it is; None: the report of usage leaves it out. Entering raises
        `LimitError` if it is one too many."""
        if not subjects:
            return nullcontext(Spending(self._rates, (), self._usage.begin(account) if account else None))
        return self._limited(subjects, headers, account)

    @asynccontextmanager
    async def _limited(
        self, subjects: Sequence[Subject], headers: dict[str, str], account: Account | None
    ) -> AsyncIterator[Spending]:
        rates = [rate for subject in subjects for rate in _rates_of(subject)]
        async with AsyncExitStack() as stack:
            for subject in subjects:
                if limit := subject.limits.concurrent_requests:
                    await self._enter(stack, subject, limit)
            if rates:
                await self._spend_request(rates, headers)
            used = self._usage.begin(account) if account else None
            yield Spending(self._rates, [rate.counted for rate in rates if rate.what == "tokens"], used)

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
                self._rates.spend(rate.counted, _cost(rate))
            await self._rates.settle()
            self._check(rates, headers, own=0)
        except BaseException:
            for rate in rates:
                self._rates.spend(rate.counted, -_cost(rate))
            raise

    def _check(self, rates: list[_Rate], headers: dict[str, str], own: int) -> None:
        """Raise `LimitError` if a limit is exceeded. `own`: this request, if it is not counted yet."""
        headers.update(self._headers(rates, own))
        for rate in rates:
            # A request that is let in may spend any number of tokens: one of them must be left.
            most = rate.limit - (own if rate.what == "requests" else 1)
            if self._rates.used(rate.counted) > most:
                seconds = max(1, math.ceil(self._rates.seconds_until(rate.counted, most)))
                limit = f"{rate.limit} {rate.what} in {rate.period.in_words}"
                raise LimitError(rate.subject, rate.name, limit, seconds)

    def _headers(self, rates: list[_Rate], own: int) -> dict[str, str]:
        """As OpenAI names them. If several subjects have a limit, the headers report the tightest one."""
        headers: dict[str, str] = {}
        left = {rate: self._left(rate, own) for rate in rates}
        for what in ("requests", "tokens"):
            tightest = min((rate for rate in rates if rate.what == what), key=left.__getitem__, default=None)
            if tightest is not None:
                headers[f"x-ratelimit-limit-{what}"] = str(tightest.limit)
                headers[f"x-ratelimit-remaining-{what}"] = str(left[tightest])
                reset = math.ceil(self._rates.seconds_until(tightest.counted, 0))
                headers[f"x-ratelimit-reset-{what}"] = f"{reset}s"
        return headers

    def _left(self, rate: _Rate, own: int) -> int:
        used = self._rates.used(rate.counted) + (own if rate.what == "requests" else 0)
        return max(0, math.floor(rate.limit - used))


def _rates_of(subject: Subject) -> list[_Rate]:
    found = []
    for name, what, period in _KINDS:
        limit: int | None = getattr(subject.limits, name)
        if limit is not None:
            found.append(_Rate(subject, what, period, limit, Count(subject.of(name), period)))
    return found


_KINDS = [(f"{what}_per_{period}", what, period) for period in Period for what in ("requests", "tokens")]
"""The limits of a period, by their names in `Limits`."""


def _cost(rate: _Rate) -> int:
    return 1 if rate.what == "requests" else 0
