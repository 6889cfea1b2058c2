"""`POST /v1/chat/completions`: the request's fields, and the answer as chunks and as a whole."""

from collections import defaultdict
from collections.abc import Iterable
from operator import methodcaller
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, Tag, with_config
from typing_extensions import TypedDict  # pydantic takes the one of `typing` from Python 3.12 on

from engine.protocol import Channel, Delta, GenerationRequest, RequestError, ToolCall
from engine.protocol.fields.support import FieldSupport
from proxy.wire.openai.answer import PROMPT_FIELDS, ChoicesAnswer, JSONObject
from proxy.wire.openai.endpoint_fields import REQUEST_OBJECT, RequestObject
from proxy.wire.openai.fields import GenerationFields, PromptLogprobs, TokenId
from proxy.wire.openai.other_tools import (
    FUNCTION,
    Other,
    by_type,
    functions_of,
    not_offered,
    others_named,
    place_among,
)

_as_given = methodcaller("model_dump", exclude_unset=True)
"""The JSON that an object was read from."""


def text_is_a_part(value: Any) -> Any:
    """A list of parts in place of a text. For a field that takes either."""
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


def text_or_parts(parts: list[JSONObject]) -> str | list[JSONObject]:
    """A message's content: one text as a plain string, which every engine accepts; otherwise the parts."""
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


_AT_START = ConfigDict(defer_build=False)
"""Has pydantic build the validators of chats at the start. Nearly every server gets chats, and the first one
should not wait."""


# Messages and their parts are read as dicts. A long chat has many of them. An object of each would be made,
# and turned back into a dict, for its checks alone.


@with_config(REQUEST_OBJECT)
class ContentPart(TypedDict):
    type: str
    text: NotRequired[str | None]


@with_config(REQUEST_OBJECT)
class Message(TypedDict):
    role: Annotated[str, Field(min_length=1)]
    content: NotRequired[str | Annotated[list[ContentPart], Field(fail_fast=True)] | None]
    name: NotRequired[str | None]
    tool_calls: NotRequired[list[dict[str, Any]] | None]
    tool_call_id: NotRequired[str | None]


class Function(RequestObject):
    name: Annotated[str, Field(min_length=1)]


class Tool(RequestObject):
    """A function that the model may call."""

    model_config = _AT_START

    type: Literal["function"]
    function: Function


AnyTool = Annotated[Annotated[Tool, Tag(FUNCTION)] | Other, by_type("function")]


class NamedTool(Tool):
    """The function that the model must call."""


class ChatRequest(GenerationFields):
    """The fields of a chat."""

    model_config = _AT_START
    endpoint = "chat"
    by_service = frozenset({"echo", "include_reasoning"})

    messages: list[Message] = Field(min_length=1, fail_fast=True)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    logprob_token_ids: list[TokenId] = Field(
        default_factory=list,
        max_length=128,
        fail_fast=True,
        description="The alternatives of each token, beside logprobs",
    )
    prompt_logprobs: PromptLogprobs = None
    echo: bool = Field(False, description="Begin the answer with the message that it continues")
    tools: list[AnyTool] = Field(default_factory=list, fail_fast=True)
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool = True
    response_format: dict[str, Any] | None = None
    include_reasoning: bool = Field(True, description="False: the answer leaves reasoning out")

    @property
    def shows_reasoning(self) -> bool:
        return self.include_reasoning

    def message_place(self, index: int) -> str:
        return f"messages[{index}]"

    def tool_place(self, index: int) -> str:
        return f"tools[{place_among(self.tools, index)}]"

    def unread(self, support: FieldSupport) -> Iterable[str]:
        return others_named(self.tools)

    def to_request(self, request_id: str, model: str, *, caller: str = "") -> GenerationRequest:
        """Raises `RequestError` for fields that contradict each other."""
        if self.top_logprobs and not self.logprobs:
            raise RequestError("top_logprobs can only be given when logprobs is true", param="top_logprobs")
        if self.max_tokens == 0:
            raise RequestError("max_tokens must be at least 1", param="max_tokens")
        if self.echo and self.prompt_logprobs is not None:
            raise RequestError("echo cannot be combined with prompt_logprobs in a chat", param="echo")
        if self.tools or self.tool_choice is not None:
            self._check_tools()
        response_format = {"response_format": self.response_format} if self.response_format else {}
        choice = self.tool_choice
        return self.shared_request(
            request_id,
            model,
            caller=caller,
            logprobs=self.top_logprobs if self.logprobs else None,
            logprob_token_ids=self.logprob_token_ids,
            prompt_logprobs=self.prompt_logprobs,
            echo=self.echo,
            messages=tuple(self.messages),
            extra=response_format,
            tools=tuple(map(_as_given, functions_of(self.tools))),
            tool_choice=_as_given(choice) if isinstance(choice, NamedTool) else choice,
            parallel_tool_calls=self.parallel_tool_calls,
        )

    def _check_tools(self) -> None:
        names = [tool.function.name for tool in functions_of(self.tools)]
        choice = self.tool_choice
        if isinstance(choice, NamedTool) and (name := choice.function.name) not in names:
            reason = f"tool_choice names a tool that is not in tools{not_offered(self.tools, name)}"
            raise RequestError(reason, param="tool_choice")
        if choice == "required" and not names:
            reason = f"tool_choice 'required' needs tools{not_offered(self.tools, None)}"
            raise RequestError(reason, param="tool_choice")


