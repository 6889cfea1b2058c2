"""LangChain's chat models and agents, guarded: `make test-library`."""

import traceback
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

import weir
from benchmarks.leaks_wrappers import run
from benchmarks.wrapped_answers import by_langchain
from engine.protocol import EngineError, RequestError
from tests.helpers import examples
from weir import Chunk, Verdict, emit, hold

pytest.importorskip("langchain")

from langchain.agents import create_agent
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from weir.langchain import GuardedChatModel, GuardMiddleware

PHRASES = weir.HookSpec("phrases", {"phrases": ["project bluebird"]})
ENDS = weir.HookSpec("phrases", {"phrases": ["project bluebird"], "action": "terminate", "text": "No."})


class Model(BaseChatModel):
    """Says the chunks, whole or streamed, and counts what it gave."""

    chunks: list[Any]
    asked: list[list[BaseMessage]]
    settings: list[Any] = Field(default_factory=list)
    """Stop strings, and other settings of each call."""
    given: int = 0
    closings: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **others: Any) -> Any:
        return self.bind(tools=[{"type": "function", "function": {"name": "send"}}])

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **others: Any
    ) -> ChatResult:
        first, *rest = [one.message for one in self._stream(messages, stop, **others)]
        whole = first + rest if rest else first
        message = AIMessage(whole.content, tool_calls=whole.tool_calls, usage_metadata=whole.usage_metadata)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **others: Any
    ) -> Iterator[ChatGenerationChunk]:
        self.asked.append(messages)
        self.settings.append((stop, others))
        try:
            for one in self.chunks:
                if isinstance(one, BaseException):
                    raise one
                self.given += 1
                chunk = AIMessageChunk(one) if isinstance(one, str) else one
                made = ChatGenerationChunk(message=chunk)
                if run_manager is not None:
                    run_manager.on_llm_new_token(chunk.text, chunk=made)
                yield made
        finally:
            self.closings += 1

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **others: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._stream(messages):
            yield chunk


def said(*words: Any) -> Model:
    return Model(chunks=list(words), asked=[])


def guarded(model: Model, *hooks: Any) -> GuardedChatModel:
    return GuardedChatModel(model=model, guards=weir.Guards([*(hooks or [PHRASES])]))


async def test_a_model_is_guarded_streamed_and_whole_with_and_without_an_event_loop() -> None:
    model = guarded(said("Project ", "Blue", "bird is ", "ann@mill", "race.initech.com"), "pii", PHRASES)
    expected = "[phrase] is [EMAIL_ADDRESS]"
    assert model.invoke("Hi").content == expected
    assert (await model.ainvoke("Hi")).content == expected
    assert "".join(chunk.text for chunk in model.stream("Hi")) == expected
    assert "".join([chunk.text async for chunk in model.astream("Hi")]) == expected


def test_reasoning_and_calls_are_guarded() -> None:
    reasoning = [{"type": "reasoning", "reasoning": "of project ", "index": 0}]
    more = [{"type": "reasoning", "reasoning": "bluebird", "index": 0}]
    call = {"type": "tool_call_chunk", "name": "send", "args": '{"to": "ann@mill', "id": "theirs", "index": 1}
    rest = {"type": "tool_call_chunk", "name": None, "args": 'race.initech.com"}', "id": None, "index": 1}
    usage: Any = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    chunks = [
        AIMessageChunk(reasoning),
        AIMessageChunk(more),
        AIMessageChunk("", tool_call_chunks=[call]),
        AIMessageChunk("", tool_call_chunks=[rest], usage_metadata=usage),
    ]
    for message in (
        guarded(said(*chunks), "pii", PHRASES).invoke("Hi", stream=True),
        sum_of(guarded(said(*chunks), "pii", PHRASES).stream("Hi")),
    ):
        assert "bluebird" not in str(message)
        assert "theirs" not in str(message)
        assert [(one["name"], one["args"]) for one in message.tool_calls] == [
            ("send", {"to": "[EMAIL_ADDRESS]"})
        ]
        assert message.usage_metadata == usage


