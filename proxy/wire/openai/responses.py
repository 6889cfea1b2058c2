"""`POST /v1/responses`: the request's fields. An engine gets the request as a chat."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from engine.protocol import GenerationRequest, RequestError
from engine.protocol.fields.support import FieldSupport
from proxy.wire.errors import APIError
from proxy.wire.openai.answer import JSONObject
from proxy.wire.openai.endpoint_fields import Options
from proxy.wire.openai.fields import GenerationFields
from proxy.wire.openai.other_tools import others_named
from proxy.wire.openai.response_input import InputItem, placed_messages, to_messages
from proxy.wire.openai.response_tools import Tool, Toolbox

_UNSUPPORTED = ("background", "conversation", "prompt", "previous_input_messages", "return_token_ids")
LOGPROBS = "message.output_text.logprobs"
"""The entry of `include` that asks for logprobs."""
MAX_STREAM_ID = 256
"""Characters of the name of a lane."""


def _text_is_a_message(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


Items = Annotated[
    list[InputItem], BeforeValidator(_text_is_a_message, json_schema_input_type=str | list[InputItem])
]


class TextOptions(Options):
    format: dict[str, Any] | None = Field(default=None, description="text, json_schema or json_object")
    verbosity: Any = None


class ReasoningOptions(Options):
    effort: Any = None


class ResponsesRequest(GenerationFields):
    """The fields of a response to a conversation."""

    endpoint = "responses"
    refused: ClassVar[Mapping[str, str]] = {
        **GenerationFields.refused,
        "n": "must be 1",
        "max_tokens": "is called max_output_tokens here",
        **dict.fromkeys(_UNSUPPORTED, "is not supported"),
    }
    by_service = frozenset({"include_reasoning"})
    without_effect = frozenset(
        {
            "max_tool_calls",  # it limits built-in tools, and there are none
            "truncation",  # a prompt that is too long is refused
            "stream_options.include_usage",  # the last event always has it
            "stream_options.continuous_usage_stats",
        }
    )

    input: Items
    instructions: str | None = Field(
        None, description="A system message in front of the input, for this response only"
    )
    previous_response_id: str | None = None
    store: bool = Field(True, description="Keep the response for previous_response_id")
    max_output_tokens: int | None = Field(None, ge=1)
    include: list[str] = Field(default_factory=list, description=f"{LOGPROBS}; anything else is ignored")
    top_logprobs: int = Field(0, ge=0, le=20)
    tools: list[Tool] = Field(
        default_factory=list, description="Tools that only OpenAI's servers run are ignored"
    )
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions = ReasoningOptions()
    truncation: Literal["auto", "disabled"] = Field(
        "disabled", description="Nothing is ever truncated: a prompt that is too long is refused"
    )
    max_tool_calls: int | None = Field(None, description="It limits built-in tools, and there are none")
    include_reasoning: bool = Field(True, description="False: the answer leaves reasoning out")

    _toolbox: Toolbox = PrivateAttr(default_factory=Toolbox)
    _conversation: Sequence[InputItem] = PrivateAttr(())
    """All items, up to the last item of the input."""
    _is_text: bool = PrivateAttr(False)
    """Whether the input is a text."""

    @model_validator(mode="wrap")
    @classmethod
    def _keeps_form(cls, data: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        made = read(data)
        made._is_text = isinstance(data, Mapping) and isinstance(data.get("input"), str)
        return made

    @property
    def toolbox(self) -> Toolbox:
        """The tools, with those that the conversation adds. It is empty before `to_request`."""
        return self._toolbox

    @property
    def shows_reasoning(self) -> bool:
        return self.include_reasoning

    def message_place(self, index: int) -> str:
        if self.instructions:
            if index == 0:
                return "instructions"
            index -= 1
        return self._item_place(placed_messages(self._conversation)[index][0])

    def tool_place(self, index: int) -> str:
        place = self._toolbox.places[index]
        if place < len(self.tools):
            return f"tools[{place}]"
        adding = [i for i, item in enumerate(self._conversation) for _ in item.added_tools]
        return self._item_place(adding[place - len(self.tools)])

    def _item_place(self, index: int) -> str:
        """`index`: among the items of the conversation."""
        index -= len(self._conversation) - len(self.input)
        if index < 0:
            return "previous_response_id"
        return "input" if self._is_text else f"input[{index}]"

    def ignored(self, support: FieldSupport) -> list[str]:
        include = ["include"] if set(self.include) - {LOGPROBS} else []
        tools = others_named(self.toolbox.left_out)
        items = [f"input.{item.type}" for item in self.input if item.is_opaque]
        return [*include, *dict.fromkeys([*tools, *items]), *super().ignored(support)]

    def to_request(
        self, request_id: str, model: str, conversation: Iterable[InputItem], *, caller: str = ""
    ) -> GenerationRequest:
        """`conversation`: all items, up to the last item of the input. Raises `RequestError` for fields that
        contradict each other."""
        self._check()
        items = self._conversation = list(conversation)
        added = (tool for item in items for tool in item.added_tools)
        toolbox = self._toolbox = Toolbox([*self.tools, *added])
        choice = toolbox.choose(self.tool_choice)
        messages = to_messages(items)
        if not messages:
            raise RequestError("input must not be empty", param="input")
        if self.instructions:
            messages.insert(0, {"role": "system", "content": self.instructions})
        return self.shared_request(
            request_id,
            model,
            caller=caller,
            logprobs=self.top_logprobs if LOGPROBS in self.include else None,
            messages=tuple(messages),
            tools=tuple(toolbox.chat),
            tool_choice=choice if "tool_choice" in self.model_fields_set else None,
            parallel_tool_calls=self.parallel_tool_calls,
            extra={**self._text(), **self._reasoning()},
        )

    def _check(self) -> None:
        self.check_refused()
        if self.top_logprobs and LOGPROBS not in self.include:
            raise RequestError(
                f"top_logprobs can only be given when include has {LOGPROBS}", param="top_logprobs"
            )

    def _text(self) -> JSONObject:
        """The chat form of `text`."""
        chat: JSONObject = {}
        if self.text.verbosity is not None:
            chat["verbosity"] = self.text.verbosity
        form = self.text.format or {"type": "text"}
        match form:
            case {"type": "text"}:
                pass
            case {"type": "json_object"}:
                chat["response_format"] = {"type": "json_object"}
            case {"type": "json_schema", "name": str(), "schema": dict()}:
                schema = {name: value for name, value in form.items() if name != "type"}
                chat["response_format"] = {"type": "json_schema", "json_schema": schema}
            case _:
                reason = "text.format must be of type text, json_object or json_schema (with name and schema)"
                raise RequestError(reason, param="text.format")
        return chat

    def _reasoning(self) -> JSONObject:
        effort = self.reasoning.effort
        return {} if effort is None else {"reasoning_effort": effort}


class ResponseCreate(ResponsesRequest):
    """A message of a client over a WebSocket. It always asks for a stream."""

    type: Literal["response.create"]
    stream_id: str | None = Field(None, min_length=1, max_length=MAX_STREAM_ID)
    generate: bool = Field(True, description="False: keep the conversation, and generate no answer")

    @model_validator(mode="before")
    @classmethod
    def _is_streamed(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("type", "response.create") != "response.create":
            reason = "type: this type of message is not supported, only response.create is."
            raise APIError(400, reason, param="type")  # of a `ValueError`, pydantic drops the name
        return {**data, "stream": True} if isinstance(data, Mapping) else data

    def to_request(
        self, request_id: str, model: str, conversation: Iterable[InputItem], *, caller: str = ""
    ) -> GenerationRequest:
        made = super().to_request(request_id, model, conversation, caller=caller)
        return replace(made, generates=self.generate)
