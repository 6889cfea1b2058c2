"""`/admin/requests`: the requests that run, in all processes that serve."""

from aiohttp import web

from proxy.http.access.operator import admin_name, log_change
from proxy.http.admin.wire import answer, listing, number
from proxy.service.running import CancelRequest, ListRequests, OldestRequests
from proxy.service.service import SERVICE
from proxy.storage.records import Change
from proxy.wire.errors import APIError


async def list_requests(http: web.Request) -> web.Response:
    """The oldest requests, at most `limit`, and the number of all."""
    service, limit = http.config_dict[SERVICE], number(http, "limit", 100, 1000)
    found: list[OldestRequests] = [
        service.requests.oldest(limit),
        *await service.peers.ask(ListRequests(limit)),
    ]
    all_ = sorted((facts for one in found for facts in one.oldest), key=lambda facts: facts.started)
    return listing(
        [facts.public() for facts in all_[:limit]], num_running=sum(one.num_running for one in found)
    )


async def cancel_request(http: web.Request) -> web.Response:
    service, request_id = http.config_dict[SERVICE], http.match_info["id"]
    if not service.requests.cancel(request_id) and not any(
        await service.peers.ask(CancelRequest(request_id))
    ):
        raise APIError(404, f"No request '{request_id}' runs.", "not_found_error", param="id")
    log_change(http, "cancel_request", request_id)
    await service.operator.note(Change(admin_name(http), "cancel_request", request_id, {}))
    return answer({"object": "request", "id": request_id, "cancelled": True})
