"""NeMo Guardrails' `POST /v1/checks`: a conversation's prompt, its last answer, or both."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.protocol import RequestError
from proxy.wire.errors import APIError
from proxy.wire.guard_api.check import Check, JSONObject, Judged, JudgedPrompt, Judgement, Question
from proxy.wire.guard_api.messages import Message, answered_texts, inexpressible, only_texts_changed, texts_of

Rail = Literal["input", "output"]


class _Guardrails(BaseModel):
    """The name of a configuration changes nothing: the key has its policy."""

    model_config = ConfigDict(strict=True)

    config_id: str | None = None
    rail_types: list[Rail] | None = Field(None, min_length=1)


class Checks(Question):
    """Judge a prompt, its answer, or both (NeMo Guardrails)."""

    model_config = ConfigDict(strict=True)

    messages: list[Message] = Field(min_length=1)
    guardrails: _Guardrails = _Guardrails()

    @property
    def _is_answered(self) -> bool:
        return self.messages[-1].get("role") == "assistant"

    @property
    def _rails(self) -> list[Rail]:
        own: Rail = "output" if self._is_answered else "input"
        return self.guardrails.rail_types or [own]

    def check(self, names: Mapping[str, str], headers: Mapping[str, str]) -> Check:
        said = self.messages[:-1] if self._is_answered else self.messages
        if "output" in self._rails and not self._is_answered:
            raise RequestError(
                "messages: the last one is the assistant's, for rails of output.", param="messages"
            )
        if "input" in self._rails and not said:
            raise RequestError(
                "messages: one before the answer is needed, for rails of input.", param="messages"
            )
        last = self.messages[-1]
        texts = answered_texts(last) if "output" in self._rails else []
        if "output" in self._rails and (last.get("tool_calls") or len(texts) != 1):
            raise RequestError("messages: the last one has one text and no tool calls.", param="messages")
        return Check(
            messages=said if "input" in self._rails else (), context=said, texts=texts, model=self.model
        )

    def answer(self, check: Check, judged: Judgement) -> JSONObject:
        if judged.blocked is not None:
            (blocked, *_) = [one for one in judged.all if one.blocked is not None]
            return {"status": "blocked", "content": judged.blocked, "rail": _hook(blocked)}
        content, is_changed = "", False
        if judged.prompt is not None:
            content, is_changed = _changed_prompt(check, judged.prompt)
        for text, one in zip(check.texts, judged.texts, strict=True):
            if is_changed:
                raise inexpressible("messages")  # the answer has the place
            content, is_changed = one.text, one.text != text
        changing = next((one for one in judged.all if one.findings), None)
        rail = _hook(changing) if is_changed and changing is not None else None
        return {"status": "modified" if is_changed else "passed", "content": content, "rail": rail}


def _changed_prompt(check: Check, judged: JudgedPrompt) -> tuple[str, bool]:
    """The last message's text, and whether it was changed. It is the only text that an answer can change."""
    (*before, last), (*after, shown) = check.messages, judged.request.messages
    old, new = texts_of(last), only_texts_changed([last], [shown])
    if before != after or (old != new and len(old) != 1):
        raise inexpressible("messages")
    return (new or [""])[-1], old != new


def _hook(judged: Judged) -> str | None:
    """The last hook that had its way."""
    return judged.findings[-1].hook if judged.findings else None


class NeMoError(BaseModel):
    """An error of a check."""

    detail: str


ERROR = "default", NeMoError
PATHS = {"/v1/checks": Checks}


def key(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-api-key")


def error(failure: APIError) -> tuple[int, Any, Mapping[str, str]]:
    return failure.status, NeMoError(detail=failure.message).model_dump(), {}
