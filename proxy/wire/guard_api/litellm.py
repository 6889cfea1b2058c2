"""LiteLLM's Generic Guardrail API: `POST /beta/litellm_basic_guardrail_api`.

One question has the texts of a request, or of a response, or of a response so far. The last kind is not
marked. The answer says how many characters at a text's end are not decided: LiteLLM keeps them back until the
next question. At the end of the stream, which nothing marks, it lets them out. So the answer has each text as
it may go out if it ends there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from hooks.prompts.media import media_of
from proxy.wire.errors import APIError
from proxy.wire.guard_api.check import Check, CheckedCall, JSONObject, Judgement, Question
from proxy.wire.guard_api.messages import (
    Message,
    beside_texts,
    changed_texts,
    function_call,
    inexpressible,
    texts_of,
)


class LiteLLMCheck(Question):
    """Judge a prompt, an answer, or an answer so far (LiteLLM). Fields that are not here hold no text of a
    prompt or an answer."""

    model_config = ConfigDict(strict=True)
    is_block_only: ClassVar = False

    input_type: Literal["request", "response"]
    texts: list[str]
    images: list[str] | None = None
    tools: list[JSONObject] | None = None
    tool_calls: list[JSONObject] | None = None
    structured_messages: list[Message] | None = None
    litellm_call_id: str | None = None
    request_data: dict[str, Any] = Field(default_factory=dict)

    def check(self, names: Mapping[str, str], headers: Mapping[str, str]) -> Check:
        user = self.request_data.get("user_api_key_end_user_id")
        shared: dict[str, Any] = {"model": self.model, "user": user if isinstance(user, str) else None}
        if self.input_type == "request":
            messages = self._messages()
            return Check(messages=messages, tools=tuple(self.tools or ()), **shared)
        calls = [_call(call) for call in self.tool_calls or ()]
        besides = [orjson.dumps(rest).decode() for _, rest in calls if rest]
        # Calls come when the response is whole.
        stream = self.litellm_call_id if not calls else None
        return Check(
            texts=(*self.texts, *besides),
            calls=[call for call, _ in calls],
            stream=stream,
            has_media=bool(self.images),
            **shared,
        )

    def _messages(self) -> tuple[JSONObject, ...]:
        """The messages with the roles, and then as messages of their own what these do not have."""
        said = self.structured_messages or []
        messages = [*said]
        if not self._has_roles:
            messages += [{"role": "user", "content": text} for text in self.texts]
        called = [call for message in said for call in message.get("tool_calls") or ()]
        if self.tool_calls and self.tool_calls != called:
            messages.append({"role": "assistant", "content": None, "tool_calls": self.tool_calls})
        if unseen := _unseen(self.images or (), said):
            messages.append(_with_images(unseen))
        return tuple(messages)

    @property
    def _has_roles(self) -> bool:
        """Whether the messages with the roles have just the texts."""
        said = self.structured_messages or []
        return self.texts == [text for message in said for text in texts_of(message)]

    def answer(self, check: Check, judged: Judgement) -> JSONObject:
        if judged.blocked is not None:
            return {"action": "BLOCKED", "blocked_reason": judged.blocked}
        if check.is_prompt:
            changed = self._changed_prompt(check, judged)
        else:
            texts, besides = _split([one.text for one in judged.texts], len(self.texts))
            if judged.changed_call(check) or besides != _split(check.texts, len(self.texts))[1]:
                return {"action": "BLOCKED", "blocked_reason": "tool_call"}
            changed = {"texts": texts}
            if self.is_block_only and changed["texts"] != self.texts:
                return {"action": "BLOCKED", "blocked_reason": "content"}
        action = "NONE" if changed == {"texts": self.texts} else "GUARDRAIL_INTERVENED"
        held = [one.num_undecided for one in judged.texts]
        return {"action": action, **changed, **({"stream_holdback_chars": held} if any(held) else {})}

    def _changed_prompt(self, check: Check, judged: Judgement) -> JSONObject:
        """The texts, and other parts of the prompt that hooks changed."""
        assert judged.prompt is not None
        before, after = [*check.messages], [*judged.prompt.request.messages]
        if len(before) != len(after):
            raise inexpressible("messages")
        end = len(self.structured_messages or ())
        rows = slice(0, end) if self._has_roles else slice(end, end + len(self.texts))
        changed: JSONObject = {"texts": changed_texts(before[rows], after[rows])}
        said, shown = before[:end], after[:end]
        are_said = not self._has_roles and said != shown
        if are_said or [*beside_texts(said)] != [*beside_texts(shown)]:
            changed["structured_messages"] = shown
        if [*beside_texts(before[end:])] != [*beside_texts(after[end:])]:
            raise inexpressible("tool_calls")
        if check.tools != judged.prompt.request.tools:
            changed["tools"] = judged.prompt.request.tools
        return changed


def _with_images(images: Sequence[str]) -> JSONObject:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return {"role": "user", "content": parts}


def _unseen(images: Sequence[str], said: Sequence[JSONObject]) -> list[str]:
    """The images that are no images of the messages, and so no hook is shown them. That an image's address or
    bytes are in a text shows nobody the image."""
    shown = {(one.sha256, one.url) for one in media_of(said) if one.kind == "image"} - {(None, None)}
    return [
        image
        for image in images
        if any((one.sha256, one.url) not in shown for one in media_of([_with_images([image])]))
    ]


def _split(texts: Sequence[str], end: int) -> tuple[list[str], list[str]]:
    return [*texts[:end]], [*texts[end:]]


def _call(call: JSONObject) -> tuple[CheckedCall, JSONObject]:
    """A call of a function, and its other fields: those is judged as a text. A call of another kind is
    judged as the JSON that it is."""
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    whole = CheckedCall(str(name or call.get("type") or ""), orjson.dumps(call).decode())
    return function_call(call) or (whole, {})


class BlockOnlyCheck(LiteLLMCheck):
    """Judge a stream that is sent as it came (LiteLLM). With `streaming_transform_mode: block_only`, LiteLLM
    leaves out the changes that it is answered. So an answer's text passes as it is, or blocks."""

    is_block_only = True


class _Reason(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class LiteLLMError(BaseModel):
    """An error object, as OpenAI has it."""

    error: _Reason


ERROR = "default", LiteLLMError
PATH = "/beta/litellm_basic_guardrail_api"
PATHS = {PATH: LiteLLMCheck, f"/block-only{PATH}": BlockOnlyCheck}


def key(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-api-key")


def error(failure: APIError) -> tuple[int, Any, Mapping[str, str]]:
    return failure.status, failure.body(), {}
