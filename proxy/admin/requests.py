"""`/admin/requests`: the requests that run, in all processes that serve."""

from aiohttp import web

from proxy.admin.operator import admin_name, log_change
from proxy.admin.running import CancelRequest, ListRequests, RequestFacts
from proxy.admin.wire import answer, listing
from proxy.errors import APIError
from proxy.service import SERVICE
from proxy.store.changes import Change


async def list_requests(http: web.Request) -> web.Response:
    service = http.config_dict[SERVICE]
    found: list[RequestFacts] = service.requests.facts()
    for theirs in await service.others.ask(ListRequests()):
        found += theirs
    return listing([facts.public() for facts in sorted(found, key=lambda facts: facts.started)])


async def cancel_request(http: web.Request) -> web.Response:
    service, request_id = http.config_dict[SERVICE], http.match_info["id"]
    if not service.requests.cancel(request_id) and not any(
        await service.others.ask(CancelRequest(request_id))
    ):
        raise APIError(404, f"No request '{request_id}' runs.", "not_found_error", param="id")
    log_change(http, "cancel_request", request_id)
    await service.store.note(Change(admin_name(http), "cancel_request", request_id, {}))
    return answer({"object": "request", "id": request_id, "cancelled": True})
