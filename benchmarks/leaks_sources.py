"""Does a stranger's text count as the user's? A part of `make bench NAME=leaks`.

Prompts of every API are drawn, with every kind of part and every role, also unknown ones. Each text has a
word of its own, and so its source is known: who said it. The request passes the service's own reader. Then
every text that hooks see has the source of its words, `from: [user]` finds the user's words and no others,
`wrap` marks the words of tools and documents and taints, and a guard reads what its argument `of` names.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import orjson
from pydantic import ValidationError

from engine.protocol import GenerationRequest
from hooks import PromptText, prompt_texts
from hooks.builtin.patterns import Patterns
from hooks.builtin.tool_policy.conversation import Conversation
from hooks.builtin.tool_policy.truth import Truth
from hooks.builtin.wrap import Wrap
from hooks.prompts.sources import Source, Voice
from proxy.wire.messages.fields import MessagesRequest
from proxy.wire.openai.chat import ChatRequest
from proxy.wire.openai.completions import CompletionRequest
from proxy.wire.openai.responses import ResponsesRequest

JSON = dict[str, Any]
_USER, _TOOL, _DOCUMENT = Voice("user"), Voice("tool"), Voice("document")
_DEFINITION, _UNKNOWN = Voice("definition"), Voice("user", is_certain=False)
STRANGERS = ("tool", "document")
_ROLES: Mapping[str, Voice] = {
    "system": Voice("system"),
    "developer": Voice("system"),
    "user": _USER,
    "assistant": Voice("assistant"),
    "tool": _TOOL,
    "function": _TOOL,
    "ipython": _TOOL,
    'document {"doc_id": 1}': _DOCUMENT,
    "critic": _UNKNOWN,
}

_SOURCES: tuple[Source, ...] = get_args(Source)
_GUARDS = {source: Patterns([r"zq\d{1,3}x\d{1,6}"], prompt="redact", of=[source]) for source in _SOURCES}


@dataclass
class Drawn:
    """A body for an endpoint, and who said each of its words."""

    rng: random.Random
    body: JSON = field(default_factory=dict)
    words: dict[str, Voice] = field(default_factory=dict)
    wrapped: set[str] = field(default_factory=set)
    """The words that stand in a text that `wrap` can mark."""

    def word(self, voice: Voice, *, is_text: bool = False) -> str:
        word = f"zq{len(self.words)}x{self.rng.randrange(10**6)}"
        self.words[word] = voice
        if is_text and voice.source in STRANGERS:
            self.wrapped.add(word)
        return word

    def some(self, make: Callable[[], Any], most: int = 3) -> list[Any]:
        return [make() for _ in range(self.rng.randint(1, most))]


def _unsure(voice: Voice) -> Voice:
    return voice if voice.source == "tool" else voice._replace(is_certain=False)


def _of_document(voice: Voice) -> Voice:
    return voice if voice.source == "tool" else _DOCUMENT


def _chat_part(drawn: Drawn, voice: Voice) -> JSON:
    document, unsure = _of_document(voice), _unsure(voice)

    def text(of: Voice) -> str:
        return drawn.word(of, is_text=True)

    makers: list[Callable[[], JSON]] = [
        lambda: {"type": "text", "text": text(voice)},
        lambda: {"type": "text", "text": f"{text(voice)} and {text(voice)}"},
        lambda: {"type": "document", "text": text(document)},
        lambda: {
            "type": "document",
            "title": text(document),
            "source": {"type": "text", "data": text(document)},
        },
        lambda: {"type": "search_result", "title": text(document), "content": [{"text": text(document)}]},
        lambda: {
            "type": "file",
            "file": {"filename": drawn.word(document), "file_data": "data:a/b;base64,aGk="},
        },
        lambda: {"type": "document_url", "document_url": drawn.word(document)},
        lambda: {"type": "function_call_output", "output": drawn.word(_TOOL)},
        lambda: {"type": "web_search_tool_result", "text": text(_TOOL)},
        lambda: {"type": "widget", "text": drawn.word(unsure)},
        lambda: {"type": "widget", "inside": {"a": [drawn.word(unsure)]}},
        lambda: {"type": "image_url", "image_url": {"url": f"https://x.test/{drawn.word(voice)}"}},
        lambda: {"type": "text", "text": text(voice), "documents": [drawn.word(document)]},
    ]
    return drawn.rng.choice(makers)()


def _chat_message(drawn: Drawn) -> JSON:
    role, voice = drawn.rng.choice([*_ROLES.items()])
    content: Any = drawn.word(voice, is_text=True) if drawn.rng.random() < 0.3 else None
    message = {"role": role, "content": content or drawn.some(lambda: _chat_part(drawn, voice), 4)}
    if role == "assistant" and drawn.rng.random() < 0.5:
        arguments = orjson.dumps({"a": drawn.word(voice)}).decode()
        function = {"name": "f", "arguments": arguments}
        message["tool_calls"] = [{"id": "c", "type": "function", "function": function}]
    if role == "user" and drawn.rng.random() < 0.2:
        message["mood"] = drawn.word(_UNKNOWN)
    return message


def _function(drawn: Drawn) -> JSON:
    return {"name": "f", "description": drawn.word(_DEFINITION)}


def _schema(drawn: Drawn) -> JSON:
    return {"type": "object", "title": drawn.word(_DEFINITION)}


def chat(drawn: Drawn) -> None:
    drawn.body["messages"] = drawn.some(lambda: _chat_message(drawn), 4)
    more: dict[str, Callable[[], Any]] = {
        "tools": lambda: [{"type": "function", "function": _function(drawn)}],
        "documents": lambda: [
            {"title": drawn.word(_DOCUMENT, is_text=True)},
            drawn.word(_DOCUMENT, is_text=True),
        ],
        "response_format": lambda: {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": _schema(drawn)},
        },
        "stop": lambda: [drawn.word(_USER)],
        "odd_field": lambda: drawn.word(_UNKNOWN),
    }
    drawn.body |= {name: make() for name, make in more.items() if drawn.rng.random() < 0.3}


def completions(drawn: Drawn) -> None:
    prompt = drawn.word(_USER) if drawn.rng.random() < 0.5 else None
    drawn.body["prompt"] = prompt or drawn.some(lambda: drawn.word(_USER))
    if drawn.rng.random() < 0.5:
        drawn.body["documents"] = [drawn.word(_DOCUMENT, is_text=True)]


def _response_part(drawn: Drawn, voice: Voice) -> JSON:
    document = _of_document(voice)
    kind = "output_text" if voice.source == "assistant" else "input_text"
    makers: list[Callable[[], JSON]] = [lambda: {"type": kind, "text": drawn.word(voice, is_text=True)}]
    if voice.source != "assistant":
        makers.append(lambda: {"type": "input_file", "filename": drawn.word(document), "file_data": "aGk="})
        makers.append(lambda: {"type": "input_file", "file_url": f"https://x.test/{drawn.word(document)}"})
    return drawn.rng.choice(makers)()


def _item(drawn: Drawn) -> JSON:
    kind = drawn.rng.choice(
        ["message", "message", "function_call", "function_call_output", "reasoning", "odd"]
    )
    assistant = Voice("assistant")
    if kind == "function_call":
        arguments = orjson.dumps({"a": drawn.word(assistant)}).decode()
        return {"type": kind, "call_id": "c", "name": "f", "arguments": arguments}
    if kind == "function_call_output":
        text = drawn.word(_TOOL, is_text=True) if drawn.rng.random() < 0.4 else None
        output = text or drawn.some(lambda: _response_part(drawn, _TOOL))
        return {"type": kind, "call_id": "c", "output": output}
    if kind == "reasoning":
        return {"type": kind, "content": [{"type": "reasoning_text", "text": drawn.word(assistant)}]}
    if kind == "odd" and drawn.rng.random() < 0.2:
        odd = drawn.rng.choice(["custom_tool_call_output", "shell_call_output", "mcp_call", "widget"])
        output = "x" if odd == "widget" else drawn.word(_TOOL, is_text=True)
        return {"type": odd, "call_id": "c", "output": output}
    role = drawn.rng.choice(["user", "user", "assistant", "system", "developer"])
    return {"role": role, "content": drawn.some(lambda: _response_part(drawn, _ROLES[role]))}


def responses(drawn: Drawn) -> None:
    drawn.body["input"] = drawn.some(lambda: _item(drawn), 5)
    if drawn.rng.random() < 0.3:
        drawn.body["instructions"] = drawn.word(Voice("system"))
    if drawn.rng.random() < 0.3:
        drawn.body["tools"] = [{"type": "function", **_function(drawn)}]
    if drawn.rng.random() < 0.3:
        drawn.body["text"] = {"format": {"type": "json_schema", "name": "n", "schema": _schema(drawn)}}


def _block(drawn: Drawn, voice: Voice) -> JSON:
    document = _of_document(voice)

    def text(of: Voice) -> str:
        return drawn.word(of, is_text=True)

    def words() -> list[JSON]:
        return drawn.some(lambda: {"type": "text", "text": text(document)})

    pdf = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
    makers: list[Callable[[], JSON]] = [
        lambda: {"type": "text", "text": text(voice)},
        lambda: {
            "type": "document",
            "source": {"type": "text", "data": text(document)},
            "title": text(document),
        },
        lambda: {
            "type": "document",
            "source": {"type": "text", "data": text(document)},
            "context": text(document),
        },
        lambda: {"type": "document", "source": {"type": "content", "content": words()}},
        lambda: {"type": "document", "source": pdf, "title": drawn.word(document)},
        lambda: {
            "type": "search_result",
            "source": text(document),
            "title": text(document),
            "content": words(),
        },
    ]
    return drawn.rng.choice(makers)()


def _turn(drawn: Drawn) -> JSON:
    role = drawn.rng.choice(["user", "user", "user", "assistant", "system"])
    voice = _ROLES[role]
    if role == "system":
        return {"role": role, "content": [{"type": "text", "text": drawn.word(voice)}]}
    if role == "assistant":
        blocks = [
            {"type": "thinking", "thinking": drawn.word(voice)},
            {"type": "text", "text": drawn.word(voice)},
        ]
        use = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": drawn.word(voice)}}
        return {"role": role, "content": [*blocks, use]}
    blocks = drawn.some(lambda: _block(drawn, voice), 4)
    if drawn.rng.random() < 0.5:
        result: JSON = {"type": "tool_result", "tool_use_id": "t", "is_error": drawn.rng.random() < 0.3}
        if drawn.rng.random() < 0.5:
            result["content"] = drawn.some(lambda: _block(drawn, _TOOL))
        else:
            result["content"] = drawn.word(_TOOL, is_text=True)
        blocks.insert(drawn.rng.randint(0, len(blocks)), result)
    return {"role": role, "content": blocks}


def messages(drawn: Drawn) -> None:
    turns = drawn.some(lambda: _turn(drawn), 3)
    last = {"role": "user", "content": drawn.word(_USER)}
    drawn.body |= {"messages": [*turns, last], "max_tokens": 5}
    if drawn.rng.random() < 0.3:
        drawn.body["system"] = [{"type": "text", "text": drawn.word(Voice("system"))}]
    if drawn.rng.random() < 0.3:
        drawn.body["tools"] = [{**_function(drawn), "input_schema": _schema(drawn)}]


DRAWS: Mapping[str, Callable[[Drawn], None]] = {
    "chat": chat,
    "completions": completions,
    "responses": responses,
    "messages": messages,
}


def draw(rng: random.Random, endpoint: str) -> Drawn:
    drawn = Drawn(rng)
    DRAWS[endpoint](drawn)
    return drawn


def read(endpoint: str, body: JSON) -> GenerationRequest | None:
    """The request as the service makes it of the body. None: the service refuses the body."""
    whole = {"model": "m", **body}
    try:
        match endpoint:
            case "chat":
                return ChatRequest.model_validate(whole).to_request("r", "m")
            case "completions":
                return CompletionRequest.model_validate(whole).to_request("r", "m")
            case "messages":
                return MessagesRequest.model_validate(whole).to_request("r", "m")
        fields = ResponsesRequest.model_validate(whole)
        return fields.to_request("r", "m", fields.input)
    except ValidationError:
        return None


def check_texts(texts: list[PromptText], words: Mapping[str, Voice]) -> None:
    """Raises `AssertionError` if a text has another source than its words."""
    seen: set[str] = set()
    for text in texts:
        found = [word for word in words if word in text.text]
        voices = {words[word] for word in found}
        if len(voices) == 1:
            (voice,) = voices
            assert text.source == voice.source, (text, voice)
            seen |= set(found)
        assert not text.is_certain or all(words[word].source == text.source for word in found), (text, voices)
        if text.place.startswith("messages["):
            assert not text.is_certain or all(words[word].is_certain for word in found), (text, voices)
    assert seen == words.keys(), words.keys() - seen


def check_policy(request: GenerationRequest, words: Mapping[str, Voice]) -> None:
    """Raises `AssertionError` if a condition on the user's words takes others for them, or not these."""
    conversation = Conversation([request])
    beside = orjson.dumps([request.extra, request.sampling.stop]).decode()
    for word, voice in words.items():
        is_users = voice == _USER and word not in beside and "https://x.test" not in str(request.messages)
        answer = conversation.has(word, "user")
        assert answer is Truth.YES if is_users else True, (word, voice)
        assert voice == _USER or answer is not Truth.YES, (word, voice)


