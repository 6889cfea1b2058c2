"""The operator's API, `/admin`, on the service's port or on a port of its own."""

from collections.abc import Iterable

from aiohttp import web

from proxy.http.access.operator import operator_middleware
from proxy.http.admin import approvals, configuration, decisions, keys, recordings, requests, usage
from proxy.http.admin.live import LIVE, LiveFeed, live, shadow_hooks
from proxy.http.admin.past import PAST, Past, past, remembering
from proxy.http.admin.wire import operator_store
from proxy.http.door import OWN_CHECK
from proxy.network.errors import Handler
from proxy.service.service import SERVICE

Endpoint = tuple[str, str, str, Handler]

ENDPOINTS: Iterable[Endpoint] = (
    ("GET", "/keys", "The keys of clients", keys.list_keys),
    ("POST", "/keys", "Make a key", keys.create_key),
    ("GET", "/keys/{name}", "A key", keys.get_key),
    ("PATCH", "/keys/{name}", "Change what a key may do", keys.change_key),
    ("POST", "/keys/{name}/rotate", "Give a key a new value, beside the old one", keys.rotate_key),
    ("DELETE", "/keys/{name}", "Revoke a key", keys.revoke_key),
    ("GET", "/requests", "The requests that run", requests.list_requests),
    ("DELETE", "/requests/{id}", "Cancel a request", requests.cancel_request),
    ("GET", "/approvals", "The tool calls that wait for a person", approvals.list_approvals),
    ("POST", "/approvals/{id}", "Approve or refuse a tool call", approvals.answer_approval),
    ("POST", "/reload", "Take the configuration that the file has now", configuration.reload),
    ("GET", "/models", "The models", configuration.list_models),
    ("GET", "/policies", "The policies", configuration.list_policies),
    ("GET", "/explain", "What a request of a key gets, and why", configuration.explained),
    ("GET", "/changes", "What the operator changed", keys.list_changes),
    ("GET", "/decisions", "What hooks decided", decisions.list_decisions),
    ("GET", "/shadow", "What hooks in shadow mode would have done", decisions.list_shadow),
    ("GET", "/usage", "Requests, tokens and money, by day and by who asked", usage.report_usage),
    ("GET", "/recordings", "The recordings", recordings.list_recordings),
    ("GET", "/recordings/{id}", "A recording", recordings.get_recording),
    ("DELETE", "/recordings/{id}", "Remove a recording", recordings.delete_recording),
    ("GET", "/live", "What the server does now, each second", live),
    ("GET", "/live/past", "What the server did in the last two minutes", past),
)


def add_admin(app: web.Application) -> None:
    """Add `/admin` to an application that answers errors, and knows the service and the operator's rule."""
    admin = web.Application(middlewares=[operator_middleware(), _keeping])
    admin[OWN_CHECK] = True
    service = app[SERVICE]
    admin[LIVE] = LiveFeed(
        service.metrics.collect,
        lambda: shadow_hooks(service.deployment.directory.policies.values()),
        service.peers,
    )
    admin[PAST] = Past(service.metrics.collect, service.peers)
    admin.cleanup_ctx.append(remembering)
    for method, path, _, handler in ENDPOINTS:
        admin.router.add_route(method, path, handler)
    app.add_subapp("/admin", admin)


@web.middleware
async def _keeping(request: web.Request, handler: Handler) -> web.StreamResponse:
    """An operator looks on, as the page does when it loads: decisions are worth keeping from now on."""
    operator_store(request).keep_latest_decisions()
    return await handler(request)
