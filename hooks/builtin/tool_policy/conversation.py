"""The words of a request's conversation, by their source: the user, the system, or a tool of some name."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import orjson

from hooks import GenerationRequest, Source, prompt_texts, voice_of
from hooks.builtin.tool_policy.places import Pointer, UnreadableError, text_of
from hooks.builtin.tool_policy.truth import Truth, any_of
from hooks.builtin.tool_policy.words import Words
from hooks.detect.restoring import expanded


class Conversation:
    """The texts of a conversation. Each is read when it is first asked for."""

    def __init__(
        self, requests: Iterable[GenerationRequest], values: Mapping[str, str] | None = None
    ) -> None:
        """`requests`: one conversation in several forms, such as before and after hooks changed it. `values`:
        see `Chunk.caller_values`; the texts are read with these, too."""
        self._requests = tuple(requests)
        self._values = values or {}
        self._texts: dict[Source, list[tuple[Words, Truth]]] = {}
        self._results: list[tuple[str, Any]] | None = None

    def answer(self, source: Source, ask: Callable[[Words], Truth]) -> Truth:
        """Whether a text of this source is as asked. Unknown if it may be a stranger's."""
        if source not in self._texts:
            self._texts[source] = self._read(source)
        return any_of(min(ask(words), is_own) for words, is_own in self._texts[source])

    def _read(self, source: Source) -> list[tuple[Words, Truth]]:
        """The texts of the messages and prompts, and whether each is certainly of this source."""
        texts: dict[str, Truth] = {}
        for request in self._requests:
            for text in prompt_texts(request):
                if text.source == source and text.place.startswith(("messages[", "prompts[")):
                    is_own = Truth.YES if text.is_certain else Truth.UNKNOWN
                    for form in self._forms(text.text):
                        texts[form] = max(texts.get(form, Truth.NO), is_own)
        return [(Words(text), is_own) for text, is_own in texts.items()]

    def has(self, value: str, source: Source) -> Truth:
        return self.answer(source, lambda words: words.have(value))

    def has_result(self, value: str, tool: str, at: Pointer) -> Truth:
        """Whether the value is in a result of a tool, at a place of the result. `tool`: a glob."""
        return any_of(
            Words(form).have(value)
            for name, result in self._all_results()
            if fnmatchcase(name, tool)
            for text in _texts_at(result, at)
            for form in self._forms(text)
        )

    def _forms(self, text: str) -> tuple[str, str]:
        return text, expanded(text, self._values)

    def _all_results(self) -> list[tuple[str, Any]]:
        if self._results is None:
            self._results = [one for request in self._requests for one in _results_of(request)]
        return self._results


def _results_of(request: GenerationRequest) -> Iterator[tuple[str, Any]]:
    """Each tool's result with the tool's name: its JSON, or its text if it is no JSON."""
    names: dict[Any, str] = {}
    for message in request.messages:
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                names[call.get("id")] = str(function.get("name"))
        if voice_of(message).source == "tool":
            name = names.get(message.get("tool_call_id"), message.get("name"))
            if isinstance(name, str):
                yield name, _read(_content_of(message))


def _content_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return content if isinstance(content, str) else ""
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    return "".join(part for part in parts if isinstance(part, str))


def _read(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def _texts_at(result: Any, at: Pointer) -> list[str]:
    """The scalars at this place of a result, as texts."""
    try:
        found = at.values(result)
    except UnreadableError:
        return []
    return [text_of(one) for one in found if not isinstance(one, dict | list)]
