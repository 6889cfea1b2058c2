"""A model's chat template: the messages of a chat as one text.

A template can leave out what it does not know, without an error. So the template is tried when it is loaded,
and a request is refused where a part of it would be lost.
"""

import json
from collections.abc import Mapping
from typing import Any

import jinja2

from engine.protocol import ROLES, GenerationRequest, RequestError
from engine.protocol.call_arguments import is_object, object_of
from engine.protocol.fields.names import caller_name
from engine.protocol.system_messages import SystemMessages, folded, folded_request
from engine.sources.model_tokenizer import ModelTokenizer
from engine.text.call_ids import with_named_ids
from engine.text.template_rendering import RESERVED, render

TEMPLATE_ERRORS = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""Errors that a template raises itself, or that come from a message of an unexpected form."""

TEMPLATE_FIELDS = ("chat_template_kwargs", "continue_final_message", "add_generation_prompt")
"""The fields of `GenerationRequest.extra` that a chat's prompt follows."""

TEMPLATE_HINTS = ("reasoning_effort", "verbosity")
"""Fields that some templates read. Agents send them to every model."""

Message = Mapping[str, Any]

_PROBE = "a probe"
_ARGUMENTS = {"probe": "x"}
_CALL = {"id": "call00000", "type": "function", "function": {"name": "probe", "arguments": _ARGUMENTS}}
_USER = {"role": "user", "content": "Hi"}
_CALLING = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_RESULT = {"name": "probe", "tool_call_id": "call00000"}


