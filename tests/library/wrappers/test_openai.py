"""OpenAI's SDK, guarded: it gets what it would get of the proxy, and nothing else."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weir
import weir.openai
from benchmarks.leaks_wrappers import run
from benchmarks.wrapped_answers import by_openai
from engine.protocol import Delta, ToolCall
from engine.upstream.openai.engine import OpenAIEngine
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from tests.helpers import ScriptedEngine, examples, make_token
from tests.library.wrappers.servers import Server, chat_stream
from tests.proxy.conftest import Serve
from tests.proxy.conftest import serve as serve
from weir import Chunk, Verdict, emit, hold

PHRASES = weir.HookSpec("phrases", {"phrases": ["project bluebird"]})
ENDS = weir.HookSpec("phrases", {"phrases": ["project bluebird"], "action": "terminate", "text": "No."})
USER: list[Any] = [{"role": "user", "content": "Hi"}]
CALL = ToolCall(0, "send")


def said(*words: str) -> list[Delta]:
    deltas = [Delta(text=word, tokens=(make_token(word, i),)) for i, word in enumerate(words)]
    return [*deltas, Delta(finish_reason="stop")]


def client(server: Server, *hooks: Any, **settings: Any) -> openai.OpenAI:
    guards = weir.Guards([*(hooks or [PHRASES])])
    http = weir.openai.http_client(guards, transport=server, **settings)
    return openai.OpenAI(api_key="key", http_client=http)


def later_client(server: Server, *hooks: Any) -> openai.AsyncOpenAI:
    guards = weir.Guards([*(hooks or [PHRASES])])
    http = weir.openai.async_http_client(guards, transport=server)
    return openai.AsyncOpenAI(api_key="key", http_client=http)


DELTAS = [
    Delta(text="I think of project ", channel="reasoning"),
    Delta(text="bluebird", channel="reasoning"),
    *said("Project ", "Blue", "bird", " is ", "ann@mill", "race.initech.com", ".")[:-1],
    Delta(text='{"to": "ann@millrace.', channel="tool_call", tool_call=CALL),
    Delta(text='initech.com"}', channel="tool_call", tool_call=CALL),
    Delta(finish_reason="tool_calls"),
]


def seen(answer: Any) -> Any:
    """The answer without what each has of its own: ids and times."""
    if isinstance(answer, dict):
        own = ("id", "call_id", "item_id", "created", "created_at", "store")
        return {name: seen(value) for name, value in answer.items() if name not in own}
    return [*map(seen, answer)] if isinstance(answer, list) else answer


Ask = Callable[[openai.AsyncOpenAI, bool], Any]
TOOLS: list[Any] = [{"type": "function", "function": {"name": "send"}}]
ASKS: dict[str, Ask] = {
    "chat": lambda sdk, stream: sdk.chat.completions.create(
        model="m", messages=USER, logprobs=True, top_logprobs=1, tools=TOOLS, stream=stream
    ),
    "completion": lambda sdk, stream: sdk.completions.create(
        model="m", prompt="Hi", logprobs=1, max_tokens=99, stream=stream
    ),
    "response": lambda sdk, stream: sdk.responses.create(
        model="m",
        input="Hi",
        include=["message.output_text.logprobs"],
        top_logprobs=1,
        tools=[{"type": "function", "name": "send", "parameters": {}, "strict": False}],
        stream=stream,
    ),
}


@pytest.mark.parametrize("kind", ASKS)
async def test_the_answer_is_that_of_the_proxy(serve: Serve, kind: str) -> None:
    deltas = DELTAS if kind != "completion" else said("Project ", "Blue", "bird", " is ", "it")
    server = await serve(ScriptedEngine(lambda _: deltas))
    hooks = [Pii(), Phrases(["project bluebird"])]
    proxy = await serve(OpenAIEngine(server.url), *hooks)
    http = weir.openai.async_http_client(weir.Guards([Pii(), Phrases(["project bluebird"])]))
    async with (
        openai.AsyncOpenAI(api_key="k", base_url=f"{proxy.url}/v1") as by_proxy,
        openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1", http_client=http) as guarded,
    ):
        whole = [seen((await ASKS[kind](sdk, False)).model_dump()) for sdk in (by_proxy, guarded)]
        assert whole[0] == whole[1]
        assert "luebird" not in str(whole[1])
        assert "millrace" not in str(whole[1])
        streams = [[one.model_dump() async for one in await ASKS[kind](s, True)] for s in (by_proxy, guarded)]
        assert "luebird" not in str(streams[1])
        assert text_of(streams[1], kind) == text_of(streams[0], kind) != ""


def text_of(chunks: list[dict[str, Any]], kind: str) -> str:
    if kind == "response":
        return "".join(one["delta"] for one in chunks if one["type"].endswith(".delta"))
    if kind == "completion":
        return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])
    return "".join(str(choice["delta"].get("content") or "") for c in chunks for choice in c["choices"])


def test_a_client_without_an_event_loop_is_guarded_too() -> None:
    sdk = client(Server(chat_stream(DELTAS)), "pii", PHRASES)
    message = sdk.chat.completions.create(model="m", messages=USER).choices[0].message
    assert message.content == "[phrase] is [EMAIL_ADDRESS]."
    (call,) = message.tool_calls or ()
    assert call.type == "function"
    assert call.function.arguments == '{"to": "[EMAIL_ADDRESS]"}'
    with sdk.chat.completions.create(model="m", messages=USER, stream=True) as stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == message.content
    with sdk.responses.stream(model="m", input="Hi") as events:
        for _ in events:
            pass
        assert events.get_final_response().output_text == text


def test_the_server_gets_the_prompt_that_hooks_let_through() -> None:
    restores = weir.HookSpec("pii", {"action": "redact", "prompt": "redact", "restore": True})
    server = Server(b"")
    sdk = client(server, restores)
    messages: list[Any] = [{"role": "user", "content": "I am ann@millrace.initech.com"}]
    with pytest.raises(openai.APIStatusError):  # it answers nothing
        sdk.with_options(max_retries=0).chat.completions.create(model="m", messages=messages)
    placeholder = server.body["messages"][0]["content"].removeprefix("I am ")
    assert placeholder.startswith("[EMAIL_ADDRESS_")
    server.pieces = [chat_stream(said("You are ", placeholder[:9], placeholder[9:]))]
    answer = sdk.chat.completions.create(model="m", messages=messages, extra_headers={"x-own": "1"})
    assert answer.choices[0].message.content == "You are ann@millrace.initech.com"
    assert server.asked[-1].headers["authorization"] == "Bearer key"
    assert server.asked[-1].headers["x-own"] == "1"
    assert server.asked[-1].url == "https://api.openai.com/v1/chat/completions"


def test_fields_that_no_hook_reads_do_not_reach_the_server() -> None:  # contract 8.6
    server = Server(b"")
    sdk = client(server, weir.HookSpec("pii", {"action": "redact", "prompt": "redact"}))
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    mail = "ann@millrace.initech.com"
    with pytest.raises(openai.APIStatusError):  # it answers nothing
        sdk.with_options(max_retries=0).chat.completions.create(
            model="m", messages=messages, user=mail, metadata={"mail": mail}
        )
    assert mail not in str(server.body)
    assert server.body["user"]


async def test_a_refused_prompt_asks_no_server() -> None:
    refuses = weir.HookSpec("phrases", {"phrases": ["project bluebird"], "prompt": "refuse"})
    server = Server(chat_stream(said("Hi")))
    messages: list[Any] = [{"role": "user", "content": "Project Bluebird?"}]
    with pytest.raises(weir.RefusedError) as caught:
        client(server, refuses).chat.completions.create(model="m", messages=messages)
    assert (caught.value.reason, caught.value.place) == ("phrase", "messages[0].content")
    with pytest.raises(openai.OpenAIError) as again:
        await later_client(server, refuses).responses.create(model="m", input="Project Bluebird?")
    assert isinstance(again.value, weir.openai.RefusedError)
    assert server.asked == []


class Breaks:
    def __init__(self) -> None:
        self.finals = 0

    def __call__(self, chunk: Chunk) -> Verdict:
        self.finals += chunk.is_final
        if "now" in chunk.pending:
            raise ValueError(chunk.pending)
        return emit(chunk.pending)


async def test_a_hook_that_fails_ends_its_answer_closed_and_is_not_asked_again() -> None:  # contract 4.1
    server = Server(chat_stream(said("one ", "two now", "three")), range(0, 5000, 40))
    for stream in (False, True):
        released = ""
        with pytest.raises(weir.HookError) as caught:
            made: Any = client(server, Breaks()).chat.completions.create(
                model="m", messages=USER, stream=stream
            )
            for chunk in made:
                released += chunk.choices[0].delta.content or ""
        assert "now" not in str(caught.value)
        assert released == ("one " if stream else "")
        with pytest.raises(weir.HookError):
            asked = later_client(server, Breaks()).chat.completions.create(
                model="m", messages=USER, stream=stream
            )
            async for _ in await asked:
                pass
    assert len(server.asked) == server.closings == 4


async def test_a_hook_that_ends_the_answer_closes_the_servers() -> None:  # contract 3.3
    long = chat_stream(said("This is ", "Project Bluebird", ", and", *["more"] * 100))
    server = Server(long, range(0, len(long), 100))
    for stream in (False, True):
        made: Any = client(server, ENDS).chat.completions.create(model="m", messages=USER, stream=stream)
        choices = [chunk.choices[0] for chunk in made] if stream else made.choices
        assert choices[-1].finish_reason == "content_filter"
        assert choices[-1].stop_reason == "phrase"
    assert server.closings == 2
    assert server.given < len(server.pieces)
    whole = await later_client(server, ENDS).chat.completions.create(model="m", messages=USER)
    assert whole.choices[0].message.content == "This is No."
    assert server.closings == 3


class Holds:
    """Holds all to the end, and keeps the kinds of its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[bool, bool]] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        self.calls.append((chunk.is_final, chunk.aborted))
        return emit(chunk.pending) if chunk.is_final else hold()


