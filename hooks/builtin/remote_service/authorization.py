"""The guard's credentials for a service: a key, or AWS's Signature Version 4."""

import hashlib
import hmac
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from urllib.parse import quote

from yarl import URL

Authorize = Callable[[bytes], Mapping[str, str]]
"""Returns the headers that let a request with this body through."""
_ALGORITHM = "AWS4-HMAC-SHA256"


def authorization(api: str, url: URL, api_key_env: str | None, region: str | None) -> Authorize:
    """Raises `ValueError` for an environment variable that is not set, or a region that is not used."""
    if api == "bedrock" and api_key_env is None:
        if region is None:
            raise ValueError("bedrock needs a region, or api_key_env")
        return Signer.from_environment(url, "bedrock", region).headers
    if region is not None:
        raise ValueError("region is of api: bedrock without api_key_env")
    headers: dict[str, str] = {}
    if api_key_env is not None:
        key = _environment(api_key_env)
        headers = {"x-api-key": key} if api == "litellm" else {"Authorization": f"Bearer {key}"}
    return lambda _: headers


@dataclass(frozen=True)
class Signer:
    """Signs the requests to one URL of AWS:
    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html."""

    url: URL
    service: str
    region: str
    key_id: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    content_type: str | None = "application/json"

    @classmethod
    def from_environment(cls, url: URL, service: str, region: str) -> "Signer":
        key_id, secret = _environment("AWS_ACCESS_KEY_ID"), _environment("AWS_SECRET_ACCESS_KEY")
        return cls(url, service, region, key_id, secret, os.environ.get("AWS_SESSION_TOKEN"))

    def headers(self, body: bytes, now: datetime | None = None) -> dict[str, str]:
        """Return the headers to add to a POST request with this body."""
        now = now or datetime.now(UTC)
        signed = {
            "content-type": self.content_type,
            "host": self.url.host_port_subcomponent,
            "x-amz-date": f"{now:%Y%m%dT%H%M%SZ}",
            "x-amz-security-token": self.token,
        }
        present = {name: value for name, value in signed.items() if value}
        names = ";".join(present)
        lines = [f"{name}:{value}" for name, value in present.items()]
        path = quote(self.url.raw_path, safe="/-_.~")
        request = "\n".join(["POST", path, "", *lines, "", names, hashlib.sha256(body).hexdigest()])
        scope = f"{now:%Y%m%d}/{self.region}/{self.service}/aws4_request"
        digest = hashlib.sha256(request.encode()).hexdigest()
        key = reduce(_hmac, scope.split("/"), f"AWS4{self.secret}".encode())
        signature = _hmac(key, "\n".join([_ALGORITHM, present["x-amz-date"], scope, digest])).hex()
        proof = f"{_ALGORITHM} Credential={self.key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
        amazon = {name: value for name, value in present.items() if name.startswith("x-amz-")}
        return {**amazon, "Authorization": proof}


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _environment(variable: str) -> str:
    if not (value := os.environ.get(variable)):
        raise ValueError(f"the environment variable {variable} is not set")
    return value
