"""Anthropic's SDK, guarded: it gets what it would get of the proxy, and nothing else."""

from collections.abc import Sequence
from typing import Any

import anthropic
import httpx2
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weir
import weir.anthropic
from benchmarks.leaks_wrappers import run
from benchmarks.wrapped_answers import by_anthropic
from engine.upstream.messages.engine import MessagesEngine
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from tests.engine.upstream.messages.asked import answer, block
from tests.helpers import ScriptedEngine, examples
from tests.library.wrappers.servers import Server
from tests.library.wrappers.test_openai import DELTAS, ENDS, PHRASES, Breaks, Holds, seen
from tests.proxy.conftest import Serve
from tests.proxy.conftest import serve as serve

USER: list[Any] = [{"role": "user", "content": "Hi"}]
GIVEN: Any = {"model": "m", "max_tokens": 99, "messages": USER}
TOOLS: list[Any] = [{"name": "send", "input_schema": {"type": "object"}}]


def stream_of(events: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events)


def said(*words: str) -> bytes:
    return stream_of(answer(block(0, "text", *words)))


def client(server: Server, *hooks: Any) -> anthropic.Anthropic:
    http = weir.anthropic.http_client(weir.Guards([*(hooks or [PHRASES])]), transport=server)
    return anthropic.Anthropic(api_key="key", http_client=http)


def later_client(server: Server, *hooks: Any) -> anthropic.AsyncAnthropic:
    http = weir.anthropic.async_http_client(weir.Guards([*(hooks or [PHRASES])]), transport=server)
    return anthropic.AsyncAnthropic(api_key="key", http_client=http)


async def test_the_answer_is_that_of_the_proxy(serve: Serve) -> None:
    server = await serve(ScriptedEngine(lambda _: DELTAS))
    hooks = [Pii(), Phrases(["project bluebird"])]
    proxy = await serve(MessagesEngine(server.url), *hooks)
    http = weir.anthropic.async_http_client(weir.Guards([*hooks]))
    async with (
        anthropic.AsyncAnthropic(api_key="k", base_url=proxy.url) as by_proxy,
        anthropic.AsyncAnthropic(api_key="k", base_url=server.url, http_client=http) as guarded,
    ):
        whole = [
            seen((await sdk.messages.create(**GIVEN, tools=TOOLS)).model_dump(mode="json"))
            for sdk in (by_proxy, guarded)
        ]
        assert whole[0] == whole[1]
        kinds = [one["type"] for one in whole[1]["content"]]
        assert kinds == ["thinking", "text", "tool_use"]
        assert "luebird" not in str(whole[1])
        for sdk in (by_proxy, guarded):
            async with sdk.messages.stream(**GIVEN, tools=TOOLS) as stream:
                text = "".join([piece async for piece in stream.text_stream])
                assert text == whole[1]["content"][1]["text"]
                streamed = seen((await stream.get_final_message()).model_dump(mode="json"))
            assert streamed["content"] == whole[1]["content"]


async def test_a_client_without_an_event_loop_is_guarded_too() -> None:
    blocks = [
        block(0, "thinking", "I think of project ", "bluebird"),
        block(1, "text", "Project Blue", "bird is ", "ann@mill", "race.initech.com"),
        block(2, "tool_use", '{"to": "ann@millrace.', 'initech.com"}', name="send"),
    ]
    server = Server(stream_of(answer(*blocks, reason="tool_use")))
    sdk = client(server, "pii", PHRASES)
    content = sdk.messages.create(**GIVEN, tools=TOOLS).content
    thinking, text, call = [one.model_dump() for one in content]
    assert thinking["thinking"] == "I think of [phrase]"
    assert text["text"] == "[phrase] is [EMAIL_ADDRESS]"
    assert call["input"] == {"to": "[EMAIL_ADDRESS]"}
    with sdk.messages.stream(**GIVEN, tools=TOOLS) as stream:
        assert "".join(stream.text_stream) == text["text"]
    again = await later_client(server, "pii", PHRASES).messages.create(**GIVEN, tools=TOOLS)
    assert again.content[1] == content[1]