def sum_of(chunks: Any) -> Any:
    first, *rest = chunks
    return first + rest


async def test_values_of_the_prompt_come_back_in_the_answer() -> None:
    restores = weir.HookSpec("pii", {"action": "redact", "prompt": "redact", "restore": True})
    model = said("x")
    guarding = guarded(model, restores)
    guarding.invoke([("system", "Be nice."), ("user", "I am ann@millrace.initech.com")])
    system, user = model.asked[-1]
    assert system.content == "Be nice."
    placeholder = str(user.content).removeprefix("I am ")
    assert placeholder.startswith("[EMAIL_ADDRESS_")
    model.chunks = ["You are ", placeholder[:9], placeholder[9:]]
    answer = await guarding.ainvoke([("user", "I am ann@millrace.initech.com")])
    assert answer.content == "You are ann@millrace.initech.com"


def test_a_cache_of_answers_passes_no_guard_by() -> None:  # contract 1.3
    set_llm_cache(InMemoryCache())
    try:
        assert guarded(said("Project Bluebird"), "secrets").invoke("q").text == "Project Bluebird"
        assert guarded(said("Project Bluebird"), PHRASES).invoke("q").text == "[phrase]"
    finally:
        set_llm_cache(None)


def test_all_that_the_model_is_sent_passes_the_hooks() -> None:  # contract 8.1, 8.6
    mail, model = "ann@millrace.initech.com", said("Hi")
    redacts = weir.HookSpec("pii", {"action": "redact", "prompt": "redact"})
    bad = {"type": "invalid_tool_call", "name": "f", "args": f"to {mail}", "id": "1", "error": None}
    before = AIMessage(
        [{"type": "text", "text": mail}, {"type": "thinking", "thinking": f"It is {mail}", "signature": "s"}],
        additional_kwargs={"reasoning_content": f"The user is {mail}"},
        invalid_tool_calls=[bad],
    )
    tools = [{"name": "f", "description": f"Writes to {mail}", "input_schema": {"type": "object"}}]
    guarded(model, redacts).invoke(["Hi", before, mail], stop=[mail], tools=tools)
    sent = f"{model.asked} {model.settings}"
    assert mail not in sent
    assert sent.count("[EMAIL_ADDRESS]") == 7


def test_a_refused_prompt_asks_no_model() -> None:
    model = said("Hi")
    refuses = weir.HookSpec("phrases", {"phrases": ["project bluebird"], "prompt": "refuse"})
    with pytest.raises(weir.RefusedError):
        guarded(model, refuses).invoke("Project Bluebird?")
    assert model.asked == []


class Breaks:
    def __call__(self, chunk: Chunk) -> Verdict:
        if "now" in chunk.pending:
            raise ValueError(chunk.pending)
        return emit(chunk.pending)


