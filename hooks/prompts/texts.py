"""The texts of a prompt: each text of a request that a model may be shown, and its place.

A chat template may write out anything that a message holds, tools and their arguments included, and an
upstream may make a prompt of fields that Weir has no name for. A guard that looked at messages' contents
alone would miss all of these, so this module finds them all.
"""

import hashlib
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from engine.protocol import ROLES, GenerationRequest, Prompt, SamplingParams
from engine.protocol.fields.table import FIELDS
from hooks.prompts.names import READINGS, distinct, name_of
from hooks.prompts.sources import (
    DOCUMENTS,
    KINDS,
    STRANGERS,
    USER,
    Source,
    Voice,
    voice_of,
    voice_of_field,
    voice_of_part,
)

PROMPT_FIELDS = ("messages", "prompts", "tools", "tool_choice", "extra")
"""The fields of a request that make its prompt. `on_request` may change these and `sampling.stop`."""

_MEDIA = {"image_url", "video_url", "audio_url", "input_audio", "file"}
"""Fields of a content part that hold an image, sound or a file."""
_NAMES = _MEDIA | {
    *("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "type", "text")
}
"""The API's names for fields of a message or a part. Any other name is the caller's own words."""
_NAMED = {"function", "custom", "json_schema", "allowed_tools", "tools"}
"""Fields, within a tool, a call or a setting, whose value has a name or holds objects that have one."""
_DEFINITIONS = {"functions", "function_call", "response_format", "structured_outputs"}
_OF_SPEAKER = {"role", "content", "name"}
"""The fields of a message that its speaker fills, whoever it is."""
_GLUES = ("", "\n")
"""The separators that templates put between the texts of one content."""

T = TypeVar("T")
_Change = Callable[[str, Any, str], Any]
"""Takes a field's name, value and place, and returns the new value."""


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: str
    text: str | None = None
    place: str | None = None


def refuse(reason: str, text: str | None = None, *, place: str | None = None) -> Refusal:
    """The answer of `on_request` for a prompt that must not reach the model.

    The client gets an error (HTTP 400, `code: content_filter`) that names the reason; or, with `text`, an
    answer of that text, with `finish_reason: content_filter` and `stop_reason: reason`. Later hooks see the
    text. `reason` is for the client: it must hold nothing of the prompt.
    `place`: the `PromptText.place` of the text at fault. The client learns the message or the tool (contract
    8.8).
    """
    return Refusal(reason, text, place)


class PromptText(NamedTuple):
    text: str
    place: str
    """The text's place, such as `messages[2].content` or `tools[0]`."""
    is_json: bool = False
    """Whether the text is JSON, as a tool call's arguments are. A replacement must be JSON too."""
    source: Source = "user"
    is_certain: bool = True
    """Whether the source is known. False: a stranger may have written the text. A guard that looks for a
    user's own words passes over it."""
    others: frozenset[Source] = frozenset()
    """The other sources, if the text is joined of parts of several. `source` is then a stranger's,
    if one of them is."""
    is_joined: bool = False
    """Whether the text is joined of parts, each of which comes by itself too."""

    def is_of(self, sources: Container[Source]) -> bool:
        """Whether all of the text is of these sources."""
        return self.source in sources and all(other in sources for other in self.others)


def prompt_texts(request: GenerationRequest) -> list[PromptText]:
    """Every text that the request's prompt is made of.

    If a message's content is a list, each text comes by itself, and then all joined, once by nothing and once
    by a line's end, because templates write them either way. If they are of several sources, those of each
    source come joined as well. A name of a tool, a call, a schema or a caller
    that is made of several words comes once more as words. Images, sound and files give no text.
    """
    seen: list[PromptText] = []

    def see(text: PromptText) -> str:
        seen.append(text)
        return text.text

    with_prompt_texts(request, see)
    return seen


def with_prompt_texts(request: GenerationRequest, rewrite: Callable[[PromptText], str]) -> GenerationRequest:
    """The request with `rewrite` applied to each of its `prompt_texts`. Without a change, the request itself.

    If `rewrite` changes the joined texts of one content, they become one text, which is a stranger's if one
    of them is. If it changes a name's words, they become one name again. Raises `ValueError` for a
    replacement that must be JSON and is not.
    """
    walk = _Walk(rewrite, request.tool_names)
    fields: dict[str, Any] = {
        "messages": _listed(request.messages, "messages", walk.message),
        "prompts": _listed(request.prompts, "prompts", walk.prompt),
        "tools": _listed(request.tools, "tools", walk.definition),
        "extra": walk.named(request.extra, "extra", walk.extra, FIELDS),
        "sampling": _with_stop(request.sampling, walk.text),
    }
    if isinstance(request.tool_choice, Mapping):
        fields["tool_choice"] = walk.definition(request.tool_choice, "tool_choice")
    changed = {name: value for name, value in fields.items() if value is not getattr(request, name)}
    return replace(request, **changed) if changed else request


def only_from(request: GenerationRequest, sources: Container[Source]) -> GenerationRequest:
    """The request with only those messages, parts of messages and prompts that are from the sources."""
    if not request.is_chat:
        return request if "user" in sources else replace(request, prompts=())
    kept = tuple(part for message in request.messages for part in _only_from(message, sources))
    return request if kept == request.messages else replace(request, messages=kept)


def _only_from(message: Mapping[str, Any], sources: Container[Source]) -> Iterator[Mapping[str, Any]]:
    voice, content = voice_of(message), message.get("content")
    if not isinstance(content, list | tuple):
        if voice.source in sources:
            yield message
        return
    parts = [part for part in content if voice_of_part(part, voice).source in sources]
    if len(parts) == len(content) and (parts or voice.source in sources):
        yield message
    elif parts:
        yield {**message, "content": parts}


def without_unread(request: GenerationRequest) -> GenerationRequest:
    """The request without fields that an upstream would read and no hook does: `metadata` is dropped; `user`
    and `cache_salt` become hashes, which still differ between callers (contract 8.1)."""
    return replace(request, user=_hash(request.user), cache_salt=_hash(request.cache_salt), metadata={})


def _hash(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _with_stop(sampling: SamplingParams, change: Callable[[str, str], str]) -> SamplingParams:
    stop = _listed(sampling.stop, "stop", change)
    return sampling if stop is sampling.stop else replace(sampling, stop=tuple(filter(None, stop)))


class _Walk:
    """Rewrites the texts of a request's parts. A part without a change is returned itself."""

    def __init__(self, rewrite: Callable[[PromptText], str], names: Iterable[str]) -> None:
        """`names`: those of the caller's tools. No other name becomes one of them."""
        self._rewrite = rewrite
        self._new_names: dict[str, str] = {}
        """The names that were rewritten, by the caller's names: a name is the same one everywhere."""
        self._taken = {*names}
        self._voice = USER
        self._others: frozenset[Source] = frozenset()

    def _in_voice(self, voice: Voice, change: Callable[..., T], *args: Any) -> T:
        """Call `change`. The texts that it reads are of this voice."""
        if voice == self._voice:
            return change(*args)
        outer, self._voice = self._voice, voice
        try:
            return change(*args)
        finally:
            self._voice = outer

    def text(self, text: str, place: str, *, is_json: bool = False, is_joined: bool = False) -> str:
        new = self._rewrite(PromptText(text, place, is_json, *self._voice, self._others, is_joined))
        return text if new == text else new

    def json(self, value: Any, place: str) -> Any:
        value = self._named(value, place)
        written = json.dumps(value, ensure_ascii=False, default=dict)
        new = self.text(written, place, is_json=True)
        return value if new is written else self._with_names(value, json.loads(new))

    def _with_names(self, old: Any, new: Any) -> Any:
        """The rewritten value, whose names are names again."""
        if isinstance(old, list | tuple) and isinstance(new, list) and len(old) == len(new):
            return [self._with_names(*pair) for pair in zip(old, new, strict=True)]
        if not isinstance(old, Mapping) or not isinstance(new, dict):
            return new
        fields = {field: self._with_names(old.get(field), new[field]) for field in _NAMED & new.keys()}
        own, name = old.get("name"), new.get("name")
        if isinstance(own, str) and isinstance(name, str) and own != name:
            fields["name"] = self._new_name(own, name)
        return {**new, **fields}

    def _new_name(self, own: str, words: str) -> str:
        """The name that takes the place of the caller's, of these words."""
        if own not in self._new_names:
            self._new_names[own] = distinct(name_of(words), self._taken)
            self._taken.add(self._new_names[own])
        return self._new_names[own]

    def _named(self, value: Any, place: str) -> Any:
        """Rewrite the words of the names of tools, calls and schemas. JSON has the names as they are."""
        if isinstance(value, list | tuple):
            return _listed(value, place, self._named)
        return _mapped(value, place, self._named_field) if isinstance(value, Mapping) else value

    def _named_field(self, name: str, value: Any, place: str) -> Any:
        if name == "name" and isinstance(value, str):
            return self._words(value, place)
        return self._named(value, place) if name in _NAMED else value

    def _words(self, own: str, place: str) -> str:
        name, seen = own, {own}
        for read in READINGS:
            if (words := read(name)) not in seen:
                seen.add(words)
                new = self.text(words, place)
                name = name if new is words else name_of(new)
        return own if name == own else self._new_name(own, name)

    def value(self, value: Any, place: str) -> Any:
        if value is None or isinstance(value, bool):
            return value
        return self.text(value, place) if isinstance(value, str) else self.json(value, place)

    def prompt(self, prompt: Prompt, place: str) -> Prompt:
        return self.text(prompt, place) if isinstance(prompt, str) else prompt

    def extra(self, name: str, value: Any, place: str) -> Any:
        """A field that Weir does not know. A bare number is a setting, not a text."""
        if isinstance(value, int | float):
            return value
        is_definition = name in _DEFINITIONS or name.startswith("guided_")
        voice = Voice("definition") if is_definition else voice_of_field(name, USER)
        inner = _documents_in(value)
        if not inner:
            return self._in_voice(voice, self.value, value, place)
        rest = {own: one for own, one in value.items() if own not in inner}
        read = {own: self.extra(own, value[own], f"{place}.{own}") for own in inner}
        kept = self._in_voice(voice, self.value, rest, place) if rest else rest
        new = {own: read[own] if own in read else kept[own] for own in value if own in read or own in kept}
        new |= kept
        return value if _is_same(new.values(), value.values()) and [*new] == [*value] else new

    def definition(self, value: Any, place: str) -> Any:
        return self._in_voice(Voice("definition"), self.json, value, place)

    def message(self, message: Mapping[str, Any], place: str) -> Any:
        return self._in_voice(voice_of(message), self.named, message, place, self._message_field, _NAMES)

    def named(self, fields: Mapping[str, Any], place: str, change: _Change, known: Container[str]) -> Any:
        """Rewrite fields, and their names unless `known`."""
        made = _mapped(fields, place, change)
        unsure = self._voice._replace(is_certain=False)
        names = {
            name: name if name in known else self._in_voice(unsure, self.text, name, place) for name in made
        }
        return made if all(new is name for name, new in names.items()) else {names[n]: made[n] for n in made}

    def _message_field(self, name: str, value: Any, place: str) -> Any:
        if name == "role" and value in ROLES:
            return value
        is_own = name in (_OF_SPEAKER if self._voice.source == "user" else _NAMES)
        voice = self._voice if is_own else voice_of_field(name, self._voice)
        return self._in_voice(voice, self._own_field, name, value, place)

    def _own_field(self, name: str, value: Any, place: str) -> Any:
        if name == "content" and isinstance(value, list | tuple):
            return self._joined(_listed(value, place, self._part), place)
        if name == "tool_calls" and isinstance(value, list | tuple):
            return _listed(value, place, self._call)
        if name == "name" and isinstance(value, str):
            return self._own_name(value, place)
        return self.value(value, place)

    def _own_name(self, name: str, place: str) -> str:
        """The name of a message: its speaker's, or that of the tool whose result it is."""
        words = self._words(name, place)
        new = self.text(words, place)
        return words if new is words else self._new_name(words, new)

    def _call(self, call: Any, place: str) -> Any:
        """A tool call. Its arguments are JSON already and are read by themselves."""
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
            return self.json(call, place)
        arguments = self.text(function["arguments"], f"{place}.function.arguments", is_json=True)
        bare = {**call, "function": {k: v for k, v in function.items() if k != "arguments"}}
        rest = self.json(bare, place)
        if rest is bare and arguments is function["arguments"]:
            return call
        return {**rest, "function": {**rest["function"], "arguments": arguments}}

    def _part(self, part: Any, place: str) -> Any:
        if not isinstance(part, Mapping):
            return self.value(part, place)
        voice = voice_of_part(part, self._voice)
        return self._in_voice(voice, self.named, part, place, self._part_field, _NAMES)

    def _part_field(self, name: str, value: Any, place: str) -> Any:
        if name == "type" and isinstance(value, str) and value in KINDS:
            return value
        voice = self._voice if name in _NAMES - DOCUMENTS else voice_of_field(name, self._voice)
        return self._in_voice(voice, self._own_part_field, name, value, place)

    def _own_part_field(self, name: str, value: Any, place: str) -> Any:
        if name in _MEDIA:
            if isinstance(value, Mapping):
                return _mapped(value, place, self._medium_field)
            return self._medium_field(name, value, place)
        return self.value(value, place)

    def _medium_field(self, name: str, value: Any, place: str) -> Any:
        """A web address is a text. Inline bytes are not."""
        is_data = isinstance(value, str) and (name == "data" or value.startswith("data:"))
        return value if is_data else self.value(value, place)

    def _joined(self, parts: Sequence[Any], place: str) -> Sequence[Any]:
        """Read the texts of one content as one, and those of each source. If they are rewritten, one text
        takes the place of all."""
        voices = {i: voice_of_part(part, self._voice) for i, part in enumerate(parts)}
        texts = [i for i, part in enumerate(parts) if _text_of(part) is not None]
        all_voices = [*dict.fromkeys(voices[i] for i in texts)]
        if len(all_voices) <= 1:
            return self._in_voice(
                all_voices[0] if texts else self._voice, self._one_text, parts, texts, place
            )
        for voice in all_voices:
            own = [i for i in texts if voices[i] == voice]
            changed = self._in_voice(voice, self._one_text, parts, own, place)
            if changed is not parts:
                return self._joined(changed, place)
        # A stranger's words stay a stranger's, and take the caller's with them.
        voice = next((one for one in all_voices if one.source in STRANGERS), self._voice)
        self._others = frozenset(one.source for one in all_voices) - {voice.source}
        try:
            first = next((i for i in texts if voices[i].source == voice.source), texts[0])
            return self._in_voice(
                voice._replace(is_certain=False), self._one_text, parts, texts, place, first
            )
        finally:
            self._others = frozenset()

    def _one_text(
        self, parts: Sequence[Any], texts: list[int], place: str, at: int | None = None
    ) -> Sequence[Any]:
        for glue in _GLUES if len(texts) > 1 else ():
            whole = glue.join(str(_text_of(parts[i])) for i in texts)
            if (new := self.text(whole, place, is_joined=True)) is not whole:
                at = texts[0] if at is None else at
                one = {**parts[at], "text": new} if isinstance(parts[at], Mapping) else new
                gone = {*texts} - {at}
                return [one if i == at else part for i, part in enumerate(parts) if i not in gone]
        return parts


def _documents_in(value: Any) -> list[str]:
    """The names of an object's own fields of documents, as `chat_template_kwargs` may have them."""
    return [name for name in value if name in DOCUMENTS] if isinstance(value, Mapping) else []


def _text_of(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else None


def _listed(items: Any, place: str, change: Callable[[Any, str], Any]) -> Any:
    new = [change(item, f"{place}[{i}]") for i, item in enumerate(items)]
    return items if _is_same(new, items) else type(items)(new)


def _mapped(fields: Any, place: str, change: _Change) -> Any:
    new = {name: change(name, value, f"{place}.{name}") for name, value in fields.items()}
    return fields if _is_same(new.values(), fields.values()) else new


def _is_same(new: Iterable[Any], old: Iterable[Any]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))
