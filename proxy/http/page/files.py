"""The page's files, as they are served: at `/` and under `/page/`, the same for everybody.

The files are read once, when the application is made. They hold no data, so no key is needed to load them.
The headers let a browser run only these files, ask only this server, and show the page in no frame.
"""

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

from aiohttp import web

INDEX = "index.html"

HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self' data:",
            "font-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The browser asks each time whether a file has changed, and gets it only then.
    "Cache-Control": "no-cache",
}

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}


class PageFile(NamedTuple):
    body: bytes
    content_type: str
    etag: str

    def response(self, request: web.Request) -> web.Response:
        """The file, or status 304 if the client has it."""
        known = request.if_none_match or ()
        if any(etag.value in (self.etag, "*") for etag in known):
            response = web.Response(status=304, headers=HEADERS)
        else:
            response = web.Response(body=self.body, headers={**HEADERS, "Content-Type": self.content_type})
        response.etag = self.etag
        return response


@cache
def page_files() -> dict[str, PageFile]:
    """Every file by its path on the server: `/` for the page itself, and `/page/NAME` for any other file."""
    found = {}
    for file in (resources.files("proxy.http.page") / "static").iterdir():
        if file.is_file():
            path = "/" if file.name == INDEX else f"/page/{file.name}"
            body, suffix = file.read_bytes(), file.name[file.name.rindex(".") :]
            found[path] = PageFile(body, _TYPES[suffix], hashlib.sha256(body).hexdigest()[:32])
    return found


def add_page(app: web.Application) -> None:
    """Serve the page's files."""
    for path in page_files():
        app.router.add_get(path, _serve)


async def _serve(request: web.Request) -> web.Response:
    return page_files()[request.path].response(request)
