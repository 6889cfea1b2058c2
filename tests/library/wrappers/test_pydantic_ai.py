"""Models of Pydantic AI, guarded: `make test-library`."""

import traceback
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weir
from benchmarks.leaks_wrappers import run
from benchmarks.wrapped_answers import by_pydantic_ai
from engine.protocol import RequestError
from tests.helpers import examples
from weir import Chunk, Verdict, emit

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, ImageUrl
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel

from weir.pydantic_ai import GuardedModel

PHRASES = weir.HookSpec("phrases", {"phrases": ["project bluebird"]})
ENDS = weir.HookSpec("phrases", {"phrases": ["project bluebird"], "action": "terminate", "text": "No."})


class Said:
    """A model that says the pieces, and counts those that it gave."""

    def __init__(self, *pieces: Any) -> None:
        self.pieces = pieces
        self.asked: list[Any] = []
        self.given = self.closings = 0

    def whole(self, messages: Any, _: Any) -> ModelResponse:
        self.asked.append(messages)
        return ModelResponse(parts=[TextPart("".join(self.pieces))])

    async def stream(self, messages: Any, _: Any) -> Any:
        self.asked.append(messages)
        try:
            for piece in self.pieces:
                self.given += 1
                yield piece
        finally:
            self.closings += 1


def agent_of(said: Said, *hooks: Any) -> Agent:
    model = FunctionModel(said.whole, stream_function=said.stream)
    return Agent(GuardedModel(model, weir.Guards([*(hooks or [PHRASES])])))


async def streamed(agent: Agent, prompt: Any = "Hi") -> str:
    async with agent.run_stream(prompt) as result:
        return "".join([piece async for piece in result.stream_text(delta=True, debounce_by=None)])


async def test_a_model_is_guarded_streamed_and_whole() -> None:
    agent = agent_of(Said("Project ", "Blue", "bird is ", "ann@mill", "race.initech.com"), "pii", PHRASES)
    assert (await agent.run("Hi")).output == "[phrase] is [EMAIL_ADDRESS]"
    assert await streamed(agent) == "[phrase] is [EMAIL_ADDRESS]"


async def test_thinking_and_calls_are_guarded() -> None:
    sent: list[str] = []

    def whole(messages: Any, _: Any) -> ModelResponse:
        call = ToolCallPart("send", {"to": "ann@millrace.initech.com"}, tool_call_id="theirs")
        is_first = len(messages) == 1
        return ModelResponse(
            parts=[ThinkingPart("project bluebird"), call] if is_first else [TextPart("Sent")]
        )

    async def stream(messages: Any, _: Any) -> Any:
        if len(messages) > 1:
            yield "Sent"
            return
        yield {0: DeltaThinkingPart(content="project ")}
        yield {0: DeltaThinkingPart(content="bluebird")}
        yield {1: DeltaToolCall(name="send", json_args='{"to": "ann@mill', tool_call_id="theirs")}
        yield {1: DeltaToolCall(json_args='race.initech.com"}')}

    model = GuardedModel(FunctionModel(whole, stream_function=stream), weir.Guards(["pii", PHRASES]))
    agent = Agent(model)

    @agent.tool_plain
    def send(to: str) -> str:
        sent.append(to)
        return "ok"

    result = await agent.run("Hi")
    assert "bluebird" not in str(result.all_messages())
    assert "theirs" not in str(result.all_messages())
    assert await streamed(agent) == "Sent"
    assert sent == ["[EMAIL_ADDRESS]"] * 2


async def test_values_of_the_prompt_come_back_in_the_answer() -> None:
    restores = weir.HookSpec("pii", {"action": "redact", "prompt": "redact", "restore": True})
    said = Said("x")
    agent = agent_of(said, restores)
    await agent.run(["I am ", "ann@millrace.initech.com"])
    placeholder = said.asked[-1][0].parts[-1].content[1]
    assert placeholder.startswith("[EMAIL_ADDRESS_")
    said.pieces = ("You are ", placeholder[:9], placeholder[9:])
    assert await streamed(agent, "ann@millrace.initech.com") == "You are ann@millrace.initech.com"


async def test_instructions_and_tools_pass_the_hooks() -> None:  # contract 8.1, 8.6
    said, seen = Said("Hi"), []

    def answers(messages: Any, info: Any) -> ModelResponse:
        seen.append((messages, info))
        return said.whole(messages, info)

    redacts = weir.HookSpec("pii", {"action": "redact", "prompt": "redact"})
    agent: Agent = Agent(
        GuardedModel(FunctionModel(answers), weir.Guards([redacts])),
        instructions="The owner is ann@millrace.initech.com",
    )

    @agent.tool_plain(description="Writes to ann@millrace.initech.com")
    def write(text: str) -> str:
        return text

    settings: Any = {
        "stop_sequences": ["ann@millrace.initech.com"],
        "extra_body": {"to": "ann@millrace.initech.com"},
    }
    await agent.run("Hi", model_settings=settings)
    assert str(seen).count("[EMAIL_ADDRESS]") >= 4
    assert "ann@millrace" not in str(seen)