class ChatAnswer(ChoicesAnswer):
    """The answer to a chat, made from released deltas."""

    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, fields: ChatRequest, request: GenerationRequest) -> None:
        super().__init__(fields, request, gives_ids=fields.return_token_ids)
        self._begun: set[int] = set()
        self._calls: defaultdict[int, list[int]] = defaultdict(list)
        """The engine's indices of each output's tool calls, in the order released. A client's indices have no
        gaps."""
        # OpenAI's SDKs need an empty chunk for each output first, in order, in their stream helpers: the one
        # for Python takes the first chunk that has a new index for the next choice, and both count the
        # logprobs of that chunk twice.
        if request.num_outputs > 1 or request.sampling.logprobs is not None:
            self._empty_first = range(request.num_outputs)

    def begin_choice(self, delta: Delta) -> JSONObject:
        logprobs: JSONObject | None = None
        if self.request.sampling.logprobs is not None and (tokens := self.token_logprobs(delta)):
            logprobs = {"content": tokens, "refusal": None}
        message: JSONObject = {}
        if delta.index not in self._begun:
            self._begun.add(delta.index)
            message["role"] = "assistant"
            message["content"] = "" if delta.channel in ("content", "echo") else None
        if delta.tool_call is not None:
            message["tool_calls"] = [self._tool_call(delta, delta.tool_call)]
        elif delta.channel == "reasoning":
            message["reasoning_content"] = delta.text
        elif delta.text:
            message["content"] = delta.text
        return {"index": delta.index, "delta": message, "logprobs": logprobs}

    def _tool_call(self, delta: Delta, call: ToolCall) -> JSONObject:
        calls = self._calls[delta.index]
        if call.index in calls:
            return {"index": calls.index(call.index), "function": {"arguments": delta.text}}
        calls.append(call.index)
        return {
            "index": len(calls) - 1,
            # An upstream's own id is text that no hook has seen, so it is never used.
            "id": f"call-{self.call_key(delta.index, call.index)}",
            "type": "function",
            "function": {"name": call.name, "arguments": delta.text},
        }

    def empty_content(self) -> JSONObject:
        return {"message": {"content": [], "reasoning_content": [], "tool_calls": []}}

    def pieces_of(self, whole: JSONObject, channel: Channel) -> list[str]:
        pieces: list[str] = whole["message"]["reasoning_content" if channel == "reasoning" else "content"]
        return pieces

    def fold_choice(self, whole: JSONObject, part: JSONObject) -> None:
        message, delta = whole["message"], part["delta"]
        for field in ("content", "reasoning_content"):
            if delta.get(field):
                message[field].append(delta[field])
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(message["tool_calls"]):
                message["tool_calls"].append({**call, "arguments": []})
            message["tool_calls"][call["index"]]["arguments"].append(call["function"]["arguments"])
        if part["logprobs"] is not None:
            whole["logprobs"] = whole["logprobs"] or {"content": [], "refusal": None}
            whole["logprobs"]["content"] += part["logprobs"]["content"]

    def finish_choice(self, whole: JSONObject) -> JSONObject:
        message = whole["message"]
        calls = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["function"]["name"], "arguments": "".join(call["arguments"])},
            }
            for call in message["tool_calls"]
        ]
        content: str | None = "".join(message["content"])
        content = content if content or not calls else None
        finished: JSONObject = {"role": "assistant", "content": content, "refusal": None}
        if message["reasoning_content"]:
            finished["reasoning_content"] = "".join(message["reasoning_content"])
        if calls:
            finished["tool_calls"] = calls
        return {**whole, "message": finished}

    def beside_choices(self, choices: list[JSONObject]) -> JSONObject:
        """A chat has one prompt: its ids and logprobs are there once, as vLLM gives them."""
        of_prompt: JSONObject = {}
        for choice in choices:
            for name in PROMPT_FIELDS & choice.keys():
                of_prompt.setdefault(name, choice.pop(name))
        return of_prompt
