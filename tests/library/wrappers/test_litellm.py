"""LiteLLM's guardrail hooks, guarded in its own process: `make test-library`."""

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import weir
from benchmarks.leaks_wrappers import run
from benchmarks.wrapped_answers import by_litellm
from engine.protocol import Delta, RequestError, ToolCall
from engine.upstream.sse import SSEDecoder
from tests.helpers import examples, make_token
from tests.library.wrappers.servers import chat_stream
from weir import Chunk, Verdict, emit, hold

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it asks the network
pytest.importorskip("litellm")

from litellm.exceptions import GuardrailRaisedException
from litellm.proxy.types_utils.utils import get_instance_fn
from litellm.types.guardrails import LitellmParams
from litellm.types.utils import ModelResponse, ModelResponseStream

import weir.litellm

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydantic")  # of LiteLLM's types
PHRASES = {"path": "phrases", "args": {"phrases": ["project bluebird"]}}
ENDS = {"path": "phrases", "args": {"phrases": ["project bluebird"], "action": "terminate", "text": "No."}}
RESTORES = {"path": "pii", "args": {"action": "redact", "prompt": "redact", "restore": True}}
CALL = ToolCall(0, "send")


def guardrail(*hooks: Any) -> weir.litellm.Guardrail:
    modes = ["pre_call", "post_call"]
    return weir.litellm.Guardrail(hooks=hooks, guardrail_name="weir", event_hook=modes, default_on=True)


