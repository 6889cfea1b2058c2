"""`/admin/shadow`: what hooks in shadow mode would have done."""

from aiohttp import web

from proxy.http.access.operator import has_admin_key
from proxy.http.admin.decisions import filters
from proxy.http.admin.wire import listing, moment
from proxy.service.service import SERVICE
from proxy.telemetry.shadow import report


async def list_shadow(http: web.Request) -> web.Response:
    """Examples are in it for the admin key, if the setting `keep_withheld_text` keeps withheld texts."""
    service = http.config_dict[SERVICE]
    equal = filters(http, "policy", "hook")
    since, until = moment(http, "since"), moment(http, "until")
    await service.decision_writer.flush()
    steps = report(equal, since=since, until=until, with_examples=has_admin_key(http))
    return listing(await service.store.run(steps, alone=False), kept=service.store.is_kept)
