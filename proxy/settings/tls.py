"""The options of TLS."""

import ssl
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr, model_validator

from proxy.settings.values import File

_CERT_REQS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def _cert_reqs(value: Any) -> Any:
    """uvicorn and vLLM take the number of Python's constant."""
    return {str(int(number)): name for name, number in _CERT_REQS.items()}.get(str(value), value)


CertReqs = Annotated[Literal["none", "optional", "required"], BeforeValidator(_cert_reqs)]


class TLSOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    ssl_certfile: File | None = None
    """PEM file with the service's certificate and those that lead to its authority. The service then speaks
    TLS alone"""
    ssl_keyfile: File | None = None
    """PEM file with the private key of ssl_certfile (default: it is in that file)"""
    ssl_keyfile_password: SecretStr | None = None
    """Password of the private key; better set as WEIR_SSL_KEYFILE_PASSWORD"""
    ssl_ca_certs: File | None = None
    """PEM file with the authorities of clients' certificates"""
    ssl_cert_reqs: CertReqs | None = None
    """Whether a client must show a certificate of ssl_ca_certs (default: required, if that is given). With
    optional, a certificate that is shown must be valid"""

    @model_validator(mode="after")
    def _tls_has_what_it_needs(self) -> Self:
        if self.ssl_certfile is None:
            for name in ("ssl_keyfile", "ssl_keyfile_password", "ssl_ca_certs", "ssl_cert_reqs"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} needs the service's certificate: --ssl-certfile FILE")
        if self.ssl_ca_certs is None and self.ssl_cert_reqs in ("optional", "required"):
            raise ValueError(
                f"ssl_cert_reqs '{self.ssl_cert_reqs}' needs the authorities of clients: --ssl-ca-certs FILE"
            )
        return self