def test_a_caller_that_leaves_closes_the_servers_answer_and_gives_one_last_call() -> None:
    hook, server = Holds(), Server(b"")  # contract 2.6
    sdk = client(server, hook)
    tested = len(hook.calls)
    sdk.chat.completions.create(model="m", messages=USER, stream=True).close()
    assert server.closings == 1
    assert hook.calls[tested:] == []  # no stream was open

    server.pieces = [chat_stream(said("one", "two"))[:-60], httpx2.ReadError("gone")]
    with pytest.raises((httpx2.ReadError, openai.APIConnectionError)):
        for _ in sdk.chat.completions.create(model="m", messages=USER, stream=True):
            pass
    assert hook.calls[-1] == (True, True)
    assert sum(is_final for is_final, _ in hook.calls[tested:]) == 1
    assert server.closings == 2


async def test_a_cancelled_task_closes_the_servers_answer() -> None:
    hook, server = Holds(), Server(chat_stream(said("one", "two", "three")), [300])
    server.stuck_after = 1
    asked: Any = later_client(server, hook).chat.completions.create(model="m", messages=USER)
    asking = asyncio.get_running_loop().create_task(asked)
    await server.is_stuck.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert server.closings == 1
    assert hook.calls[-1] == (True, True)


@pytest.mark.parametrize(
    "ask",
    [
        lambda sdk: sdk.embeddings.create(model="m", input="Hi"),
        lambda sdk: sdk.responses.retrieve("resp_1"),
        lambda sdk: sdk.images.generate(prompt="Hi"),
        lambda sdk: sdk.moderations.create(input="Hi"),
    ],
)
def test_what_no_hook_reads_is_refused(ask: Callable[[openai.OpenAI], Any]) -> None:
    server = Server(b"{}")
    with pytest.raises(openai.NotFoundError, match="No hook reads"):
        ask(client(server))
    assert server.asked == []


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"extra_body": {"echo": True}}, "echo"),
        ({"temperature": 7}, "temperature"),
    ],
)
def test_a_field_that_hooks_could_not_follow_is_refused(fields: dict[str, Any], named: str) -> None:
    server = Server(b"")
    with pytest.raises(openai.BadRequestError, match=named):
        client(server).chat.completions.create(model="m", messages=USER, **fields)
    assert server.asked == []


