"""Answers have the fields and types that the protocols' published schemas ask for, written here as facts."""

from typing import Any

import jsonschema
import pytest

from engine.upstream.none import NoEngine
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from tests.proxy.conftest import Client, Serve

TEXT, NUMBER, PLACE = {"type": "string"}, {"type": "number"}, {"type": "integer", "minimum": 0}


def record(optional: dict[str, Any] | None = None, /, **required: Any) -> dict[str, Any]:
    fields = {"type": "object", "properties": required | (optional or {}), "required": [*required]}
    return fields | {"additionalProperties": False}


def listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


# FMS detectors: docs/api/openapi_detector_api.yaml of fms-guardrails-orchestrator, May 2026.
DETECTION = {"detection": TEXT, "detection_type": TEXT, "score": NUMBER}
OPTIONAL = {"evidence": {"type": "array"}, "metadata": {"type": "object"}}
DETECTIONS = listed(record(OPTIONAL, **DETECTION))
CONTENTS = listed(listed(record(OPTIONAL, start=PLACE, end=PLACE, text=TEXT, **DETECTION)))
FMS_ERROR = record(code=NUMBER, message=TEXT)

# agentgateway: src/llm/policy/webhook.rs, August 2026. The first action that fits counts.
MESSAGE = record(role=TEXT, content=TEXT)
REASON = {"reason": TEXT}
PROMPTS = record(messages=listed(MESSAGE))
CHOICES = record(choices=listed(record(message=MESSAGE)))
REJECT = record(REASON, body=TEXT, status_code={"type": "integer", "minimum": 100, "maximum": 599})


def action(body: dict[str, Any]) -> dict[str, Any]:
    return record(action={"oneOf": [record(REASON, body=body), REJECT, record(REASON)]})


# NeMo Guardrails 0.24.1: GuardrailCheckResponse.
CHECK = record(
    status={"enum": ["passed", "modified", "blocked"]}, content=TEXT, rail={"type": ["string", "null"]}
)

ABOUT = {"context_type": "docs", "context": ["Ada keeps birds.", "They are blue."]}
SAID = ["Hello.", "Mail ada@initech.com now.", "Sing of the blue bird."]


def message(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": text}


@pytest.mark.parametrize("text", SAID)
async def test_answers_fit_the_published_schemas(serve: Serve, text: str) -> None:
    phrases = Phrases(["blue bird"], action="terminate", prompt="refuse")
    apis = [{"name": name} for name in ("fms", "agentgateway", "nemo")]
    client: Client = await serve(NoEngine(), Pii(prompt="redact"), phrases, guard_api=apis)
    answer = message(text, "assistant")
    for path, body, schema in (
        ("/api/v1/text/contents", {"contents": [text, text], "detector_params": {}}, CONTENTS),
        ("/api/v1/text/generation", {"prompt": "Hi", "generated_text": text}, DETECTIONS),
        ("/api/v1/text/chat", {"messages": [message(text)]}, DETECTIONS),
        ("/api/v1/text/chat", {"messages": [message("Hi"), answer]}, DETECTIONS),
        ("/api/v1/text/context/doc", {**ABOUT, "content": text, "detector_params": {}}, DETECTIONS),
        ("/request", {"body": {"messages": [message(text)]}}, action(PROMPTS)),
        ("/response", {"body": {"choices": [{"message": answer}]}}, action(CHOICES)),
        ("/v1/checks", {"model": "m", "messages": [message(text)]}, CHECK),
    ):
        status, got, _ = await client.post(path, body, headers={"detector-id": "weir"})
        assert status == 200, got
        jsonschema.validate(got, schema)
    status, got, _ = await client.post("/api/v1/text/contents", {"contents": [text]})
    assert status == 422
    jsonschema.validate(got, FMS_ERROR)
