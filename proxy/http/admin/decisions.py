"""`/admin/decisions`: the decisions of hooks, the newest first. `/admin/shadow`: reports on shadow mode."""

from aiohttp import web

from engine.protocol.did_you_mean import did_you_mean
from proxy.http.access.operator import has_admin_key
from proxy.http.admin.wire import listing, moment, number, operator_store
from proxy.storage.operator import decisions
from proxy.storage.operator.shadow import report
from proxy.storage.records import ACTIONS, MODES
from proxy.wire.errors import APIError

MAX_CURSOR = 2**63 - 1


async def list_decisions(http: web.Request) -> web.Response:
    """Withheld texts are in it for the admin key, if the setting `keep_withheld_text` keeps them."""
    operator = operator_store(http)
    limit = number(http, "limit", 100, 1000)
    cursor = number(http, "cursor", 0, MAX_CURSOR) if "cursor" in http.query else None
    since, until = moment(http, "since"), moment(http, "until")
    equal = filters(http, *decisions.FILTERS)
    await operator.decisions.flush()
    steps = decisions.find(equal, since=since, until=until, limit=limit, cursor=cursor)
    found = await operator.store.run(steps, alone=False)
    with_text = has_admin_key(http)
    data = [record.json(with_text=with_text) for record in found.records]
    return listing(data, next_cursor=found.cursor, kept=operator.store.is_kept)


async def list_shadow(http: web.Request) -> web.Response:
    """Examples are in it for the admin key, if the setting `keep_withheld_text` keeps withheld texts."""
    operator = operator_store(http)
    equal = filters(http, "policy", "hook")
    since, until = moment(http, "since"), moment(http, "until")
    await operator.decisions.flush()
    steps = report(equal, since=since, until=until, with_examples=has_admin_key(http))
    return listing(await operator.store.run(steps, alone=False), kept=operator.store.is_kept)


def filters(http: web.Request, *names: str) -> dict[str, str]:
    """The values that fields must have. Raises `APIError` 400 for an unknown name in the query, and for an
    unknown action or mode."""
    known = {*names, "since", "until", "limit", "cursor"}
    for name in http.query:
        if name not in known:
            reason = f"{name}: results are found by {', '.join(sorted(known))}."
            raise APIError(400, reason, param=name, code="unknown_parameter")
    found = {name: http.query[name] for name in names if name in http.query}
    for name, values in (("action", ACTIONS), ("mode", MODES)):
        if name in found and found[name] not in values:
            hint = did_you_mean(found[name], values) or f"; there are {', '.join(values)}"
            raise APIError(400, f"{name}: there is no {name} {found[name]!r}{hint}", param=name)
    return found
