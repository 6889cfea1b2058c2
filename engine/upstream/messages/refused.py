"""The error for what the Messages API cannot express."""

from engine.protocol import RequestError

_REASON = "the upstream speaks the Messages API, which has no such field"


def refused(field: str, reason: str = _REASON) -> RequestError:
    return RequestError(f"{field} is not supported: {reason}.", param=field)
