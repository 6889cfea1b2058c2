"""An upstream as a deployment names it: its URL, the password in it, and what is particular to it."""

import base64
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import ConfigDict, Field, SecretStr
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class UpstreamConfig:
    url: str = Field(repr=False)
    """Its base URL, as a client's `base_url`."""
    name: str | None = None
    """Its name in metrics and logs. Affinity ranks upstreams by name. None: the URL's host and port."""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Its share of the requests, beside other upstreams' weights."""
    api_key: SecretStr | None = None
    """None: `upstream_api_key`."""
    model: str | None = None
    """Its name for the model. None: `upstream_model`."""
    max_connections: Annotated[int, Field(ge=1)] | None = None
    """Most requests at the same time. None: `upstream_max_connections`."""


def without_password(upstream: str) -> tuple[str, str | None]:
    """The URL without a slash at its end, and the header `Authorization` that replaces a user and a password
    in it. Raises `ValueError` for a URL that cannot be used. The message does not quote the URL."""
    try:
        parts = urlsplit(upstream)
        _ = parts.port  # raises, if it is not a number
    except ValueError:
        raise ValueError("the upstream's URL cannot be read") from None  # the error may quote the password
    if "@" in parts.path:  # the text before it may be a password, and the log would show it
        raise ValueError(
            "the upstream's URL has an @ after a /: write %2F for / in a password, %40 for @ in a path"
        )
    if parts.scheme not in ("http", "https"):
        raise ValueError("the upstream is not an http or https URL")
    if not parts.hostname:
        raise ValueError("the upstream's URL has no host")
    if parts.query or parts.fragment:
        raise ValueError(
            "the upstream's URL has a query or a fragment: give a base URL, and a key as the API key"
        )
    user, _, host = parts.netloc.rpartition("@")
    url = parts._replace(netloc=host).geturl().rstrip("/")
    if not user:
        return url, None
    name, _, password = user.partition(":")
    credentials = f"{unquote(name)}:{unquote(password)}".encode()
    return url, f"Basic {base64.b64encode(credentials).decode()}"
