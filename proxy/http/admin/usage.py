"""`GET /admin/usage`: requests, tokens and money by day, tenant, key, policy and model."""

from collections.abc import Sequence

from aiohttp import hdrs, web

from proxy.http.admin.decisions import filters
from proxy.http.admin.wire import listing, moment, operator_store
from proxy.service.service import SERVICE
from proxy.storage.operator import usage
from proxy.storage.records import Account, day_of
from proxy.wire.errors import APIError
from proxy.wire.usage_csv import csv_of

CSV = "text/csv"


async def report_usage(http: web.Request) -> web.Response:
    """`since` and `until` are times: the report has the whole days in which they are."""
    operator, prices = operator_store(http), http.config_dict[SERVICE].settings.prices
    wants_csv = _wants_csv(http)
    by = _by(http)
    found = filters(http, *Account._fields, "by", "format")
    equal = {name: found[name] for name in Account._fields if name in found}
    since, until = (_day(moment(http, name)) for name in ("since", "until"))
    await operator.decisions.flush()
    rows = await operator.store.run(usage.report(by, equal, since, until, prices or None), alone=False)
    if not wants_csv:
        return listing(rows, kept=operator.store.is_kept)
    names = [*by, *usage.COUNTS, *(usage.MONEY if prices else ())]
    headers = {hdrs.CACHE_CONTROL: "no-store"}
    return web.Response(text=csv_of(names, rows), content_type=CSV, charset="utf-8", headers=headers)


def _day(at: float | None) -> str | None:
    return None if at is None else day_of(at)


def _by(http: web.Request) -> Sequence[str]:
    """The fields to tell usage by. Raises `APIError` 400 for another one."""
    given = http.query.get("by")
    names = usage.BY if given is None else tuple(dict.fromkeys(given.split(",")))
    for name in names:
        if name not in usage.BY:
            raise APIError(400, f"by: usage is told by some of {', '.join(usage.BY)}.", param="by")
    return names


def _wants_csv(http: web.Request) -> bool:
    """Raises `APIError` 400 for another format than the two."""
    given = http.query.get("format")
    if given not in (None, "csv", "json"):
        raise APIError(400, "format: the value is csv or json.", param="format")
    accepted = http.headers.get(hdrs.ACCEPT, "").split(",")
    return given == "csv" if given else any(one.split(";")[0].strip().lower() == CSV for one in accepted)
