"""`/admin/shadow`: what hooks in shadow mode would have done."""

from aiohttp import web

from proxy.http.access.operator import has_admin_key
from proxy.http.admin.decisions import filters
from proxy.http.admin.wire import listing, moment, operator_store
from proxy.storage.operator.shadow import report


async def list_shadow(http: web.Request) -> web.Response:
    """Examples are in it for the admin key, if the setting `keep_withheld_text` keeps withheld texts."""
    operator = operator_store(http)
    equal = filters(http, "policy", "hook")
    since, until = moment(http, "since"), moment(http, "until")
    await operator.decisions.flush()
    steps = report(equal, since=since, until=until, with_examples=has_admin_key(http))
    return listing(await operator.store.run(steps, alone=False), kept=operator.store.is_kept)
