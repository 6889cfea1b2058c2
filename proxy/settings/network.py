"""The options of connections: limits and deadlines, TLS, reverse proxies in front, and web pages.

A `ClassVar` is a limit that no operator needs to set.
"""

from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic.networks import IPvAnyNetwork

from engine.protocol.options import parts
from proxy.settings.values import File, Names


class AddressOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    trusted_forwarders: Annotated[list[IPvAnyNetwork], BeforeValidator(parts)] = []
    """Address or network of a reverse proxy, such as 10.0.0.0/8; repeat. Its X-Forwarded-For is believed"""


class TLSOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    ssl_certfile: File | None = None
    """PEM file with the service's certificate and those that lead to its authority. The service then speaks
    TLS alone"""
    ssl_keyfile: File | None = None
    """PEM file with the private key of ssl_certfile (default: it is in that file)"""
    ssl_keyfile_password: SecretStr | None = None
    """Password of the private key; better set as WEIR_SSL_KEYFILE_PASSWORD"""
    ssl_ca_certs: File | None = None
    """PEM file with the authorities of clients' certificates. Each client must then show a certificate"""

    @model_validator(mode="after")
    def _tls_has_what_it_needs(self) -> Self:
        if self.ssl_certfile is None:
            for name in ("ssl_keyfile", "ssl_keyfile_password", "ssl_ca_certs"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} needs the service's certificate: --ssl-certfile FILE")
        return self


class ConnectionOptions(BaseModel):
    """The limits of connections, and the deadlines of their clients. One address may have half of all
    connections. Behind a trusted forwarder, this limits the requests of one address."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    max_connections: Annotated[int, Field(ge=1)] = 4096
    """Connections at once, and at most half of them from one address. The server takes fewer if it may not
    open twice as many files (ulimit -n)"""
    client_timeout: Annotated[float, Field(gt=0)] = 75.0
    """Seconds that a client may take to send a request's body, to read more of its answer (or the request is
    cancelled), and to begin its next request"""
    header_timeout: ClassVar[float] = 10.0
    """Seconds in which a request's headers must be complete; the first ones with the TLS handshake. Honest
    clients send headers in one packet."""
    body_idle_timeout: ClassVar[float] = 10.0
    """Seconds without a byte of a body that is not complete. Only a client that is gone is silent so long."""
    max_unfinished_bodies: ClassVar[int] = 256 * 1024 * 1024
    """Bytes of bodies that are not complete. Beyond, the address with the most of them has one refused: the
    body that has waited longest. Every connection of a busy server fits, with 64 KiB each."""


class BrowserOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    allowed_hosts: Names = []
    """Host names that requests may be sent to, besides loopback names; * allows all. Without any, a server on
    a loopback address answers loopback names only, and a server on another address answers all"""
    cors_origins: Names = []
    """Origin whose pages may use the API in a browser, such as https://chat.example; repeat. * allows all"""