def asked(content: str = "Hi", **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {"model": "m", "messages": messages, "litellm_call_id": "1", "metadata": {}, **fields}


class Chunks:
    """LiteLLM's stream of an answer, which says whether it was closed."""

    def __init__(self, deltas: Sequence[Delta], **fields: Any) -> None:
        events = SSEDecoder().feed(chat_stream(deltas, **fields))[:-1]
        self.chunks: list[Any] = [ModelResponseStream(**orjson.loads(event.data)) for event in events]
        self.given = self.closings = 0

    async def __aiter__(self) -> AsyncIterator[Any]:
        for chunk in self.chunks:
            self.given += 1
            yield chunk

    async def aclose(self) -> None:
        self.closings += 1


async def streamed(guard: weir.litellm.Guardrail, chunks: Any, data: dict[str, Any]) -> list[Any]:
    released = guard.async_post_call_streaming_iterator_hook(None, chunks, data)
    return [chunk.choices[0] async for chunk in released if chunk.choices]


def text_of(choices: list[Any]) -> str:
    return "".join(choice.delta.content or "" for choice in choices)


def said(*words: str) -> list[Delta]:
    deltas = [Delta(text=word, tokens=(make_token(word, i),)) for i, word in enumerate(words)]
    return [*deltas, Delta(finish_reason="stop")]


def whole(content: str, **message: Any) -> ModelResponse:
    given = {"role": "assistant", "content": content, **message}
    return ModelResponse(choices=[{"index": 0, "finish_reason": "stop", "message": given}])


def test_litellm_makes_it_from_the_configuration_of_the_page(tmp_path: Path) -> None:
    """As its `initialize_custom_guardrail`, which needs the packages of its proxy."""
    page = (Path(__file__).parents[3] / "docs" / "in-your-program.md").read_text()
    settings = yaml.safe_load(page.partition("```yaml\n# litellm.yaml\n")[2].partition("```")[0])
    params = LitellmParams(**settings["guardrails"][0]["litellm_params"])
    kind = get_instance_fn(params.guardrail, config_file_path=str(tmp_path / "config.yaml"))
    extra = params.model_dump(exclude_none=True)
    given = {name: value for name, value in extra.items() if name not in ("guardrail", "mode", "default_on")}
    made = kind(guardrail_name="weir", event_hook=params.mode, default_on=params.default_on, **given)
    assert kind is weir.litellm.Guardrail
    assert made.guards.text("ann@millrace.initech.com").text == "[EMAIL_ADDRESS]"
    with pytest.raises(ValueError, match="at least one hook"):
        weir.litellm.Guardrail(guardrail_name="weir")


async def test_values_of_the_prompt_come_back_in_the_answer() -> None:
    guard = guardrail(RESTORES)
    for stream in (False, True):
        data = asked("I am ann@millrace.initech.com", stream=stream)
        data = await guard.async_pre_call_hook(None, None, data, "acompletion")
        placeholder = data["messages"][0]["content"].removeprefix("I am ")
        assert placeholder.startswith("[EMAIL_ADDRESS_")
        if stream:
            text = text_of(await streamed(guard, Chunks(said(placeholder[:9], placeholder[9:])), data))
        else:
            answer = whole(f"{placeholder}, not bob@millrace.initech.com")
            text = (await guard.async_post_call_success_hook(data, None, answer)).choices[0].message.content
        assert text == "ann@millrace.initech.com" + ("" if stream else ", not [EMAIL_ADDRESS]")
    assert not guard._answers


async def test_every_channel_is_guarded() -> None:
    guard = guardrail("pii", PHRASES)
    deltas = [
        Delta(text="of project ", channel="reasoning"),
        Delta(text="bluebird", channel="reasoning"),
        *said("Project ", "Blue", "bird", "!")[:-1],
        Delta(text='{"to": "ann@millrace.', channel="tool_call", tool_call=CALL),
        Delta(text='initech.com"}', channel="tool_call", tool_call=CALL),
        Delta(finish_reason="tool_calls"),
    ]
    data = asked(logprobs=True, top_logprobs=1)
    choices = await streamed(guard, Chunks(deltas, logprobs=True, top_logprobs=1), data)
    shown = str(choices).lower()
    assert "bluebird" not in shown
    assert "blue" not in shown
    assert "millrace" not in shown
    assert text_of(choices) == "[phrase]!"
    assert choices[-1].finish_reason == "tool_calls"
    function = {"name": "send", "arguments": '{"to": "ann@millrace.initech.com"}'}
    calls = [{"id": "c", "type": "function", "function": function}]
    answer = whole("Hi", tool_calls=calls, reasoning_content="of project bluebird")
    message = (await guard.async_post_call_success_hook(asked(), None, answer)).choices[0].message
    assert message.tool_calls[0].function.arguments == '{"to": "[EMAIL_ADDRESS]"}'
    assert message.reasoning_content == "of [phrase]"


async def test_all_that_the_server_is_sent_passes_the_hooks() -> None:  # contract 8.1, 8.6
    mail = "ann@millrace.initech.com"
    guard = guardrail({"path": "pii", "args": {"action": "redact", "prompt": "redact"}})
    fields: dict[str, Any] = {
        "stop": [mail],
        "user": mail,
        "extra_body": {"to": mail},
        "functions": [{"description": mail}],
    }
    sent = await guard.async_pre_call_hook(None, None, asked(**fields), "completion")
    assert mail not in str(sent)
    assert str(sent).count("[EMAIL_ADDRESS]") == 4


async def test_a_whole_answer_has_nothing_that_no_hook_reads() -> None:  # contract 5.3
    mail = "ann@millrace.initech.com"
    answer = whole("Hi")
    answer.id = answer.model = answer.system_fingerprint = answer.citations = mail
    released = await guardrail("pii").async_post_call_success_hook(asked(), None, answer)
    assert mail not in str(released.model_dump())


async def test_calls_without_an_id_share_no_values() -> None:  # contract 9.3
    guard = guardrail(RESTORES)
    first = {**asked("I am ann@millrace.initech.com"), "litellm_call_id": None}
    sent = await guard.async_pre_call_hook(None, None, first, "completion")
    said_back = whole(sent["messages"][0]["content"])
    other = {**asked(), "litellm_call_id": None}
    released = await guard.async_post_call_success_hook(other, None, said_back)
    assert "ann@" not in str(released)


async def test_a_refused_prompt_is_an_error_400() -> None:
    refuses = {"path": "phrases", "args": {"phrases": ["project bluebird"], "prompt": "refuse"}}
    with pytest.raises(weir.RefusedError) as caught:
        await guardrail(refuses).async_pre_call_hook(None, None, asked("Project Bluebird?"), "acompletion")
    assert isinstance(caught.value, GuardrailRaisedException)
    assert (caught.value.status_code, caught.value.blocked_content) == (400, True)


class Breaks:
    def __call__(self, chunk: Chunk) -> Verdict:
        if "now" in chunk.pending:
            raise ValueError(chunk.pending)
        return emit(chunk.pending)


async def test_a_hook_that_fails_ends_its_answer_closed() -> None:  # contract 4.1
    guard, chunks, released = guardrail(Breaks()), Chunks(said("one ", "two now", "three")), []
    with pytest.raises(weir.HookError) as caught:
        async for chunk in guard.async_post_call_streaming_iterator_hook(None, chunks, asked()):
            released.append(chunk.choices[0])
    assert isinstance(caught.value, GuardrailRaisedException)
    assert text_of(released) == "one "
    assert "now" not in str(caught.value)
    assert chunks.closings == 1
    with pytest.raises(weir.HookError):
        await guard.async_post_call_success_hook(asked(), None, whole("now"))


class Holds:
    """Holds all to the end, and keeps the kinds of its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[bool, bool]] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        self.calls.append((chunk.is_final, chunk.aborted))
        return emit(chunk.pending) if chunk.is_final else hold()


async def test_a_hook_that_ends_the_answer_and_a_client_that_leaves_close_litellms_stream() -> None:
    chunks = Chunks(said("This is ", "Project Bluebird", ", and", *["more"] * 50))
    choices = await streamed(guardrail(ENDS), chunks, asked())
    assert (text_of(choices), choices[-1].finish_reason) == ("This is No.", "content_filter")
    assert chunks.closings == 1
    assert chunks.given < 6

    hook = Holds()
    guard, chunks = guardrail(PHRASES, hook), Chunks(said("one", "two"))
    tested = len(hook.calls)
    chunks.chunks.insert(2, KeyError("gone"))
    with pytest.raises(RequestError):
        await streamed(guard, chunks, asked())
    assert sum(is_final for is_final, _ in hook.calls[tested:]) == 1  # contract 2.6
    assert hook.calls[-1] == (True, True)
    assert chunks.closings == 1


async def test_what_no_hook_reads_is_refused() -> None:
    guard = guardrail(PHRASES)
    with pytest.raises(RequestError, match="embedding"):
        await guard.async_pre_call_hook(None, None, {"input": "Hi"}, "aembedding")
    with pytest.raises(RequestError, match="modalities"):
        await guard.async_pre_call_hook(None, None, asked(modalities=["audio"]), "acompletion")
    with pytest.raises(RequestError, match="dict"):
        await guard.async_post_call_success_hook(asked(), None, {"content": "Project Bluebird"})


async def test_a_call_that_fails_is_forgotten() -> None:
    guard = guardrail(PHRASES)
    data = await guard.async_pre_call_hook(None, None, asked(), "acompletion")
    await guard.async_post_call_failure_hook(data, ValueError("gone"), None)
    assert not guard._answers


WORDS = st.sampled_from(["the ", "project ", "Project Blue", "bird", "blue", "bird ", "ann@mill", ".", " "])
GUARD = guardrail(PHRASES)


@given(st.lists(WORDS, max_size=12))
@examples(200)
async def test_wherever_the_answer_is_cut_its_text_is_the_same(words: list[str]) -> None:
    expected = GUARD.guards.text("".join(words)).text
    assert text_of(await streamed(GUARD, Chunks(said(*words)), asked())) == expected
    answer = await GUARD.async_post_call_success_hook(asked(), None, whole("".join(words)))
    assert (answer.choices[0].message.content or "") == expected


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_of_a_forbidden_span_gets_out(seed: int) -> None:
    """`make bench NAME=leaks_wrappers` tries more."""
    run(50, seed, by_litellm)
