"""An upstream as a deployment names it: its URL, the password in the URL, and its own settings."""

import base64
import os
import re
from collections.abc import Mapping
from typing import Annotated, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic.dataclasses import dataclass


def _variable(name: str) -> str:
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("this must be the name of a variable of the environment")
    return name


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class UpstreamConfig:
    url: str = Field(repr=False)
    """Its base URL, as a client's `base_url`."""
    name: str | None = None
    """Its name in metrics and logs. Affinity ranks upstreams by name. None: the URL's host and port."""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Its share of the requests, compared with other upstreams' weights."""
    api_key: SecretStr | None = None
    """None: that of `api_key_env`, or else `upstream_api_key`."""
    api_key_env: Annotated[str, AfterValidator(_variable)] | None = None
    """The variable of the environment that has its key. It is read when the engine is made."""
    model: str | None = None
    """Its name for the model. None: `upstream_model`."""
    max_connections: Annotated[int, Field(ge=1)] | None = None
    """Most requests at the same time. None: `upstream_max_connections`."""

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if self.api_key is not None and self.api_key_env is not None:
            raise ValueError("api_key_env: the upstream has an api_key too: give one of them")
        return self

    def key(self, default: SecretStr | None, environment: Mapping[str, str] = os.environ) -> str | None:
        """Its key, or else the one of all upstreams. Raises `ValueError` if the variable is not set. The
        message names the upstream, and not the variable: somebody may have written the key in its place."""
        if self.api_key_env is not None:
            if not (key := environment.get(self.api_key_env)):
                name = self.name or urlsplit(without_password(self.url)[0]).netloc
                raise ValueError(f"api_key_env of the upstream {name} names a variable that is not set")
            return key
        secret = self.api_key or default
        return secret.get_secret_value() if secret else None


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