class ChatTemplate:
    def __init__(self, tokenizer: ModelTokenizer, system_messages: SystemMessages = "auto") -> None:
        self._tokenizer = tokenizer
        self._takes_parts, self._needs_parts = self._probe_parts()
        """Whether it takes a content as a list of parts, and whether it leaves out one that is a text."""
        self._joins_arguments = self._probe_arguments()
        """Whether it writes a call's arguments as they are, so that they must be JSON text, not an object."""
        self._names_calls_by_id = self._probe_ids()
        """Whether it writes a call's id in the place of its name."""
        self._takes_tools = self._probe_tools()
        self._left_out = {role for role in ("system", "tool", "function") if self._writes(role) is False}
        """Roles whose messages the template leaves out."""
        self._has_developer = bool(self._writes("developer"))
        self._folds = system_messages == "fold" or (system_messages == "auto" and self._needs_fold())
        """Whether all system messages become one, in front."""
        self.hints = frozenset(name for name in TEMPLATE_HINTS if self._reads(name))
        """The `TEMPLATE_HINTS` that change the prompt."""

    @property
    def text(self) -> str:
        """The template itself. Several templates of one model are joined. Empty if there is none."""
        given = self._tokenizer.chat_template or ""
        return "\n".join(given.values()) if isinstance(given, Mapping) else given

    def prompt_of(self, request: GenerationRequest) -> str:
        """The prompt of a request with messages, with its tools. It ends where the next assistant message
        begins, or with `continue_final_message` at the end of the last message's text. Raises
        `RequestError`."""
        given = request.extra.get("chat_template_kwargs")
        if not isinstance(given, Mapping | None):
            raise RequestError("chat_template_kwargs must be an object.", param="chat_template_kwargs")
        given, ending = given or {}, _ending(request)
        if not self._tokenizer.chat_template:
            raise RequestError(
                "This model has no chat template; use the completions endpoint.", param="messages"
            )
        for name in sorted(RESERVED.intersection(given)):
            raise RequestError(
                f"chat_template_kwargs.{name} cannot be set by a request.",
                param=f"chat_template_kwargs.{name}",
            )
        tools = request.tools if request.uses_tools else ()
        if tools and not self._takes_tools:
            raise RequestError("This model's chat template takes no tools.", param="tools")
        template_kwargs = self._hints_of(request) | dict(given)
        messages = [self._plain(message, i) for i, message in enumerate(request.messages)]
        if self._names_calls_by_id:
            messages = with_named_ids(messages)
        if self._folds and folded_request(request) is not None:
            messages = [dict(message) for message in folded(messages)]
            messages[0]["role"] = "system"
        try:
            return self._render(messages, tools=list(tools) or None, **ending, **template_kwargs)
        except TEMPLATE_ERRORS as error:
            reason = f": {error}" if isinstance(error, jinja2.TemplateError) else "."
            raise RequestError(
                f"The model's chat template refuses these messages{reason}", param="messages"
            ) from error

    def _chosen(self, with_tools: bool) -> str:
        """The template for a request. Raises `ValueError` if there is none."""
        given = self._tokenizer.chat_template
        if isinstance(given, Mapping):
            given = given.get("tool_use" if with_tools and "tool_use" in given else "default")
        if given is None:
            raise ValueError("the model has no chat template for this request")
        return given

    def _hints_of(self, request: GenerationRequest) -> dict[str, str]:
        """The request's hints that the template reads. Raises `RequestError`."""
        hints = {name: request.extra[name] for name in self.hints if request.extra.get(name) is not None}
        for name, value in hints.items():
            if not isinstance(value, str):
                own = caller_name(request.endpoint, name)
                raise RequestError(f"{own} must be a text.", param=own)
        return hints

    def _render(self, messages: list[dict[str, Any]], **kwargs: Any) -> str:
        options = {"add_generation_prompt": True, **self._tokenizer.special_tokens, **kwargs}
        return render(self._chosen(kwargs.get("tools") is not None), messages, **options)

    def _plain(self, message: Message, at: int) -> dict[str, Any]:
        # A list of text parts becomes one text, unless the template takes parts. A turn of the model's, or a
        # tool's, may have no content.
        message = {**message, "role": self._role(message, at)}
        content = message.get("content")
        if content is None and message["role"] in ("assistant", "tool", "function"):
            message["content"] = ""
        if message.get("tool_calls"):
            calls = [self._call(call) for call in message["tool_calls"]]
            message |= {"content": content or "", "tool_calls": calls}
        else:  # some templates take an empty list for calls, and leave the content out
            message.pop("tool_calls", None)
        if isinstance(content, str) and self._needs_parts:
            return message | {"content": [{"type": "text", "text": content}]}
        if not isinstance(content, list | tuple):
            return message
        texts = [
            part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"
        ]
        if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
            kinds = ", ".join(sorted({_kind(part) for part in content} - {"text"})) or "This"
            raise RequestError(
                f"{kinds} content is not supported by this engine. It takes text only.", param="messages"
            )
        parts = [dict(part) for part in content]
        return {**message, "content": parts if self._takes_parts else "\n".join(map(str, texts))}

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """A call with its arguments in the template's form. In the API they are JSON text."""
        function = call.get("function")
        if not isinstance(function, Mapping):
            return dict(call)
        given = function.get("arguments")
        arguments: Any = object_of(given)
        if self._joins_arguments:
            is_text = isinstance(given, str) and given.strip() and is_object(given)
            arguments = given if is_text else json.dumps(arguments, ensure_ascii=False)
        return {**call, "function": {**function, "arguments": arguments}}

    def _role(self, message: Message, at: int) -> str:
        """The message's role, as the template knows it. Raises `RequestError`."""
        role, field = message.get("role"), f"messages[{at}].role"
        if role not in ROLES:  # whether a template knows another one cannot be found out
            raise RequestError(f"{field} must be one of {', '.join(ROLES)}.", param=field)
        # The API's newer name for a system message, which few templates know.
        own = "system" if role == "developer" and not self._has_developer else str(role)
        if own in self._left_out:
            raise RequestError(
                f"{field}: this model's chat template leaves out messages of the role {role}.", param=field
            )
        return own

    def _writes(self, role: str) -> bool | None:
        """Whether the template writes messages of this role. None: it refuses them itself."""
        message = {"role": role, "content": _PROBE}
        chat: list[dict[str, Any]] = [message, _USER]
        if role in ("tool", "function"):
            chat = [_USER, _CALLING | {"tool_calls": [self._call(_CALL)]}, message | _RESULT]
        try:
            return _PROBE in self._render(chat)
        except TEMPLATE_ERRORS:
            return None

    def _needs_fold(self) -> bool:
        """Whether the template writes two system messages only if they are one, in front."""
        first, later = {"role": "system", "content": "a start"}, {"role": "system", "content": _PROBE}
        chat: list[dict[str, Any]] = [first, _USER, later]
        return not self._shows_probe(chat) and self._shows_probe([dict(one) for one in folded(chat)])

    def _shows_probe(self, chat: list[dict[str, Any]]) -> bool:
        try:
            return _PROBE in self._render(chat)
        except TEMPLATE_ERRORS:
            return False

    def _probe_parts(self) -> tuple[bool, bool]:
        # A template that does not know parts writes their Python form, without an error. One that knows only
        # parts leaves out a text, without an error.
        of_text, of_parts = self._probe(_PROBE), self._probe([{"type": "text", "text": _PROBE}])
        needs_parts = _PROBE not in of_text and _PROBE in of_parts
        return needs_parts or (of_text == of_parts != ""), needs_parts

    def _probe(self, content: Any) -> str:
        """A message with this content, laid out. Empty if the template refuses it."""
        try:
            return self._render([{"role": "user", "content": content}])
        except TEMPLATE_ERRORS:
            return ""

    def _reads(self, hint: str) -> bool:
        try:
            low, high = (self._render([_USER], **{hint: value}) for value in ("low", "high"))
        except TEMPLATE_ERRORS:
            return False
        return low != high

    def _probe_arguments(self) -> bool:
        # A template that joins arguments as text refuses an object, or writes its Python form.
        text = json.dumps(_ARGUMENTS)
        of_object = self._render_call(_ARGUMENTS)
        return (not of_object or str(_ARGUMENTS) in of_object) and text in self._render_call(text)

    def _probe_ids(self) -> bool:
        text = self._render_call(json.dumps(_ARGUMENTS) if self._joins_arguments else _ARGUMENTS, "a_tool")
        return str(_CALL["id"]) in text and "a_tool" not in text

    def _render_call(self, arguments: Any, name: str = "probe") -> str:
        """A call with these arguments and its result, laid out. Empty if the template refuses it."""
        call = {**_CALL, "function": {"name": name, "arguments": arguments}}
        result: dict[str, Any] = {"role": "tool", "content": "done"} | _RESULT
        chat: list[dict[str, Any]] = [_USER, _CALLING | {"tool_calls": [call]}, result]
        try:
            return self._render(chat)
        except TEMPLATE_ERRORS:
            return ""

    def _probe_tools(self) -> bool:
        # A template that does not know tools ignores them.
        parameters = {"type": "object", "properties": {}}
        function = {"name": "probe", "description": "probe", "parameters": parameters}
        tools = [{"type": "function", "function": function}]
        try:
            return self._render([_USER]) != self._render([_USER], tools=tools)
        except TEMPLATE_ERRORS:
            return False


def _kind(part: Any) -> str:
    """The name of a part's type, if it is one that the API knows."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    known = ("text", "image_url", "input_audio", "file", "video_url", "audio_url", "refusal")
    return kind if kind in known else "other"


def _ending(request: GenerationRequest) -> dict[str, bool]:
    """The fields that say how the prompt ends. Raises `RequestError` if they contradict each other."""
    extra = request.extra
    goes_on, adds = extra.get("continue_final_message"), extra.get("add_generation_prompt")
    for name, value in (("continue_final_message", goes_on), ("add_generation_prompt", adds)):
        if value is not None and not isinstance(value, bool):
            raise RequestError(f"{name} must be true or false.", param=name)
    if goes_on and adds:
        raise RequestError(
            "continue_final_message and add_generation_prompt cannot both be true.",
            param="continue_final_message",
        )
    return {
        "add_generation_prompt": not goes_on if adds is None else adds,
        "continue_final_message": bool(goes_on),
    }
