"""`POST /v1/messages`: the request's fields, and the chat that an engine gets."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, Tag, field_validator, model_validator

from engine.protocol import GenerationRequest, RequestError
from engine.protocol.fields.names import is_binding, is_neutral
from engine.protocol.fields.support import FieldSupport, Treatment
from proxy.wire.messages.blocks_kept import SWITCHES, is_mark, tools_with_changes, with_changes
from proxy.wire.messages.turns import Block, Content, Turn, system_text, to_messages, turn_indices
from proxy.wire.openai.answer import JSONObject
from proxy.wire.openai.endpoint_fields import Options, RequestObject
from proxy.wire.openai.fields import GenerationFields, StopString
from proxy.wire.openai.other_tools import (
    FUNCTION,
    Other,
    OtherTool,
    by_type,
    functions_of,
    not_offered,
    others_named,
    place_among,
)

FEWEST_THINKING_TOKENS = 1024


_OF_THIS_API: Mapping[str, str] = {
    "thinking.budget_tokens": "thinking.budget_tokens",
    "service_tier": "service_tier",
    "cache_control": "cache_control",
    "context_management": "context_management.edits",  # another field of this name is OpenAI's
}
"""Fields that a chat has no words for, by their names for engines. Only an upstream of this API gets them."""


class Tool(RequestObject):
    """A function that the model may call."""

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None

    @property
    def unread(self) -> list[str]:
        """The names of the fields that ask for something and have no effect here."""
        given = (self.model_extra or {}).items()
        read = ("cache_control",) if is_mark((self.model_extra or {}).get("cache_control")) else ()
        return [name for name, value in given if name not in read and not is_neutral(name, value)]

    def to_chat(self) -> JSONObject:
        given = {"description": self.description, "parameters": self.input_schema, "strict": self.strict}
        function = {name: value for name, value in given.items() if value is not None}
        return {"type": "function", "function": {"name": self.name, **function}}


AnyTool = Annotated[Annotated[Tool, Tag(FUNCTION)] | Other, by_type(None, "custom")]


class ToolChoice(RequestObject):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False

    @model_validator(mode="after")
    def _names_a_tool(self) -> "ToolChoice":
        if (self.type == "tool") != (self.name is not None):
            raise ValueError("name goes with type tool, and only with it")
        return self

    def to_chat(self) -> str | JSONObject:
        if self.type == "tool":
            return {"type": "function", "function": {"name": self.name}}
        return {"any": "required"}.get(self.type, self.type)


class Thinking(Options):
    """Upstreams of this API get it as it is, values that Weir does not know included."""

    known: ClassVar[Mapping[str, Container[str]]] = {
        "type": ("enabled", "disabled", "adaptive", "between_tools"),
        "display": ("summarized", "omitted"),
    }
    type: str
    budget_tokens: int | None = Field(None, ge=FEWEST_THINKING_TOKENS)
    display: str | None = None

    @property
    def unread(self) -> Iterator[str]:
        """The names of the fields whose value Weir does not know."""
        for name, known in self.known.items():
            if (value := getattr(self, name)) is not None and value not in known:
                yield name


class OutputConfig(Options):
    format: dict[str, Any] | None = None
    effort: str | None = None


class Metadata(Options):
    user_id: str | None = None


class CountFields(GenerationFields):
    """The fields that make a prompt. Unknown fields are ignored: this API's clients send new ones with every
    version."""

    endpoint = "messages"
    generates: ClassVar[bool] = False
    refused: ClassVar[Mapping[str, str]] = {
        **GenerationFields.refused,
        "n": "must be 1",
        **dict.fromkeys(
            ("return_token_ids", "return_tokens_as_token_ids", "mcp_servers", "thread", "compaction"),
            "is not supported",
        ),
    }
    without_effect = frozenset(
        {
            "stream_options.include_usage",  # events always have it
            "stream_options.continuous_usage_stats",
        }
    )

    messages: list[Turn] = Field(min_length=1, fail_fast=True)
    system: Content = Field(default_factory=list)
    tools: list[AnyTool] = Field(default_factory=list, fail_fast=True)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = Field(
        None, description="disabled asks for no thinking; budget_tokens reaches upstreams of this API alone"
    )
    output_config: OutputConfig = OutputConfig()
    metadata: Metadata = Metadata()  # type: ignore[assignment]
    stop: Annotated[list[StopString], Field(fail_fast=True)] = Field(
        default_factory=list,
        alias="stop_sequences",
        description="Texts that end an answer and are not part of it",
    )

    _body: Mapping[str, Any] = PrivateAttr(default_factory=dict)
    """The JSON that the request was read from."""

    @model_validator(mode="wrap")
    @classmethod
    def _keeps_body(cls, data: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        made = read(data)
        made._body = data
        return made

    @field_validator("system")
    @classmethod
    def _system_is_text(cls, system: list[Block]) -> list[Block]:
        if other := next((block.type for block in system if block.type != "text"), None):
            raise ValueError(f"a system prompt has no {other} block")
        return system

    def message_place(self, index: int) -> str:
        has_system = bool(system_text(self.system))
        if has_system and index == 0:
            return "system"
        return f"messages[{turn_indices(self.messages)[index - has_system]}]"

    def tool_place(self, index: int) -> str:
        return f"tools[{place_among(self.tools, index)}]"

    def unread(self, support: FieldSupport) -> Iterator[str]:
        """Also the fields of tools and blocks: `tools.defer_loading`."""
        takes_blocks = self.treatment("cache_control", support) is Treatment.HONOURED
        read = SWITCHES if takes_blocks else ()
        yield from others_named(self.tools)
        for tool in functions_of(self.tools):
            yield from (f"tools.{name}" for name in tool.unread if name not in read)
        if self.thinking is not None and not takes_blocks:
            yield from (f"thinking.{name}" for name in self.thinking.unread)
        for block in self.system:
            yield from (f"system.{name}" for name in block.unread)
        for turn in self.messages:
            for block in turn.content:
                yield from (f"messages.content.{name}" for name in block.unread)

    @classmethod
    def treatment(cls, name: str, support: FieldSupport) -> Treatment:
        if name not in _OF_THIS_API:
            return super().treatment(name, support)
        is_honoured = support.treatment(_OF_THIS_API[name], cls.endpoint) is Treatment.HONOURED
        return Treatment.HONOURED if is_honoured else Treatment.IGNORED

    @classmethod
    def passes(cls, name: str) -> bool:
        return is_binding(name)

    @property
    def is_prefilled(self) -> bool:
        """Whether the answer goes on from the last turn."""
        return self.messages[-1].role == "assistant"

    def to_request(
        self, request_id: str, model: str, *, caller: str = "", betas: Iterable[str] = ()
    ) -> GenerationRequest:
        """`betas`: values of the header `anthropic-beta`. Raises `RequestError` for fields that contradict
        each other."""
        self._check()
        messages = to_messages(self.messages)
        if system := system_text(self.system):
            messages.insert(0, {"role": "system", "content": system})
        choice, tools = self.tool_choice, functions_of(self.tools)
        request = self.shared_request(
            request_id,
            model,
            caller=caller,
            logprobs=None,
            messages=tuple(messages),
            tools=tuple(tool.to_chat() for tool in tools),
            tool_choice=choice.to_chat() if choice is not None and tools else None,
            generates=self.generates,
            parallel_tool_calls=choice is None or not choice.disable_parallel_tool_use,
            extra={**self._prefill(), **self._thinking(), **self._output_config(), **self._own_fields()},
        )
        if names := ",".join(betas):
            request = replace(request, extra={**request.extra, "anthropic_beta": names})
        return replace(request, user=self.user or self.metadata.user_id, metadata={})

    def for_engine(self, asked: GenerationRequest, admitted: GenerationRequest) -> GenerationRequest:
        """`admitted` with the caller's own blocks, for an upstream of this API. `asked`: the request that was
        made of these fields. `admitted`: the same, as hooks let it go on."""
        prompt = with_changes(self._body, asked.messages, admitted.messages)
        given = zip(self._body.get("tools") or (), self.tools, strict=True)
        functions = [own for own, tool in given if not isinstance(tool, OtherTool)]
        tools = tools_with_changes(functions, asked.tools, admitted.tools)
        if prompt is None or tools is None:
            return admitted
        own = {name: value for name, value in self._body.items() if name not in ("system", "tools")}
        own = {name: (prompt | {"tools": tools}).get(name, own.get(name)) for name in self._body}
        return replace(admitted, caller_body=own)

    def _check(self) -> None:
        names = [tool.name for tool in functions_of(self.tools)]
        choice = self.tool_choice
        if choice is not None and choice.type == "tool" and choice.name not in names:
            reason = f"tool_choice names a tool that is not in tools{not_offered(self.tools, choice.name)}"
            raise RequestError(reason, param="tool_choice.name")
        if choice is not None and choice.type == "any" and not names:
            reason = f"tool_choice any needs tools{not_offered(self.tools, None)}"
            raise RequestError(reason, param="tool_choice")

    def _prefill(self) -> JSONObject:
        if not self.is_prefilled:
            return {}
        if any(block.type == "tool_use" for block in self.messages[-1].content):
            raise RequestError("the last turn calls a tool: its result must follow", param="messages")
        return {"continue_final_message": True, "add_generation_prompt": False}

    def _thinking(self) -> JSONObject:
        if self.thinking is None or self.thinking.type != "disabled":
            return {}
        return {"chat_template_kwargs": {"enable_thinking": False}}

    def _own_fields(self) -> JSONObject:
        """The fields of `_OF_THIS_API`, and the rest of `thinking`."""
        given: JSONObject = {}
        if self.thinking is not None:
            given["thinking"] = self.thinking.model_dump(
                include=set(Thinking.model_fields), exclude_none=True
            )
        more = self.model_extra or {}
        given |= {name: more[name] for name in ("service_tier", "context_management") if name in more}
        return given | ({"cache_control": mark} if is_mark(mark := more.get("cache_control")) else {})

    def _output_config(self) -> JSONObject:
        chat: JSONObject = {}
        if self.output_config.effort is not None:
            chat["reasoning_effort"] = self.output_config.effort
        match self.output_config.format:
            case None:
                pass
            case {"type": "json_schema", "schema": dict() as schema}:
                named = {"name": "output", "schema": schema, "strict": True}
                chat["response_format"] = {"type": "json_schema", "json_schema": named}
            case _:
                reason = "output_config.format must be of type json_schema, with a schema"
                raise RequestError(reason, param="output_config.format")
        return chat


class MessagesRequest(CountFields):
    """The fields of a message to answer."""

    generates = True

    max_tokens: int = Field(ge=1)

    @property
    def shows_reasoning(self) -> bool:
        return self.thinking is None or self.thinking.display != "omitted"

    def _check(self) -> None:
        super()._check()
        budget = self.thinking.budget_tokens if self.thinking is not None else None
        if budget is not None and budget >= self.max_tokens:
            raise RequestError("budget_tokens must be less than max_tokens", param="thinking.budget_tokens")