def check_wrap(request: GenerationRequest, drawn: Drawn) -> None:
    """Raises `AssertionError` if the words of tools and documents are not marked, or others are."""
    wrapped = Wrap().on_request(request)
    texts = [text.text for text in prompt_texts(wrapped)]
    for word, voice in drawn.words.items():
        whole = [text for text in texts if word in text]
        is_marked = all("<<DATA" in text.split(word)[0] for text in whole)
        assert is_marked if word in drawn.wrapped else voice.source in STRANGERS or not is_marked, word
    voices = drawn.words.values()
    in_messages = str(request.messages)
    is_strange = any(
        voice.source in STRANGERS or (not voice.is_certain and word in in_messages)
        for word, voice in drawn.words.items()
    )
    assert not any(voice.source in STRANGERS for voice in voices) or wrapped.taint in STRANGERS, (
        wrapped.taint,
        request,
        drawn.words,
    )
    assert wrapped.taint is None or is_strange, (wrapped.taint, request.messages)


def check_of(source: Source, request: GenerationRequest, words: Mapping[str, Voice]) -> None:
    """Raises `AssertionError` if a guard with `of: [source]` redacts other words, or not all of these."""
    redacts = _GUARDS[source].on_request
    assert redacts is not None
    left = str(redacts(request))
    for word, voice in words.items():
        assert (word in left) is (voice.source != source), (word, voice, source)


def check(rng: random.Random, request: GenerationRequest, drawn: Drawn) -> None:
    check_texts(prompt_texts(request), drawn.words)
    check_policy(request, drawn.words)
    check_wrap(request, drawn)
    for source in {rng.choice(_SOURCES), rng.choice([*drawn.words.values()]).source}:
        check_of(source, request, drawn.words)


def run(num_prompts: int, seed: int) -> Counter[str]:
    """Check so many prompts. Returns the number of words by source. Raises `AssertionError`."""
    rng, counts = random.Random(seed), Counter[str]()
    for _ in range(num_prompts):
        endpoint = rng.choice([*DRAWS])
        drawn = draw(rng, endpoint)
        request = read(endpoint, drawn.body)
        if request is None:
            counts["refused"] += 1
            continue
        check(rng, request, drawn)
        counts.update(voice.source for voice in drawn.words.values())
    return counts