class Holds:
    """Holds all to the end, and keeps the kinds of its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[bool, bool]] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        self.calls.append((chunk.is_final, chunk.aborted))
        return emit(chunk.pending) if chunk.is_final else hold()


async def test_a_hook_that_fails_ends_its_answer_closed() -> None:  # contract 4.1
    model, released = said("one ", "two now", "three"), []
    with pytest.raises(weir.HookError):
        for chunk in guarded(model, Breaks()).stream("Hi"):
            released.append(chunk.text)
    assert (released, model.closings) == (["one "], 1)
    with pytest.raises(weir.HookError):
        await guarded(model, Breaks()).ainvoke("Hi")


def test_a_hook_that_ends_the_answer_and_a_caller_that_leaves_close_the_models_stream() -> None:
    model = said("This is ", "Project Bluebird", ", and", *["more"] * 50)
    message = sum_of(guarded(model, ENDS).stream("Hi"))
    assert message.content == "This is No."
    assert message.response_metadata == {"finish_reason": "content_filter", "stop_reason": "phrase"}
    assert (model.closings, model.given < 6) == (1, True)

    hook, model = Holds(), said("one", "two", KeyError("gone"))
    guarding = guarded(model, Breaks(), hook)
    tested = len(hook.calls)
    with pytest.raises(EngineError, match="KeyError"):
        list(guarding.stream("Hi"))
    assert [call for call in hook.calls[tested:] if call[0]] == [(True, True)]  # contract 2.6
    leaving = guarded(said("one ", "two"), Breaks())
    stream: Any = leaving.stream("Hi")
    assert next(stream).text == "one "
    stream.close()
    assert leaving.model.closings == 1


def test_a_block_that_no_hook_reads_is_refused() -> None:
    image = AIMessageChunk([{"type": "image", "url": "https://millrace.initech.com/a.png"}])
    with pytest.raises(RequestError, match="image"):
        guarded(said(image)).invoke("Hi", stream=True)


class LimitError(Exception):
    status_code = 429


@pytest.mark.parametrize(("error", "status"), [(LimitError("bluebird"), 429), (ValueError("bluebird"), 500)])
async def test_the_models_own_error_is_in_weirs_words(error: Exception, status: int) -> None:  # contract 5.3
    released: list[str] = []
    model = guarded(said("one ", error))
    with pytest.raises(EngineError) as whole:
        model.invoke("Hi")
    with pytest.raises(EngineError) as later:
        await model.ainvoke("Hi")
    with pytest.raises(EngineError) as streamed:
        released += [chunk.text for chunk in model.stream("Hi")]
    with pytest.raises(EngineError) as astreamed:
        async for chunk in model.astream("Hi"):
            released.append(chunk.text)
    for caught in (whole, later, streamed, astreamed):
        assert caught.value.status == status
        assert type(error).__name__ in str(caught.value)
        assert "bluebird" not in "".join(traceback.format_exception(caught.value))
    assert released == ["one "]
    assert model.model.closings == 4


def test_a_guarded_model_in_a_guarded_model_keeps_its_errors() -> None:
    inner = guarded(said("project bluebird"), weir.HookSpec(f"{__name__}:Fails"))
    with pytest.raises(weir.HookError):
        guarded(inner).invoke("Hi")


class Fails:
    def __call__(self, chunk: Chunk) -> Verdict:
        if "bluebird" in chunk.pending:
            raise ValueError(chunk.pending)
        return emit(chunk.pending)


class Listener(BaseCallbackHandler):
    def __init__(self) -> None:
        self.heard = ""

    def on_llm_new_token(self, token: Any, **_: Any) -> None:
        self.heard += str(token)


def test_an_agents_answers_and_events_are_guarded() -> None:
    call = {"type": "tool_call_chunk", "name": "send", "id": "c", "index": 0}
    model = said(
        AIMessageChunk("", tool_call_chunks=[{**call, "args": '{"to": "ann@millrace.initech.com"}'}])
    )
    sent = []

    def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        model.chunks = ["Project ", "Blue", "bird", "!"]
        return "sent"

    agent = create_agent(model, [send], middleware=[GuardMiddleware(weir.Guards(["pii", PHRASES]))])
    listener = Listener()
    given: Any = {"messages": [{"role": "user", "content": "Go"}]}
    streamed = [
        str(message.content)
        for message, _ in agent.stream(given, stream_mode="messages", config={"callbacks": [listener]})
    ]
    assert sent == ["[EMAIL_ADDRESS]"]
    assert "".join(streamed) == "sent[phrase]!"
    assert "bird" not in listener.heard.lower()


WORDS = st.sampled_from(["the ", "project ", "Project Blue", "bird", "blue", "bird ", "ann@mill", ".", " "])
GUARDS = weir.Guards(PHRASES)


@given(st.lists(WORDS, min_size=1, max_size=12))
@examples(200)
async def test_wherever_the_answer_is_cut_its_text_is_the_same(words: list[str]) -> None:
    expected, model = GUARDS.text("".join(words)).text, GuardedChatModel(model=said(*words), guards=GUARDS)
    assert "".join(chunk.text for chunk in model.stream("Hi")) == expected
    assert (await model.ainvoke("Hi")).content == expected


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_of_a_forbidden_span_gets_out(seed: int) -> None:
    """`make bench NAME=leaks_wrappers` tries more."""
    run(50, seed, by_langchain)
