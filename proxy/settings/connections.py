"""The limits of connections, and the deadlines of their clients."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class ConnectionOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    max_connections: Count = 4096
    """Connections at once. The server takes fewer if it may not open twice as many files (ulimit -n)"""
    max_connections_per_address: Count = 2048
    """Connections at once from one address, and never more than half of all. Behind a trusted forwarder,
    requests at once from one address"""
    max_unfinished_bodies: Count = 256 * 1024 * 1024
    """Bytes of bodies that are not complete. Beyond, the address with the most of them has one refused: the
    body that has waited longest"""
    header_timeout: Seconds = 10.0
    """Seconds in which a request's headers must be complete; the first ones with the TLS handshake"""
    body_timeout: Seconds = 60.0
    """Seconds in which a request's body must be complete"""
    body_idle_timeout: Seconds = 10.0
    """Seconds without a byte of a body that is not complete"""
    idle_timeout: Seconds = 75.0
    """Seconds that a connection stays open without a request"""
    unread_timeout: Seconds = 60.0
    """Seconds in which a client reads nothing of its answer. The request is then cancelled"""