def test_the_server_gets_the_prompt_that_hooks_let_through() -> None:
    restores = weir.HookSpec("pii", {"action": "redact", "prompt": "redact", "restore": True})
    server = Server(said("Hi"))
    sdk = client(server, restores)
    given: Any = {
        **GIVEN,
        "system": [{"type": "text", "text": "Be nice.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "I am ann@millrace.initech.com"}],
    }
    sdk.messages.create(**given)
    placeholder = server.body["messages"][0]["content"].removeprefix("I am ")
    assert placeholder.startswith("[EMAIL_ADDRESS_")
    assert server.body["system"] == given["system"]  # the caller's own writing, for the cache
    server.pieces = [said("You are ", placeholder[:9], placeholder[9:])]
    content = sdk.messages.create(**given, extra_headers={"anthropic-beta": "one,two"}).content
    assert [one.text for one in content if one.type == "text"] == ["You are ann@millrace.initech.com"]
    assert server.asked[-1].headers["anthropic-beta"] == "one,two"
    assert server.asked[-1].url == "https://api.anthropic.com/v1/messages"


async def test_a_refused_prompt_asks_no_server() -> None:
    refuses = weir.HookSpec("phrases", {"phrases": ["project bluebird"], "prompt": "refuse"})
    server = Server(said("Hi"))
    given: Any = {**GIVEN, "messages": [{"role": "user", "content": "Project Bluebird?"}]}
    with pytest.raises(weir.RefusedError, match="phrase"):
        client(server, refuses).messages.create(**given)
    with pytest.raises(anthropic.AnthropicError) as caught:
        await later_client(server, refuses).messages.create(**given)
    assert isinstance(caught.value, weir.anthropic.RefusedError)
    assert server.asked == []


async def test_a_hook_that_fails_ends_its_answer_closed_and_is_not_asked_again() -> None:  # contract 4.1
    server = Server(said("one ", "two now", "three"), range(0, 5000, 40))
    with pytest.raises(weir.HookError):
        client(server, Breaks()).messages.create(**GIVEN)
    released = []
    with pytest.raises(weir.HookError), client(server, Breaks()).messages.stream(**GIVEN) as stream:
        released.extend(stream.text_stream)
    assert released == ["one "]
    with pytest.raises(weir.HookError):
        await later_client(server, Breaks()).messages.create(**GIVEN)
    assert len(server.asked) == server.closings == 3


async def test_a_hook_that_ends_the_answer_closes_the_servers() -> None:  # contract 3.3
    long = said("This is ", "Project Bluebird", ", and", *["more"] * 100)
    server = Server(long, range(0, len(long), 100))
    message = client(server, ENDS).messages.create(**GIVEN)
    assert message.stop_reason == "refusal"
    assert [one.text for one in message.content if one.type == "text"] == ["This is No."]
    async with later_client(server, ENDS).messages.stream(**GIVEN) as stream:
        assert "".join([piece async for piece in stream.text_stream]) == "This is No."
    assert server.closings == 2
    assert server.given < len(server.pieces)


async def test_a_caller_that_leaves_closes_the_servers_answer_and_gives_one_last_call() -> None:
    hook, server = Holds(), Server(said("one", "two", "three"), [700])  # contract 2.6
    sdk = later_client(server, hook)
    tested = len(hook.calls)
    async with sdk.messages.stream(**GIVEN) as stream:
        async for _ in stream:
            break
    assert server.closings == 1
    assert sum(is_final for is_final, _ in hook.calls[tested:]) <= 1


def test_what_no_hook_reads_is_refused() -> None:
    server = Server(b"{}")
    with pytest.raises(anthropic.NotFoundError, match="No hook reads"):
        client(server).messages.count_tokens(model="m", messages=USER)
    with pytest.raises(anthropic.NotFoundError, match="No hook reads"):
        client(server).messages.batches.create(requests=[])
    assert server.asked == []


def test_a_servers_error_keeps_its_status_and_not_its_words() -> None:  # contract 5.3
    body = b'{"type": "error", "error": {"type": "rate_limit_error", "message": "Project Bluebird"}}'
    sdk = client(Server(body, status=429)).with_options(max_retries=0)
    with pytest.raises(anthropic.RateLimitError) as caught:
        sdk.messages.create(**GIVEN)
    assert "Bluebird" not in str(caught.value)


def test_an_answer_that_breaks_off_is_an_error_of_the_sdk() -> None:
    sdk = client(Server(stream_of([*answer(block(0, "text", "one"))[:-1]]))).with_options(max_retries=0)
    with pytest.raises(anthropic.InternalServerError, match="broke off"):
        sdk.messages.create(**GIVEN)
    with pytest.raises(anthropic.APIStatusError, match="broke off"), sdk.messages.stream(**GIVEN) as stream:
        stream.until_done()


WORDS = st.sampled_from(["the ", "project ", "Project Blue", "bird", "blue", "bird ", "ann@mill", ".", " "])
GUARDS = weir.Guards(PHRASES)


@given(st.lists(WORDS, max_size=12), st.lists(st.integers(0, 3000), max_size=30))
@examples(200)
async def test_wherever_the_servers_bytes_are_cut_the_text_is_the_same(
    words: list[str], cuts: list[int]
) -> None:
    expected, server = GUARDS.text("".join(words)).text, Server(said(*words), cuts)
    http = weir.anthropic.http_client(GUARDS, transport=server)
    with anthropic.Anthropic(api_key="k", http_client=http) as sdk, sdk.messages.stream(**GIVEN) as stream:
        assert "".join(stream.text_stream) == expected
    later: httpx2.AsyncClient = weir.anthropic.async_http_client(GUARDS, transport=server)
    async with anthropic.AsyncAnthropic(api_key="k", http_client=later) as sdk_later:
        whole = await sdk_later.messages.create(**GIVEN)
    assert "".join(one.text for one in whole.content if one.type == "text") == expected
    assert server.closings == len(server.asked) == 2


def test_nothing_of_a_forbidden_span_gets_out() -> None:
    """`make bench NAME=leaks_wrappers` tries more."""
    run(150, 2, by_anthropic)
