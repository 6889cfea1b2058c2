"""Usage: one row for each day, tenant, key, policy and model. All processes of a service add to it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proxy.settings.usage import Price
from proxy.storage import reports
from proxy.storage.query import Query, Steps
from proxy.storage.records import Account, DayUsage, day_of
from proxy.storage.reports import Report

BY = ("day", *Account._fields)
"""The fields that usage is told by."""
COUNTS = ("requests", "prompt_tokens", "completion_tokens", "estimated_tokens")
MONEY = ("cost", "unpriced_tokens")
"""The fields of a report with prices."""
MAX_ROWS = 10_000
"""Most rows of a report: the latest days', and of a day those with the most tokens."""
MAX_DAYS = 400
"""Days whose usage is kept: a year, and the month to compare with its last."""

UsageRow = dict[str, Any]
"""Values of some of `BY`, and the sums of `COUNTS`; with prices, of `MONEY` too."""

TABLES = (
    "CREATE TABLE IF NOT EXISTS weir_usage ("
    + ", ".join(f"{name} TEXT" for name in BY)
    + "".join(f", {name} BIGINT NOT NULL" for name in COUNTS)
    + f", PRIMARY KEY ({', '.join(BY)}))",
    *reports.TABLES,
)


def add(now: float, report: Report, used: Iterable[DayUsage]) -> Steps[None]:
    """Add usage, unless this report has done so already. `now`: seconds since 1970."""
    if not (yield from reports.is_new(report, int(now // 60))):
        return
    marks = ", ".join(f"${i}" for i in range(1, 1 + len(BY) + len(COUNTS)))
    more = ", ".join(f"{name} = weir_usage.{name} + ${i}" for i, name in enumerate(COUNTS, 1 + len(BY)))
    yield Query(
        f"INSERT INTO weir_usage VALUES ({marks}) ON CONFLICT ({', '.join(BY)}) DO UPDATE SET {more}",
        many=tuple((one.day, *one.account, *one[2:]) for one in used),
    )


def report(
    by: Sequence[str],
    equal: Mapping[str, str],
    since: str | None = None,
    until: str | None = None,
    prices: Mapping[str, Price] | None = None,
) -> Steps[list[UsageRow]]:
    """The sums for each value of the fields `by`, of the rows with the values `equal`. `since`, `until`: the
    first day and the last, as 2026-11-28. `prices`: by model; None: no money is told."""
    values: list[Any] = [since or "", until or "9999-12-31"]
    where = ["day >= $1", "day <= $2"]
    for name, value in equal.items():
        values.append(value)
        where.append(f"{name} = ${len(values)}")
    names = [*by, *COUNTS]
    sums = [f"CAST(SUM({name}) AS BIGINT)" for name in COUNTS]
    if prices is not None:
        names += MONEY
        sums += _money(prices, values)
    order = ["day DESC"] if "day" in by else []
    order += ["SUM(prompt_tokens + completion_tokens) DESC", *by]
    rows = yield Query(
        f"SELECT {', '.join([*by, *sums])} FROM weir_usage WHERE {' AND '.join(where)}"
        f" GROUP BY {', '.join(by)} ORDER BY {', '.join(order)} LIMIT {MAX_ROWS}",
        tuple(values),
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def prune(now: float) -> Steps[None]:
    """Remove the days before the last `MAX_DAYS`. `now`: seconds since 1970."""
    yield Query("DELETE FROM weir_usage WHERE day < $1", (day_of(now - MAX_DAYS * 24 * 60 * 60),))


def _money(prices: Mapping[str, Price], values: list[Any]) -> tuple[str, str]:
    """SQL for `MONEY`, whose parameters are added to `values`."""
    costs, priced = ["0.0"], []
    for model, price in prices.items():
        first = len(values) + 1
        values += model, price.input / 1e6, price.output / 1e6
        is_model, paid = f"model = ${first}", [f"CAST(${first + i} AS DOUBLE PRECISION)" for i in (1, 2)]
        cost = f"prompt_tokens * {paid[0]} + completion_tokens * {paid[1]}"
        priced.append(is_model)
        costs.append(f"CASE WHEN {is_model} THEN {cost} ELSE 0.0 END")
    without = " OR ".join(priced) or "1 = 0"
    tokens = f"CASE WHEN {without} THEN 0 ELSE prompt_tokens + completion_tokens END"
    return f"CAST(SUM({' + '.join(costs)}) AS DOUBLE PRECISION)", f"CAST(SUM({tokens}) AS BIGINT)"
