"""Every kind of answer: what the engine says, which hook is in the way, and what a client asks for."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.protocol import Delta, EngineError, FinishReason, GenerationRequest, ToolCall, Usage
from hooks import Chunk, Verdict, emit, hold, redact, refuse, suppress, terminate
from tests.helpers import Script, make_deltas

JSONObject = dict[str, Any]

ENDPOINTS = ("chat", "completions", "responses", "messages")
CHATS = ("chat", "responses", "messages")
CHOICES = ("chat", "completions")


@dataclass(frozen=True)
class Case:
    """An answer. `fields` are further ones of the request, by endpoint."""

    script: Callable[[GenerationRequest], Iterable[Any]]
    hooks: Callable[[], tuple[Any, ...]] = tuple
    endpoints: tuple[str, ...] = ENDPOINTS
    fields: Mapping[str, JSONObject] = field(default_factory=dict)


class Guard(Script):
    """A hook that also decides on prompts."""

    def __init__(self, answer: Callable[[Chunk], Verdict], on_request: Callable[[Any], Any]) -> None:
        super().__init__(answer)
        self.on_request = on_request


def end(reason: FinishReason = "stop", **fields: Any) -> Delta:
    return Delta(finish_reason=reason, usage=Usage(5, 7, 2, 3), **fields)


def say(*words: str, first_id: int = 0, **fields: Any) -> list[Delta]:
    return make_deltas(words, first_id=first_id, finish=False, **fields)


def think(*words: str) -> list[Delta]:
    return say(*words, first_id=20, channel="reasoning")


def call(index: int, name: str, *pieces: str) -> list[Delta]:
    call = ToolCall(index, name, "upstreams-own")
    return say(*pieces, first_id=40 + 20 * index, channel="tool_call", tool_call=call)


def answer(*parts: Iterable[Any]) -> Callable[[GenerationRequest], list[Any]]:
    return lambda request: [one for part in parts for one in part]


def everything(request: GenerationRequest) -> list[Delta]:
    calls = [*call(0, "f", '{"a": ', "1}"), *call(1, "g", "{}"), *call(2, "f", '{"a"', ": 2}")]
    return [*think("Let ", "me ", "see."), *say("I ", "call."), *calls, end("tool_calls")]


def guarded(answer: Callable[[Chunk], Verdict]) -> Callable[[], tuple[Script]]:
    return lambda: (Script(answer),)


def released(chunk: Chunk) -> Verdict:
    return emit(chunk.pending)


def terminated(chunk: Chunk) -> Verdict:
    found = chunk.pending.find("call")
    return emit(chunk.pending) if found < 0 else terminate("harm", after=found, text="[ended]")


def ended_in_call(chunk: Chunk) -> Verdict:
    found = chunk.pending.find("Blue")
    return emit(chunk.pending) if found < 0 else terminate("harm", after=found, text="[ended]")


def suppressed_in_call(chunk: Chunk) -> Verdict:
    return suppress() if "Blue" in chunk.pending else emit(chunk.pending)


def late(chunk: Chunk) -> Verdict:
    """Hold the end of the content until its last chunk, which comes after the calls."""
    is_held = chunk.channel == "content" and not chunk.is_final
    return hold(min(3, len(chunk.pending))) if is_held else emit(chunk.pending)


def without_f(chunk: Chunk) -> Verdict:
    return suppress() if chunk.tool_name == "f" else emit(chunk.pending)


def starred(chunk: Chunk) -> Verdict:
    found = chunk.pending.find("me")
    return emit(chunk.pending) if found < 0 else redact([(found, found + 2, "**")])


def first_output_waits(chunk: Chunk) -> Verdict:
    return emit(chunk.pending) if chunk.output_index or chunk.is_final else hold()


def refused(text: str | None) -> Callable[[], tuple[Guard]]:
    return lambda: (Guard(released, lambda request: refuse("harm", text=text)),)


TWO = answer(
    say("Hel", "lo"),
    say("Good ", first_id=8, index=1),
    [end()],
    say("day", first_id=10, index=1),
    [end("length", index=1)],
)
SECOND_FIRST = answer(say("Good ", index=1), say("Hel", "lo"), [end()], [end("length", index=1)])
ECHO = answer(say("The ", "sky", first_id=60, channel="echo"), say(" is ", "blue"), [end()])
N = {"chat": {"n": 2}, "completions": {"n": 2}}
LOGPROBS = {
    "chat": {"logprobs": True, "top_logprobs": 1},
    "completions": {"logprobs": 1},
    "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 1},
}
IDS = {name: {"return_token_ids": True} for name in CHOICES}
STOP = {name: {"stop": ["lo"]} for name in ENDPOINTS} | {"messages": {"stop_sequences": ["lo"]}}
SHORT = {"responses": {"max_output_tokens": 2}} | {name: {"max_tokens": 2} for name in (*CHOICES, "messages")}

TWO_CALLS = answer(
    say("I "),
    call(0, "f", '{"a": ', "1}"),
    call(1, "g", '{"command": "rm -rf', " build/", "Blue", 'bird"}'),
    [end("tool_calls")],
)

CASES = {
    "text": Case(answer(say("Hel", "lo"), [end()])),
    "a text in one delta": Case(answer([Delta(text="Hello", finish_reason="stop", usage=Usage(5, 1))])),
    "no text": Case(answer([end()])),
    "reasoning": Case(answer(think("Let ", "me ", "see."), say("Hel", "lo"), [end()]), endpoints=CHATS),
    "reasoning alone": Case(answer(think("Let ", "me"), [end("length")]), endpoints=CHATS, fields=SHORT),
    "a call": Case(answer(call(0, "f", '{"a": ', "1}"), [end("tool_calls")]), endpoints=CHATS),
    "a call without arguments": Case(answer(call(0, "f", ""), [end("tool_calls")]), endpoints=CHATS),
    "everything": Case(everything, endpoints=CHATS),
    "a hook that releases all": Case(everything, guarded(released), CHATS),
    "logprobs": Case(answer(say("Hel", "lo"), [end()]), fields=LOGPROBS),
    "logprobs with calls": Case(everything, endpoints=CHATS, fields=LOGPROBS),
    "token ids": Case(answer(say("Hel", "lo"), [end()]), endpoints=CHOICES, fields=IDS),
    "an echo": Case(ECHO, endpoints=CHOICES, fields={name: {"echo": True} for name in CHOICES}),
    "an echo with logprobs": Case(
        ECHO, endpoints=CHOICES, fields={name: {"echo": True} | LOGPROBS[name] for name in CHOICES}
    ),
    "two outputs": Case(TWO, endpoints=CHOICES, fields=N),
    "the second output first": Case(SECOND_FIRST, endpoints=CHOICES, fields=N),
    "a held first output": Case(TWO, guarded(first_output_waits), CHOICES, N),
    "two outputs with logprobs": Case(
        TWO, endpoints=CHOICES, fields={name: N[name] | LOGPROBS[name] for name in CHOICES}
    ),
    "a stop string": Case(answer(say("Hel"), [end(stop_reason="lo")]), fields=STOP),
    "a stop token": Case(answer(say("Hel"), [end(stop_reason=7)])),
    "the limit": Case(answer(say("Hel", "lo"), [end("length")]), fields=SHORT),
    "the limit within a call": Case(
        answer(say("I "), call(0, "f", '{"a": "b'), [end("length")]), endpoints=CHATS, fields=SHORT
    ),
    "a guard's end": Case(everything, guarded(terminated), CHATS, LOGPROBS),
    "a guard's end at once": Case(everything, guarded(lambda chunk: terminate("harm")), CHATS),
    "a guard's end within a call": Case(TWO_CALLS, guarded(ended_in_call), CHATS),
    "a call that is suppressed in part": Case(TWO_CALLS, guarded(suppressed_in_call), CHATS),
    "a guard's redaction": Case(everything, guarded(starred), CHATS, LOGPROBS),
    "a late release": Case(everything, guarded(late), CHATS),
    "a withheld call": Case(everything, guarded(without_f), CHATS),
    "nothing released": Case(everything, guarded(lambda chunk: suppress()), CHATS),
    "a refused prompt": Case(answer(), refused("I cannot.")),
}  # fmt: skip
"""Answers that come whole."""

FAILURES = {
    "an engine that fails": Case(answer(say("Hel"), [EngineError("The engine has failed.")])),
    "an engine that fails within a call": Case(
        answer(say("I "), call(0, "f", '{"a'), [EngineError("The engine has failed.")]), endpoints=CHATS
    ),
    "a hook that fails": Case(
        answer(say("Hel", "lo"), [end()]),
        guarded(lambda c: None if c.text == "Hello" and c.request.model == "m" else emit(c.pending)),
    ),
}
"""Answers that fail after the first event."""

REFUSALS = {
    "a prompt that a hook refuses": Case(answer(), refused(None)),
    "an engine that fails at once": Case(answer([EngineError("The engine has failed.", status=503)])),
    "a hook that fails at once": Case(
        everything, guarded(lambda c: None if c.request.model == "m" else emit(c.pending)), CHATS
    ),
    "a wrong field": Case(answer(), fields={name: {"temperature": "warm"} for name in ENDPOINTS}),
    "a model that is not served": Case(answer(), fields={name: {"model": "other"} for name in ENDPOINTS}),
}
"""Requests that are answered by an error."""
