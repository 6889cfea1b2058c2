"""The detectors' protocol of the FMS guardrails orchestrator (OpenShift AI, TrustyAI).

The header `detector-id` is the name of one hook, or `weir` for all of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from engine.protocol import RequestError
from hooks.api.decision import Decision
from proxy.wire.errors import APIError
from proxy.wire.guard_api.check import Check, CheckedCall, JSONObject, Judged, Judgement, Question
from proxy.wire.guard_api.messages import Message, answered_texts, function_call
from proxy.wire.guard_api.places import findings_in

ALL = "weir"
"""The detector that is all hooks."""


class _Detector(Question):
    """The parts of every question. `detector_params` change nothing: the hooks have their settings."""

    model_config = ConfigDict(strict=True, extra="forbid")

    detector_params: JSONObject = Field({})
    model: None = None
    _detector: str = PrivateAttr("")

    def _read(self, headers: Mapping[str, str]) -> None:
        self._detector = headers.get("detector-id", "")
        if not self._detector:
            raise RequestError("The header detector-id is missing.", param="detector-id", status=422)

    def _check_judges(self, judged: Judgement) -> None:
        """Raise `APIError` if the detector is no hook that judged the texts."""
        if self._detector == ALL:
            return
        if self._detector not in judged.hooks:
            reason = f"There is no detector {self._detector!r} here."
            raise APIError(404, reason, "not_found_error", param="detector-id")
        if judged.prompt is not None and self._detector not in judged.prompt_readers:
            reason = f"The hook {self._detector!r} reads no prompts: give it the argument prompt."
            raise APIError(501, reason, "server_error", param="detector-id")

    def _concerns(self, finding: Decision, part: Judged) -> bool:
        """Whether the detector reports the finding. Every detector reports the end of a text: no hook was
        shown what is after it."""
        is_end = part.blocked is not None and finding is part.findings[-1]
        return is_end or self._detector in (ALL, finding.hook)

    def _found(self, parts: Sequence[Judged], judged: Judgement) -> list[JSONObject]:
        """The findings, without places."""
        self._check_judges(judged)
        found = [
            _detection(one.hook, one.reason)
            for part in parts
            for one in part.findings
            if self._concerns(one, part)
        ]
        return list({tuple(one.values()): one for one in found}.values())


class Contents(_Detector):
    """Judge texts as answers (FMS detectors)."""

    contents: list[str] = Field(min_length=1)

    def check(self, names: Mapping[str, str], headers: Mapping[str, str]) -> Check:
        self._read(headers)
        return Check(texts=self.contents)

    def answer(self, check: Check, judged: Judgement) -> list[list[JSONObject]]:
        self._check_judges(judged)
        return [
            [
                {"start": start, "end": end, "text": text[start:end], **_detection(one.hook, one.reason)}
                for start, end, one in findings_in(text, part, judged.hooks)
                if self._concerns(one, part)
            ]
            for text, part in zip(check.texts, judged.texts, strict=True)
        ]


class Generation(_Detector):
    """Judge the text that answers a prompt (FMS detectors)."""

    prompt: str
    generated_text: str

    def check(self, names: Mapping[str, str], headers: Mapping[str, str]) -> Check:
        self._read(headers)
        return Check(context=[{"role": "user", "content": self.prompt}], texts=[self.generated_text])

    def answer(self, check: Check, judged: Judgement) -> list[JSONObject]:
        return self._found(judged.texts, judged)


class ContextDoc(_Detector):
    """Judge a text about documents (FMS detectors). The text is judged as an answer."""

    content: str
    context_type: Literal["docs", "document", "chunks", "url"]
    """The orchestrator sends `docs`. Its OpenAPI document has `document` and `chunks`."""
    context: list[str] = Field(min_length=1)

    def check(self, names: Mapping[str, str], headers: Mapping[str, str]) -> Check:
        self._read(headers)
        if self.context_type == "url":
            reason = "context_type: this server reads no addresses. Send the documents' texts, as docs."
            raise RequestError(reason, param="context_type", status=422)
        documents = [{"type": "document", "text": text} for text in self.context]
        return Check(context=[{"role": "user", "content": documents}], texts=[self.content])

    def answer(self, check: Check, judged: Judgement) -> list[JSONObject]:
        return self._found(judged.texts, judged)


class Chat(_Detector):
    """Judge a conversation (FMS detectors). If its last message is the assistant's, that one is judged as an
    answer; else all are judged as a prompt."""

    messages: list[Message] = Field(min_length=1)
    tools: list[JSONObject] = Field([])

    def check(self, names: Mapping[str, str], headers: Mapping[str, str]) -> Check:
        self._read(headers)
        last = self.messages[-1]
        if last.get("role") != "assistant":
            return Check(messages=self.messages, tools=self.tools)
        calls = [_call(call) for call in last.get("tool_calls") or ()]
        return Check(context=self.messages[:-1], texts=answered_texts(last), calls=calls)

    def answer(self, check: Check, judged: Judgement) -> list[JSONObject]:
        return self._found(judged.all, judged)


def _call(call: JSONObject) -> CheckedCall:
    read = function_call(call)
    if read is None or read[1]:
        raise RequestError(
            "messages: a tool call has a function with a name and arguments, and nothing else.",
            param="messages",
        )
    return read[0]


def _detection(hook: str, reason: str | None) -> JSONObject:
    return {"detection": reason or hook, "detection_type": hook, "score": 1.0}


class FMSError(BaseModel):
    """An error of a detector."""

    code: int
    message: str


ERROR = "default", FMSError
PATHS: Mapping[str, type[BaseModel]] = {
    "/api/v1/text/contents": Contents,
    "/api/v1/text/generation": Generation,
    "/api/v1/text/chat": Chat,
    "/api/v1/text/context/doc": ContextDoc,
}


def key(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-api-key")


def error(failure: APIError) -> tuple[int, Any, Mapping[str, str]]:
    status = 422 if failure.status == 400 else failure.status
    return status, FMSError(code=status, message=failure.message).model_dump(), {}