def test_a_conversation_that_only_the_server_has_is_refused() -> None:
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client(Server(b"")).responses.create(model="m", input="Hi", previous_response_id="resp_1")


def test_a_servers_error_keeps_its_status_and_not_its_words() -> None:  # contract 5.3
    for status, kind in ((401, openai.AuthenticationError), (429, openai.RateLimitError)):
        server = Server(b'{"error": {"message": "you said Project Bluebird"}}', status=status)
        with pytest.raises(kind) as caught:
            client(server).with_options(max_retries=0).chat.completions.create(model="m", messages=USER)
        assert "Bluebird" not in str(caught.value)
        assert caught.value.request_id == "theirs"


@pytest.mark.parametrize("status", [200, 429])
@pytest.mark.parametrize(
    ("name", "passes", "stays"),
    [
        ("x-request-id", "req_01.a:b-C", "Project Bluebird"),
        ("x-request-id", "a" * 128, "a" * 129),
        ("retry-after", "1.5", "1 bluebird"),
        ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT", "Bluebird, 21 Oct 2026 07:28:00 GMT"),
        ("retry-after-ms", "20", "project"),
        ("x-should-retry", "false", "bluebird"),
        ("x-else", "", "1"),
    ],
)
def test_a_servers_headers_pass_in_their_own_form_only(
    name: str, passes: str, stays: str, status: int
) -> None:
    for value, is_passed in ((passes, bool(passes)), (stays, False), (stays.encode() + b"\xe9", False)):
        server = Server(chat_stream(said("Hi.")), status=status)
        server.headers = [(b"content-type", b"text/event-stream"), (name, value)]
        http = weir.openai.http_client(weir.Guards(PHRASES), transport=server)
        got = http.post("https://api.openai.com/v1/chat/completions", json={"model": "m", "messages": USER})
        assert (got.status_code, name in got.headers) == (status, is_passed)


