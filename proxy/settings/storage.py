"""The options of what is kept: the operator's store, hooks' decisions, receipts, responses, and shared state.

A `ClassVar` is a limit that no operator needs to set.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from proxy.settings.values import File

STORE_SCHEMES = ("sqlite:///", "postgresql://")
STATE_SCHEMES = ("sqlite:///", "redis://", "rediss://", "postgresql://")


def check_url(url: SecretStr | None, schemes: Sequence[str]) -> SecretStr | None:
    """The URL of a database. Raises `ValueError` for one that cannot be used. The message does not quote the
    URL, which may have a password."""
    if url is None:
        return None
    text = url.get_secret_value()
    scheme = next((one for one in schemes if text.startswith(one)), None)
    if scheme is None:
        raise ValueError(f"the URL must begin with {' or '.join(schemes)}")
    if scheme == "sqlite:///":
        if text == scheme:
            raise ValueError("the URL names no file")
        return url
    try:
        parts = urlsplit(text)
        for host in parts.netloc.rpartition("@")[2].split(","):  # PostgreSQL may have several
            _ = urlsplit(f"//{host}").port  # raises, if it is no number
    except ValueError:
        raise ValueError("the URL cannot be read") from None
    if "@" in parts.path:
        raise ValueError("the URL has an @ after a /: write %2F for / in a password")
    return url


class StoreOptions(BaseModel):
    model_config = ConfigDict(defer_build=True)

    store: SecretStr | None = None
    """URL of what the operator keeps (keys, changes, decisions): sqlite:///FILE or postgresql://HOST/DATABASE.
    By default it is weir.sqlite in the working folder if there is an admin key, and else ends with the
    server"""
    store_timeout: ClassVar[float] = 5.0
    """Seconds in which the store must answer. No request waits for it, but operators do."""

    @field_validator("store")
    @classmethod
    def _store_can_be_used(cls, url: SecretStr | None) -> SecretStr | None:
        return check_url(url, STORE_SCHEMES)


class DecisionOptions(BaseModel):
    """The options for keeping hooks' decisions. Raises `ValueError` for a value out of range."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    keep_withheld_text: bool = False
    """Keep the withheld text with each decision, for operators who send the admin key"""
    read_recordings: bool = False
    """Let operators who send the admin key read recordings (--record) over /admin/recordings"""
    decisions_max_age: Annotated[float, Field(gt=0)] = 30.0
    """Days after which decisions are removed from the store. It keeps the last million of them"""
    decisions_min_held: ClassVar[float] = 1.0
    """Seconds; of a shorter hold whose text was released untouched, only the time is counted. Nobody notices
    such a hold."""
    decisions_max_rows: ClassVar[int] = 1_000_000
    """Decisions that the store keeps; the oldest are removed. They take about a gigabyte."""


AuditFormat = Literal["json", "ocsf"]


class AuditOptions(BaseModel):
    """A file of decisions."""

    model_config = ConfigDict(defer_build=True)

    audit: File | None = None
    """File for each decision of a hook, one a line, for programs that collect logs. No request waits for it;
    decisions that it has no room for are counted in weir_audit_records_lost_total"""
    audit_format: AuditFormat = "json"
    """json: the fields of a decision. ocsf: Detection Findings of OCSF 1.5, for a SIEM"""
    audit_max_bytes: Annotated[int, Field(ge=6)] = 384 * 1024**2
    """Most bytes of the file and of five older ones. A sixth of them full, it is renamed to FILE.1, FILE.1 to
    FILE.2 and so on, and the oldest is removed"""
    audit_files: ClassVar[int] = 6
    """With the older ones."""


class ReceiptOptions(BaseModel):
    """Receipts of answers, and what answers say of their guards."""

    model_config = ConfigDict(defer_build=True)

    receipts: File | None = None
    """Folder for a signed receipt of each answer: what its guards saw, withheld and released, in numbers and
    digests. While none can be written, requests are refused. Answers name their guards in X-Weir-Guards"""
    receipts_key: File | None = None
    """PEM file with the Ed25519 key that signs receipts. By default it is receipts.key in their folder, made
    at the first start"""
    guards_header: bool = False
    """Answers name their guards, the policy and its revision in X-Weir-Guards, also without --receipts"""


class StateOptions(BaseModel):
    """The bounds of the responses that are kept, and where what processes share is."""

    model_config = ConfigDict(defer_build=True)

    max_stored_responses: Annotated[int, Field(ge=0)] = 10_000
    """Responses kept for previous_response_id, the latest used; 0: none. One caller may have a tenth of
    them (or 1000, if that is more), and an eighth of their bytes: 256 MiB for 10,000, and more for more"""
    state: SecretStr | None = None
    """URL of what several servers share, or of what is kept over a restart: sqlite:///FILE, redis://HOST,
    postgresql://HOST/DATABASE. By default it ends with the server"""
    state_timeout: ClassVar[float] = 2.0
    """Seconds in which the shared state must answer. Requests wait for it."""

    @property
    def max_stored_responses_per_caller(self) -> int:
        return max(1000, self.max_stored_responses // 10)

    @property
    def max_stored_bytes(self) -> int:
        """Bytes of all responses kept, about, with the conversations that they end."""
        return max(256 * 1024 * 1024, 26 * 1024 * self.max_stored_responses)

    @property
    def max_stored_bytes_per_caller(self) -> int:
        return max(32 * 1024 * 1024, self.max_stored_bytes // 8)

    @field_validator("state")
    @classmethod
    def _state_can_be_used(cls, url: SecretStr | None) -> SecretStr | None:
        return check_url(url, STATE_SCHEMES)
