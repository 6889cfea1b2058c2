"""Values that the operator may see: the decisions of hooks, and the changes of the operator."""

import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, get_args

from engine.protocol import Channel, GenerationRequest
from hooks.api.decision import Action, Decision, Mode

MAX_NAME = 256
"""Characters kept of a name that a caller or a model gave."""


ACTIONS: tuple[str, ...] = (*get_args(Action), "limit")
MODES: tuple[str, ...] = get_args(Mode)
JUDGED = ("num_judged", "num_unjudged", "max_unjudged")
"""The fields that only an action `judged` has."""
PLACES = ("hook_index", "call_index", "num_closing")
"""The fields that an answer alone tells. They are not stored, and None in what is read back."""


class Asker(NamedTuple):
    """The client whose request a decision concerns, and the model and policy that served it.

    All names are the configuration's.
    """

    tenant: str
    key: str
    """The key's name, never the key."""
    policy: str
    revision: str
    """The revision of the policy's settings."""
    model: str


class Account(NamedTuple):
    """The client and the model that usage is told by. A policy keeps its account when its settings change."""

    tenant: str
    key: str
    """The key's name, never the key."""
    policy: str
    model: str


def day_of(now: float) -> str:
    """The day of UTC, as 2026-11-28. `now`: seconds since 1970."""
    return datetime.fromtimestamp(max(0.0, now), UTC).date().isoformat()


class DayUsage(NamedTuple):
    """The requests of one account on one day, and their tokens."""

    day: str
    """As `day_of` has it."""
    account: Account
    requests: int
    prompt_tokens: int
    completion_tokens: int
    estimated_tokens: int
    """Those among both that no engine has reported."""


class DecisionRecord(NamedTuple):
    """The fields that `Decision` has too mean the same as there."""

    time: float
    """Seconds since 1970-01-01 UTC."""
    request_id: str
    tenant: str
    key: str
    policy: str
    revision: str | None
    """The revision of the policy's settings. None: an earlier version of Weir stored the decision."""
    model: str
    endpoint: str
    user: str | None
    hook: str
    action: Action | Literal["limit"]
    """`limit`: no hook decided. A limit refused the request, and the reason is the limit's setting."""
    reason: str | None
    mode: Mode
    output_index: int | None
    channel: Channel | Literal["prompt"]
    tool_name: str | None
    """None also for a name that the model made up: it counts as the model's text."""
    offset: int
    num_withheld: int
    num_released: int
    held_seconds: float
    num_judged: int | None
    """Only an action `judged` has this number and the two that follow."""
    num_unjudged: int | None
    max_unjudged: int | None
    withheld: str | None
    """The withheld text; None unless the setting `keep_withheld_text` keeps it."""
    hook_index: int | None = None
    """This field and those that follow are told in an answer alone (`PLACES`)."""
    call_index: int | None = None
    num_closing: int | None = None

    @classmethod
    def of(cls, decision: Decision, asker: Asker, *, with_text: bool) -> "DecisionRecord":
        """The record of a decision that is made now. `with_text`: keep the withheld text."""
        is_judged = decision.action == "judged"
        return cls(
            time.time(),
            decision.request_id,
            *asker,
            decision.endpoint,
            decision.user and decision.user[:MAX_NAME],
            decision.hook,
            decision.action,
            decision.reason,
            decision.mode,
            decision.output_index,
            decision.channel,
            decision.tool_name[:MAX_NAME] if decision.tool_name and not decision.is_own_tool else None,
            decision.offset,
            decision.num_withheld,
            decision.num_released,
            round(decision.held_seconds, 6),
            decision.num_judged if is_judged else None,
            decision.num_unjudged if is_judged else None,
            decision.max_unjudged if is_judged else None,
            decision.withheld if with_text else None,
            decision.hook_index,
            decision.call_index,
            decision.num_closing,
        )

    @classmethod
    def of_limit(cls, limit: str, asker: Asker, request: GenerationRequest) -> "DecisionRecord":
        """The record of a request that is refused now. `limit`: its setting."""
        decision = Decision(
            request_id=request.request_id,
            user=request.user,
            model=request.model,
            endpoint=request.endpoint,
            hook="",
            action="refuse",
            reason=limit,
            output_index=None,
            channel="prompt",
        )
        return cls.of(decision, asker, with_text=False)._replace(action="limit")

    def json(self, *, with_text: bool = False, with_places: bool = False) -> dict[str, Any]:
        """The record as JSON has it; its time is in ISO 8601. `with_text`: with the field `withheld`, if the
        text is kept. `with_places`: with the fields `PLACES`."""
        fields = self._asdict()
        moment = datetime.fromtimestamp(self.time, UTC)
        fields["time"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if not with_text or self.withheld is None:
            del fields["withheld"]
        if not with_places:
            for name in PLACES:
                del fields[name]
        if self.action != "judged":
            for name in JUDGED:
                del fields[name]
        return fields


@dataclass(frozen=True, slots=True)
class Change:
    operator: str
    """The name of the admin key, or `signal`."""
    action: str
    """The action, such as `create_key`."""
    object: str
    """The object of the action: a key's name, or a request's id."""
    detail: dict[str, Any]
    """The new values. No secrets."""
    time: float = 0.0
    """Seconds since 1970."""

    def public(self) -> dict[str, Any]:
        return asdict(self)
