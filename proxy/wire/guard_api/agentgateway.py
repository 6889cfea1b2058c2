"""The guardrail webhook of agentgateway, kgateway and Gloo: `POST /request` and `POST /response`.

An action has no name: one with a `body` object masks, one with a `status_code` rejects, any other passes.
Errors reject as well, because the gateway may let a request pass whose answer it cannot read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from proxy.wire.errors import APIError
from proxy.wire.guard_api.check import Check, JSONObject, Judgement, Question
from proxy.wire.guard_api.messages import only_texts_changed

_REJECTED = 403


class _Message(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    role: str
    content: str


class _Choice(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    message: _Message


class _Messages(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    messages: list[_Message] = Field(min_length=1)


class _Choices(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    choices: list[_Choice] = Field(min_length=1)


class PromptWebhook(Question):
    """Judge a prompt (agentgateway)."""

    model_config = ConfigDict(strict=True, extra="forbid")

    body: _Messages
    model: None = None

    def check(self, names: Mapping[str, str], headers: Mapping[str, str]) -> Check:
        return Check(messages=[one.model_dump() for one in self.body.messages])

    def answer(self, check: Check, judged: Judgement) -> JSONObject:
        if judged.blocked is not None:
            return _rejected(judged.blocked)
        assert judged.prompt is not None
        texts = only_texts_changed([*check.messages], [*judged.prompt.request.messages])
        return _answered("messages", [*check.messages], texts)


class AnswerWebhook(Question):
    """Judge an answer (agentgateway)."""

    model_config = ConfigDict(strict=True, extra="forbid")

    body: _Choices
    model: None = None

    def check(self, names: Mapping[str, str], headers: Mapping[str, str]) -> Check:
        return Check(texts=[one.message.content for one in self.body.choices])

    def answer(self, check: Check, judged: Judgement) -> JSONObject:
        if judged.blocked is not None:
            return _rejected(judged.blocked)
        said = [one.message.model_dump() for one in self.body.choices]
        return _answered("choices", said, [one.text for one in judged.texts])


class _Rejection(BaseModel):
    body: str
    status_code: int
    reason: str


class Rejected(BaseModel):
    """The text or the request goes no further."""

    action: _Rejection


def _answered(name: str, said: Sequence[JSONObject], texts: Sequence[str]) -> JSONObject:
    if [one["content"] for one in said] == texts:
        return {"action": {"reason": "passed"}}
    changed = [{**one, "content": text} for one, text in zip(said, texts, strict=True)]
    body = changed if name == "messages" else [{"message": one} for one in changed]
    return {"action": {"body": {name: body}, "reason": "masked"}}


def _rejected(reason: str, body: str | None = None, status: int = _REJECTED) -> JSONObject:
    text = f"A guardrail refuses this: {reason}" if body is None else body
    return Rejected(action=_Rejection(body=text, status_code=status, reason=reason)).model_dump()


ERROR = "default", Rejected
PATHS: Mapping[str, type[BaseModel]] = {"/request": PromptWebhook, "/response": AnswerWebhook}


def key(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-api-key")


def error(failure: APIError) -> tuple[int, Any, Mapping[str, str]]:
    return failure.status, _rejected(failure.type, failure.message, failure.status), {}