async def test_ids_and_details_of_the_history_pass_the_hooks() -> None:  # contract 8.1, 8.6
    said, mail = Said("Hi"), "ann@millrace.initech.com"
    details = {"to": mail, "at": datetime(2026, 1, 1, tzinfo=UTC)}
    history: Any = [
        ModelRequest.user_text_prompt("Hi"),
        ModelResponse(
            parts=[
                ThinkingPart("so", id=f"t-{mail}", signature=f"s {mail}", provider_details={"raw": [mail]}),
                TextPart("one", id=f"i-{mail}", provider_details={"n": 1}),
                ToolCallPart("send", {}, tool_call_id=f"c {mail}"),
            ],
            provider_response_id=f"r {mail}",
            provider_details=details,
        ),
        ModelRequest(parts=[ToolReturnPart("send", "ok", tool_call_id=f"c {mail}")]),
    ]
    redacts = weir.HookSpec("pii", {"action": "redact", "prompt": "redact"})
    await agent_of(said, redacts).run("Hi again", message_history=history)
    (asked,) = said.asked
    assert mail not in str(asked)
    thinking, text, call = asked[1].parts
    assert thinking.provider_details == {"raw": ["[EMAIL_ADDRESS]"]}
    assert text.provider_details == {"n": 1}
    assert call.tool_call_id == asked[2].parts[0].tool_call_id == "c [EMAIL_ADDRESS]"
    assert asked[1].provider_response_id == "r [EMAIL_ADDRESS]"
    assert asked[0] == history[0]
    refuses = weir.HookSpec("pii", {"prompt": "refuse"})
    with pytest.raises(weir.RefusedError):
        await agent_of(said, refuses).run("Hi again", message_history=history)
    odd: Any = [ModelResponse(parts=[TextPart("one", provider_details={"any": object()})])]
    with pytest.raises(RequestError, match="no JSON"):
        await agent_of(said, redacts).run("Hi again", message_history=[history[0], *odd])


@pytest.mark.parametrize("error", [ModelHTTPError(429, "m", {"said": "bluebird"}), ValueError("bluebird")])
async def test_the_models_own_error_is_in_weirs_words(error: Exception) -> None:  # contract 5.3
    def fails(_: Any, __: Any) -> ModelResponse:
        raise error

    async def breaks(_: Any, __: Any) -> Any:
        yield "one "
        raise error

    async def is_broken(_: Any, __: Any) -> Any:
        raise error
        yield

    guards, streamed_text = weir.Guards(PHRASES), ""
    agent = Agent(GuardedModel(FunctionModel(fails, stream_function=breaks), guards))
    with pytest.raises(ModelAPIError) as whole:
        await agent.run("Hi")
    with pytest.raises(ModelAPIError) as later:
        async with agent.run_stream("Hi") as result:
            async for piece in result.stream_text(delta=True, debounce_by=None):
                streamed_text += piece
    with pytest.raises(ModelAPIError) as first:
        await streamed(Agent(GuardedModel(FunctionModel(fails, stream_function=is_broken), guards)))
    for caught in (whole, later, first):
        assert "bluebird" not in "".join(traceback.format_exception(caught.value))
        assert "bluebird" not in repr(vars(caught.value))
        assert isinstance(caught.value, ModelHTTPError) == isinstance(error, ModelHTTPError)
    assert streamed_text == "one "


async def test_a_refused_prompt_asks_no_model() -> None:
    said = Said("Hi")
    refuses = weir.HookSpec("phrases", {"phrases": ["project bluebird"], "prompt": "refuse"})
    with pytest.raises(weir.RefusedError):
        await agent_of(said, refuses).run("Project Bluebird?")
    assert said.asked == []


class Breaks:
    def __call__(self, chunk: Chunk) -> Verdict:
        if "now" in chunk.pending:
            raise ValueError(chunk.pending)
        return emit(chunk.pending)


async def test_a_hook_that_fails_ends_its_answer_closed() -> None:  # contract 4.1
    agent = agent_of(Said("one ", "two now", "three"), Breaks())
    with pytest.raises(weir.HookError):
        await agent.run("Hi")
    with pytest.raises(weir.HookError):
        await streamed(agent)


async def test_a_hook_that_ends_the_answer_stops_the_model() -> None:
    said = Said("This is ", "Project Bluebird", ", and", *["more"] * 50)
    assert await streamed(agent_of(said, ENDS)) == "This is No."
    assert said.given < 10


async def test_what_no_hook_reads_is_refused() -> None:
    said = Said("Hi")
    with pytest.raises(RequestError, match="ImageUrl"):
        await agent_of(said).run(["Hi", ImageUrl("https://millrace.initech.com/a.png")])
    assert said.asked == []


WORDS = st.sampled_from(["the ", "project ", "Project Blue", "bird", "blue", "bird ", "ann@mill", "."])
GUARDS = weir.Guards(PHRASES)


@given(st.lists(WORDS, min_size=1, max_size=12))
@examples(100)
async def test_wherever_the_answer_is_cut_its_text_is_the_same(words: list[str]) -> None:
    expected, said = GUARDS.text("".join(words)).text, Said(*words)
    agent = Agent(GuardedModel(FunctionModel(said.whole, stream_function=said.stream), GUARDS))
    assert (await agent.run("Hi")).output == expected
    assert await streamed(agent) == expected


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_of_a_forbidden_span_gets_out(seed: int) -> None:
    """`make bench NAME=leaks_wrappers` tries more."""
    run(50, seed, by_pydantic_ai)
