"""Who operates the server: the one place that decides it.

The operator has the admin key. A newcomer, who has just started a server that only this machine reaches and
that has no keys at all, may look on as the operator does, and change nothing.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from pydantic import SecretStr

from proxy.http.access.browser import asked_loopback, is_loopback, is_of_own_page
from proxy.network.errors import Handler
from proxy.wire.errors import APIError

logger = logging.getLogger("weir.admin")

HEADER = "X-Weir-Admin-Key"
"""Holds the admin key beside a client's own key."""

_FORWARDED = ("forwarded", "x-forwarded", "x-real-ip", "via")
"""How the headers begin that a reverse proxy adds: some add only `X-Forwarded-Proto`."""
_READING = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})


class OperatorRule:
    """Decides whether a request is the operator's."""

    def __init__(self, admin_keys: Iterable[SecretStr], is_private: Callable[[], bool]) -> None:
        """`is_private`: whether the server listens on a loopback address alone, behind no trusted forwarder,
        and takes requests without keys."""
        digests = [_digest(key.get_secret_value().encode()) for key in admin_keys]
        self._names = {digest: f"admin-{digest.hex()[:8]}" for digest in digests}
        self._is_private = is_private

    @property
    def has_keys(self) -> bool:
        return bool(self._names)

    def admin_name(self, http: web.Request) -> str | None:
        """The name of the admin key in the request: `admin-` and the first digits of the key's SHA-256."""
        if not self._names:
            return None
        scheme, _, bearer = http.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        given = [http.headers.get(HEADER, ""), bearer if scheme.lower() == "bearer" else ""]
        names = (
            self._names.get(_digest(key.strip().encode(errors="surrogateescape"))) for key in given if key
        )
        return next((name for name in names if name), None)

    def is_newcomer(self, http: web.Request) -> bool:
        """Whether the request comes from this machine itself, to a server that nobody else reaches."""
        return (
            not self._names
            and self._is_private()
            and is_loopback(http.remote or "")
            and asked_loopback(http)
            and is_of_own_page(http)
            and http.version >= (1, 1)  # some reverse proxies speak HTTP/1.0, and add no header
            and not any(name.lower().startswith(_FORWARDED) for name in http.headers)
        )


OPERATOR_RULE = web.AppKey("operator_rule", OperatorRule)


def is_operator(http: web.Request) -> bool:
    """Whether the request is the operator's, or a newcomer's who may look on."""
    rule = http.config_dict[OPERATOR_RULE]
    return rule.admin_name(http) is not None or rule.is_newcomer(http)


def has_admin_key(http: web.Request) -> bool:
    """Whether the request has the admin key. Without it, nothing is changed, and no withheld text shown."""
    return http.config_dict[OPERATOR_RULE].admin_name(http) is not None


def admin_name(http: web.Request) -> str:
    """The name of the request's admin key, for the list of changes. Raises `APIError` 401 or 403."""
    rule = http.config_dict[OPERATOR_RULE]
    name = rule.admin_name(http)
    if name is not None:
        return name
    raise _refusal(rule, "Changes need the admin key")


def log_change(http: web.Request, action: str, of: str) -> None:
    """Log a change by the operator. `of`: a name or an id."""
    logger.info("%s: %s %s", admin_name(http), action, of)


def operator_middleware() -> Middleware:
    """Refuses requests of everybody but the operator, and changes by a newcomer."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        rule = request.config_dict[OPERATOR_RULE]
        if rule.admin_name(request) is None:
            if request.method not in _READING:
                raise _refusal(rule, "Changes need the admin key")
            if not rule.is_newcomer(request):
                raise _refusal(rule, "This needs the admin key")
        elif not is_of_own_page(request):
            raise APIError(
                403, "Pages of other sites may not use /admin.", "permission_error", code="cross_site_request"
            )
        return await handler(request)

    return check


def _refusal(rule: OperatorRule, reason: str) -> APIError:
    if rule.has_keys:
        return APIError(401, f"{reason}.", "authentication_error", code="invalid_api_key")
    return APIError(
        403, f"{reason}, and this server has none (--admin-key).", "permission_error", code="no_admin_key"
    )


def _digest(key: bytes) -> bytes:
    """Keys are found by their digest. The time that this takes reveals nothing about a key."""
    return hashlib.sha256(key).digest()
