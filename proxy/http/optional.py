"""The seam of the page and of the operator's API, whose code may be left out."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from aiohttp import web

from engine.protocol.parts import MissingPart, load

Add = Callable[[web.Application], None]


def page_paths() -> Iterable[str]:
    """The paths of the page's files. They hold no data; the page's requests for data need a key."""
    files = _part("proxy.http.page.files:page_files")
    return files() if files else ()


def add_page(app: web.Application) -> None:
    """Serve the page's files."""
    if add := _part("proxy.http.page.files:add_page"):
        add(app)


def add_admin(app: web.Application) -> None:
    """Add `/admin` to an application that answers errors, and knows the service and the operator's rule."""
    if add := _part("proxy.http.admin.app:add_admin"):
        add(app)


def _part(path: str) -> Any:
    """None: there is no such code."""
    with suppress(MissingPart):
        return load(path, path)
    return None
