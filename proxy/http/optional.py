"""The seam of the page, the operator's API and the guard service, whose code may be left out."""

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from engine.protocol.parts import MissingPart, load
from proxy.http.openapi import Operation
from proxy.service.service import SERVICE
from proxy.settings.serve import ServeSettings


def page_paths() -> Iterable[str]:
    """The paths of the page's files. They hold no data; the page's requests for data need a key."""
    files = _part("proxy.http.page.files:page_files", "the page", is_asked=False)
    return files() if files else ()


def add_page(app: web.Application) -> None:
    """Serve the page's files. Raises `MissingPart` if the settings ask for them and there is no such code."""
    is_asked = "page" in _settings(app).model_fields_set
    if add := _part("proxy.http.page.files:add_page", "the page", is_asked=is_asked):
        add(app)


def add_admin(app: web.Application) -> None:
    """Add `/admin` to an application that answers errors, and knows the service and the operator's rule.
    Raises `MissingPart` if the settings ask for it and there is no such code."""
    settings = _settings(app)
    is_asked = bool(settings.admin_key) or settings.admin_port is not None
    if add := _part("proxy.http.admin.app:add_admin", "the operator's API", is_asked=is_asked):
        add(app)


def add_guard_api(app: web.Application) -> tuple[Operation, ...]:
    """Add the protocols by which other gateways have the hooks judge texts: those that the settings name.
    Returns what they add. Raises `MissingPart` if the settings name one and there is no such code."""
    if not _settings(app).guard_api_names - {"moderations"}:
        return ()
    add = load("proxy.http.guard_api.routes:add_guard_api", "the guard service")
    return tuple(add(app))


def _settings(app: web.Application) -> ServeSettings:
    return app[SERVICE].settings


def _part(path: str, what: str, *, is_asked: bool) -> Any:
    """None: there is no such code, and nobody asked for it."""
    try:
        return load(path, what)
    except MissingPart:
        if is_asked:
            raise
        return None
