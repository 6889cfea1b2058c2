"""The words of a request's conversation, by who said them: the user, the system, and which tool."""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import orjson

from hooks import GenerationRequest, Source, prompt_texts
from hooks.builtin.tool_policy.places import Pointer, UnreadableError, text_of
from hooks.detect.restoring import expanded

_JOINING = frozenset("_-")
"""Characters that join what stands before and behind them to one word."""


class Said:
    """The texts of a conversation. Each is read when it is first asked for."""

    def __init__(
        self, requests: Iterable[GenerationRequest], values: Mapping[str, str] | None = None
    ) -> None:
        """`requests`: one conversation in several forms, such as before and after hooks changed it. `values`:
        see `Chunk.caller_values`; the texts are read with these, too."""
        self._requests = tuple(requests)
        self._values = values or {}
        self._texts: dict[Source, list[str]] = {}
        self._normal: dict[Source, list[str]] = {}
        self._results: list[tuple[str, Any]] | None = None

    def texts(self, source: Source) -> list[str]:
        """The texts of the messages and prompts of this source."""
        if source not in self._texts:
            found = {
                form: None
                for request in self._requests
                for text in prompt_texts(request)
                if text.source == source and text.place.startswith(("messages[", "prompts["))
                for form in self._forms(text.text)
            }
            self._texts[source] = list(found)
        return self._texts[source]

    def has(self, value: str, source: Source) -> bool:
        """Whether the value stands in a text of this source, as `stands_in` says."""
        if source not in self._normal:
            self._normal[source] = [normal(text) for text in self.texts(source)]
        value = normal(value)
        return any(stands_in(value, text) for text in self._normal[source])

    def has_result(self, value: str, tool: str, at: Pointer) -> bool:
        """Whether the value stands in a result of a tool, at a place of the result. `tool`: a glob."""
        value = normal(value)
        return any(
            stands_in(value, normal(form))
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


def normal(text: str) -> str:
    """The text without differences of case, of white space, and of compatible characters."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def stands_in(value: str, text: str) -> bool:
    """Whether `text` has `value`, and not as a part of a longer word, number, host or e-mail address."""
    place = text.find(value) if value else -1
    while place >= 0:
        if _begins(text, place) and _ends(text, place + len(value)):
            return True
        place = text.find(value, place + 1)
    return False


def _begins(text: str, place: int) -> bool:
    before = text[place - 1 : place]
    return not (before.isalnum() or before in _JOINING or before in (".", "@"))


def _ends(text: str, place: int) -> bool:
    behind = text[place : place + 1]
    if behind in (".", "@"):
        return not text[place + 1 : place + 2].isalnum()
    return not (behind.isalnum() or behind in _JOINING)


def _results_of(request: GenerationRequest) -> Iterator[tuple[str, Any]]:
    """Each tool's result with the tool's name: its JSON, or its text if it is no JSON."""
    names: dict[Any, str] = {}
    for message in request.messages:
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                names[call.get("id")] = str(function.get("name"))
        if message.get("role") in ("tool", "function"):
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