def test_an_answer_that_breaks_off_is_an_error_of_the_sdk() -> None:
    cut = b"\n\n".join(chat_stream(said("one ", "project blue", "three")).split(b"\n\n")[:2]) + b"\n\n"
    sdk = client(Server(cut)).with_options(max_retries=0)
    with pytest.raises(openai.InternalServerError, match="broke off"):
        sdk.chat.completions.create(model="m", messages=USER)
    released = ""
    with pytest.raises(openai.APIError, match="broke off"):
        for chunk in sdk.chat.completions.create(model="m", messages=USER, stream=True):
            released += chunk.choices[0].delta.content or ""
    assert released == "one "


def test_the_models_can_be_listed() -> None:
    assert client(Server(b'{"data": [{"id": "m"}]}')).models.list().data[0].id == "m"


WORDS = st.sampled_from(["the ", "project ", "Project Blue", "bird", "blue", "bird ", "ann@mill", ".", " "])


@given(st.lists(WORDS, max_size=12), st.lists(st.integers(0, 3000), max_size=30), st.booleans())
@examples(200)
async def test_wherever_the_servers_bytes_are_cut_the_text_is_the_same(
    words: list[str], cuts: list[int], logprobs: bool
) -> None:
    deltas, expected = said(*words), GUARDS.text("".join(words)).text
    server = Server(chat_stream(deltas, logprobs=True, top_logprobs=1), cuts)
    given: Any = {"model": "m", "messages": USER, **({"logprobs": True} if logprobs else {})}
    for choice in (by_sync(server, given), await by_async(server, given)):
        assert choice.message.content == expected
        tokens = [one.token for one in (choice.logprobs and choice.logprobs.content) or ()]
        assert bool(tokens) <= logprobs
        if logprobs and "[phrase]" not in expected:
            assert "".join(tokens) == expected
    assert server.closings == len(server.asked) == 2


GUARDS = weir.Guards(PHRASES)


def by_sync(server: Server, given: Any) -> Any:
    http = weir.openai.http_client(GUARDS, transport=server)
    with openai.OpenAI(api_key="k", http_client=http) as sdk, sdk.chat.completions.stream(**given) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().choices[0]


async def by_async(server: Server, given: Any) -> Any:
    http = weir.openai.async_http_client(GUARDS, transport=server)
    async with openai.AsyncOpenAI(api_key="k", http_client=http) as sdk:
        return (await sdk.chat.completions.create(**given)).choices[0]


def test_nothing_of_a_forbidden_span_gets_out() -> None:
    """`make bench NAME=leaks_wrappers` tries more."""
    run(150, 1, by_openai)


@pytest.mark.parametrize("path", ["files/x/models", "files/f/content%2fmodels", "models/x/content"])
def test_of_the_paths_with_models_only_the_models_pass(path: str) -> None:  # contract 1.3
    server = Server(b"{}")
    with pytest.raises(openai.NotFoundError):
        client(server, "pii").get(path, cast_to=object)
    assert server.asked == []


def test_an_error_of_the_connection_quotes_no_bytes_of_the_server() -> None:  # contract 5.3
    class Broken(Server):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            raise httpx2.RemoteProtocolError("illegal header: b'ann@millrace.initech.com'")

    sdk = client(Broken(b""), "pii").with_options(max_retries=0)
    with pytest.raises(openai.APIConnectionError) as raised:
        sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    error: BaseException | None = raised.value
    while error is not None:
        assert "ann@" not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
