"""The operator's application: `/admin` and `/metrics`, on the service's port or on a port of their own."""

from collections.abc import Iterable

from aiohttp import web

from proxy.http import handlers
from proxy.http.access.browser import BrowserRule, is_loopback
from proxy.http.access.operator import OPERATOR_RULE, OperatorRule, operator_middleware
from proxy.http.admin import configuration, decisions, keys, recordings, requests, shadow
from proxy.http.admin.live import LIVE, LiveFeed, live, shadow_hooks
from proxy.http.arrival import add_headers, needs_keys
from proxy.http.door import OWN_CHECK, door
from proxy.http.page.files import add_page
from proxy.network.addresses import FORWARDERS
from proxy.network.errors import Handler
from proxy.service.service import SERVICE, Service
from proxy.settings.network import BrowserOptions

Endpoint = tuple[str, str, str, Handler]

ENDPOINTS: Iterable[Endpoint] = (
    ("GET", "/keys", "The keys of clients", keys.list_keys),
    ("POST", "/keys", "Make a key", keys.create_key),
    ("GET", "/keys/{name}", "A key", keys.get_key),
    ("PATCH", "/keys/{name}", "Change what a key may do", keys.change_key),
    ("DELETE", "/keys/{name}", "Revoke a key", keys.revoke_key),
    ("GET", "/requests", "The requests that run", requests.list_requests),
    ("DELETE", "/requests/{id}", "Cancel a request", requests.cancel_request),
    ("POST", "/reload", "Take the configuration that the file has now", configuration.reload),
    ("GET", "/models", "The models", configuration.list_models),
    ("GET", "/policies", "The policies", configuration.list_policies),
    ("GET", "/explain", "What a request of a key gets, and why", configuration.explained),
    ("GET", "/changes", "What the operator changed", keys.list_changes),
    ("GET", "/decisions", "What hooks decided", decisions.list_decisions),
    ("GET", "/shadow", "What hooks in shadow mode would have done", shadow.list_shadow),
    ("GET", "/recordings", "The recordings", recordings.list_recordings),
    ("GET", "/recordings/{id}", "A recording", recordings.get_recording),
    ("DELETE", "/recordings/{id}", "Remove a recording", recordings.delete_recording),
    ("GET", "/live", "What the server does now, each second", live),
)


_BESIDE: Iterable[tuple[str, Handler]] = (
    ("/metrics", handlers.metrics),
    ("/health", handlers.health),
    ("/ready", handlers.ready),
)
"""The paths of the operator's own port beside `/admin` and the page. It needs no key."""


def operator_rule(service: Service) -> OperatorRule:
    settings = service.settings
    hosts = [settings.host] if settings.admin_port is None else [settings.host, settings.admin_host]
    is_private = all(map(is_loopback, hosts)) and not settings.trusted_forwarders
    return OperatorRule(settings.admin_key, lambda: is_private and not needs_keys(service))


def add_admin(app: web.Application) -> None:
    """Add `/admin` to an application that answers errors, and knows the service and the operator's rule."""
    admin = web.Application(middlewares=[operator_middleware()])
    admin[OWN_CHECK] = True
    service = app[SERVICE]
    admin[LIVE] = LiveFeed(
        service.metrics.collect,
        lambda: shadow_hooks(service.deployment.directory.policies.values()),
        service.others,
    )
    for method, path, _, handler in ENDPOINTS:
        admin.router.add_route(method, path, handler)
    app.add_subapp("/admin", admin)


def add_metrics(app: web.Application) -> None:
    """Add `/metrics` for the operator to the same application: it names tenants, policies and upstreams."""
    metrics = web.Application(middlewares=[operator_middleware()])
    metrics[OWN_CHECK] = True
    metrics.router.add_get("", handlers.metrics)
    app.add_subapp("/metrics", metrics)


def admin_port_app(service: Service, rule: OperatorRule) -> web.Application:
    """The application of `--admin-port`."""
    settings = service.settings
    browser = BrowserRule(BrowserOptions(allowed_hosts=settings.allowed_hosts), settings.admin_host)
    app = web.Application(
        middlewares=[door(service, browser, knows_keys=False)],
        client_max_size=0,  # each handler bounds its body
    )
    app[SERVICE] = service
    app[FORWARDERS] = settings.trusted_forwarders
    app[OPERATOR_RULE] = rule
    app.on_response_prepare.append(add_headers)
    for path, handler in _BESIDE:
        app.router.add_get(path, handler)
    if settings.page:
        add_page(app)
    add_admin(app)
    return app
