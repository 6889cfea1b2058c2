"""The attributes of a request's span, by OpenTelemetry's names for HTTP and for generative AI.

The names are those of https://opentelemetry.io/docs/specs/semconv/gen-ai/ (in development). Names that
begin with `weir.` are Weir's own. Nothing here is text of a prompt or an answer.
"""

from collections.abc import Mapping
from typing import Any

from engine.protocol import GenerationRequest
from engine.protocol.tracing import Value
from proxy.storage.records import JUDGED, DecisionRecord

PROVIDER = "weir"
"""The value of `gen_ai.provider.name`."""
_OPERATIONS = {
    **dict.fromkeys(("chat", "responses", "messages"), "chat"),
    "completions": "text_completion",
    "moderations": "moderation",
}

_LOGGED = {
    "method": "http.request.method",
    "path": "http.route",
    "status": "http.response.status_code",
    "request_id": "weir.request.id",
    "answer_id": "gen_ai.response.id",
    "outcome": "weir.outcome",
    "ttft_seconds": "gen_ai.response.time_to_first_chunk",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "model": "gen_ai.request.model",
    "policy": "weir.policy",
    "revision": "weir.policy.revision",
    "key": "weir.key",
    "tenant": "weir.tenant",
}
"""The fields of a line of the access log that the server's span has too."""

_DECIDED = ("hook", "action", "reason", "mode", "policy", "revision", "channel", "output_index", "offset")


def operation(endpoint: str) -> str:
    return _OPERATIONS.get(endpoint, endpoint)


def request_attributes(request: GenerationRequest) -> dict[str, Value]:
    """The attributes that are known before the answer begins."""
    sampling = request.sampling
    asked = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature, "top_p": sampling.top_p}
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": operation(request.endpoint),
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.choice.count": sampling.n,
        "gen_ai.request.stream": request.stream,
    }
    return attributes | {
        f"gen_ai.request.{name}": value
        for name, value in asked.items()
        if name in request.given and value is not None
    }


def answer_attributes(logged: Mapping[str, Any]) -> dict[str, Value]:
    """The attributes that the line of the access log has too. `logged`: the line's fields."""
    attributes = {ours: logged.get(name) for name, ours in _LOGGED.items()}
    if reasons := logged.get("finish_reason"):
        attributes["gen_ai.response.finish_reasons"] = reasons.split(",")
    return {name: value for name, value in attributes.items() if value is not None}


def decision_attributes(record: DecisionRecord) -> dict[str, Value]:
    """A decision, without the withheld text."""
    fields = {name: getattr(record, name) for name in _DECIDED}
    fields |= {"num_withheld": record.num_withheld, "held_seconds": record.held_seconds}
    fields |= {name: getattr(record, name) for name in JUDGED}
    return {f"weir.decision.{name}": value for name, value in fields.items() if value is not None}


def guardrail_attributes(target: str) -> dict[str, Value]:
    """The attributes of the span of a request's guards. `target`: `llm_input` or `llm_output`. The names here
    and in `finding_attributes` are proposed, not yet accepted
    (https://github.com/open-telemetry/semantic-conventions-genai/pull/427)."""
    return {"gen_ai.operation.name": "run_guardrail", "gen_ai.security.target.type": target}


_VERDICTS = {
    **dict.fromkeys(("redact", "rewrite", "rewrite_prompt", "restore"), "modify"),
    **dict.fromkeys(("suspect", "taint", "ask"), "warn"),
    "approve": "allow",
}
"""By a decision's action. Others withhold text or end the request."""


def finding_attributes(record: DecisionRecord) -> dict[str, Value] | None:
    """A decision as a finding of a guardrail. None: it found nothing."""
    if record.action == "judged" or (record.action == "hold" and not record.num_withheld):
        return None
    place = {"prompt": "llm_input", "tool_call": "tool_call"}.get(record.channel, "llm_output")
    found = {
        "gen_ai.security.guardrail.name": record.hook or record.action,
        "gen_ai.security.target.type": place,
        "gen_ai.security.verdict.type": _VERDICTS.get(record.action, "deny"),
        "gen_ai.security.verdict.reason": record.reason,
        "gen_ai.security.risk.finding": record.reason or record.action,
        "gen_ai.security.policy.id": record.policy,
        "gen_ai.security.policy.name": record.policy,
        "gen_ai.security.policy.version": record.revision,
    }
    return {name: value for name, value in found.items() if value is not None}
