"""Amazon Bedrock's ApplyGuardrail: `POST /guardrail/{id}/version/{version}/apply`.

A text with a finding is masked: the assessment is one of sensitive information, which is `ANONYMIZED`. A
refused prompt or an ended answer is a denied topic, which is `BLOCKED`. No assessment has found text.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.protocol import RequestError
from proxy.wire.errors import APIError
from proxy.wire.guard_api.check import Check, JSONObject, Judgement, Question
from proxy.wire.guard_api.messages import only_texts_changed

_UNITS = ("topicPolicy", "contentPolicy", "wordPolicy", "sensitiveInformationPolicy")
_FREE = ("sensitiveInformationPolicyFree", "contextualGroundingPolicy")
_UNIT = 1000
"""Characters of one unit of usage."""
_CREDENTIAL = re.compile(r"AWS4-HMAC-SHA256 .*?Credential=([^/, ]+)/")
_ERRORS = {400: "ValidationException", 401: "AccessDeniedException", 403: "AccessDeniedException"}
_ERRORS |= {404: "ResourceNotFoundException", 429: "ThrottlingException", 503: "ServiceUnavailableException"}


class _Text(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    text: str
    qualifiers: list[Literal["grounding_source", "query", "guard_content"]] = []


class _Content(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    text: _Text | None = None
    image: JSONObject | None = None


class ApplyGuardrail(Question):
    """Judge the texts of a prompt or an answer (Amazon Bedrock). The guardrail and its version in the path
    name nothing here: the key has its policy."""

    model_config = ConfigDict(strict=True, extra="forbid")

    source: Literal["INPUT", "OUTPUT"]
    content: list[_Content] = Field(min_length=1)
    outputScope: Literal["INTERVENTIONS", "FULL"] = "INTERVENTIONS"
    model: None = None

    def check(self, names: Mapping[str, str], headers: Mapping[str, str]) -> Check:
        texts = []
        for i, one in enumerate(self.content):
            if one.text is None or one.image is not None:
                raise RequestError(f"content.{i}: only a text can be judged here.", param=f"content.{i}")
            texts.append(one.text)
        if self.source == "OUTPUT":
            return Check(texts=[one.text for one in texts])
        return Check(messages=[_message(one) for one in texts])

    def answer(self, check: Check, judged: Judgement) -> JSONObject:
        before = [one.text.text for one in self.content if one.text is not None]
        if judged.blocked is not None:
            return self._answered(before, [judged.blocked], [_denied(judged.blocked)], judged.blocked)
        after = [one.text for one in judged.texts]
        if judged.prompt is not None:
            after = only_texts_changed([*check.messages], [*judged.prompt.request.messages])
        if after == before:
            return self._answered(before)
        reasons = [one.reason or one.hook for part in judged.all for one in part.findings]
        return self._answered(before, after, [_masked(reasons)], "masked")

    def _answered(
        self,
        before: list[str],
        outputs: list[str] | None = None,
        assessments: list[JSONObject] | None = None,
        reason: str | None = None,
    ) -> JSONObject:
        size = sum(map(len, before))
        return {
            "action": "NONE" if outputs is None else "GUARDRAIL_INTERVENED",
            **({} if reason is None else {"actionReason": reason}),
            "outputs": [{"text": text} for text in outputs or ()],
            "assessments": assessments or [],
            "usage": {
                **{f"{name}Units": -(-size // _UNIT) for name in _UNITS},
                **{f"{name}Units": 0 for name in _FREE},
            },
            "guardrailCoverage": {"textCharacters": {"guarded": size, "total": size}},
        }


def _message(text: _Text) -> JSONObject:
    """A source for the answer is a document, which is not what the user says."""
    kind = "document" if "grounding_source" in text.qualifiers else "text"
    return {"role": "user", "content": [{"type": kind, "text": text.text}]}


def _denied(reason: str) -> JSONObject:
    topic = {"name": reason, "type": "DENY", "action": "BLOCKED", "detected": True}
    return {"topicPolicy": {"topics": [topic]}}


def _masked(reasons: list[str]) -> JSONObject:
    masked = {"match": "", "regex": "", "action": "ANONYMIZED", "detected": True}
    found = [{"name": reason, **masked} for reason in reasons]
    return {"sensitiveInformationPolicy": {"piiEntities": [], "regexes": found}}


class BedrockError(BaseModel):
    """The header `x-amzn-ErrorType` has its kind."""

    message: str


ERROR = "default", BedrockError
PATHS = {"/guardrail/{id}/version/{version}/apply": ApplyGuardrail}


def key(headers: Mapping[str, str]) -> str | None:
    """The access key's id, of which no signature is checked, or the header `x-api-key`."""
    signed = _CREDENTIAL.match(headers.get("Authorization", ""))
    return signed[1] if signed else headers.get("x-api-key")


def error(failure: APIError) -> tuple[int, Any, Mapping[str, str]]:
    kind = _ERRORS.get(failure.status)
    kind = kind or ("ValidationException" if failure.status < 500 else "InternalServerException")
    return failure.status, BedrockError(message=failure.message).model_dump(), {"x-amzn-ErrorType": kind}
