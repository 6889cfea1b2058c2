"""The trace of the request that a hook is called for."""

from collections.abc import Mapping

from engine.protocol.tracing import CURRENT_SPAN


def trace_headers() -> Mapping[str, str]:
    """The headers for a service that a hook asks: the service's spans then belong to the request's trace (W3C
    Trace Context). Empty without tracing."""
    return CURRENT_SPAN.get().headers
