"""Responses over a WebSocket: the same requests, guards and limits as by `POST`."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import WSMsgType

from engine.protocol import Delta, ToolCall
from hooks import Chunk, Verdict, emit, hold, redact, refuse, suppress, terminate
from hooks.builtin.pii import Pii
from hooks.prompts.texts import prompt_texts
from proxy.http.respond import SocketAnswer
from proxy.telemetry.logs import REQUEST_ID
from tests.helpers import Script, ScriptedEngine, make_deltas, until
from tests.proxy.conftest import Client, Serve
from tests.proxy.response_helpers import ASK, PATH, check_events, saying, without_identity

CREATE = {"type": "response.create", **ASK}
LAST = {"response.completed", "response.incomplete", "error"}


class Turns:
    """A client's side of one socket."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws

    async def events(self) -> list[dict[str, Any]]:
        """The events of one response."""
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] not in LAST:
            message = await self.ws.receive(timeout=20)
            assert message.type is WSMsgType.TEXT, message
            events.append(orjson.loads(message.data))
        return events

    async def ask(self, **fields: Any) -> list[dict[str, Any]]:
        await self.ws.send_str(orjson.dumps({**CREATE, **fields}).decode())
        return await self.events()

    async def response(self, **fields: Any) -> dict[str, Any]:
        response: dict[str, Any] = (await self.ask(**fields))[-1]["response"]
        return response

    async def error(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        (event,) = await self.ask(**fields)
        return event["status"], event["error"]


_open: list[aiohttp.ClientWebSocketResponse] = []


@pytest.fixture(autouse=True)
async def closing(serve: Serve) -> AsyncIterator[None]:
    """Closes the sockets of a test before its server stops, which would wait for them."""
    yield
    while _open:
        await _open.pop().close()


async def opened(client: Client, **options: Any) -> Turns:
    _open.append(await client.http.ws_connect(client.url + PATH, **options))
    return Turns(_open[-1])


async def test_the_events_are_those_of_a_stream(serve: Serve) -> None:
    client = await serve(saying("He", "llo"))
    turns = await opened(client)
    events = await turns.ask()
    assert events[0].pop("headers")["X-Request-Id"] == events[0]["response"]["id"]
    stream = await client.stream(PATH, ASK)
    check_events(stream)
    assert without_ids(events) == without_ids([data for _, data in stream.events[:-1]])


def without_ids(events: list[dict[str, Any]]) -> Any:
    return [{k: v for k, v in without_identity(one).items() if k != "item_id"} for one in events]


async def test_an_answer_names_ignored_fields_in_its_first_event(serve: Serve) -> None:
    turns = await opened(await serve(saying("a")))
    first, *others = await turns.ask(tools=[{"type": "web_search"}])
    assert "tools.web_search" in first["headers"]["X-Weir-Ignored-Fields"]
    assert not any("headers" in event for event in others)


@pytest.mark.parametrize("store", [True, False])
async def test_a_turn_continues_the_one_before(serve: Serve, store: bool) -> None:
    engine = saying("a")
    client = await serve(engine)
    turns = await opened(client)
    first = await turns.response(store=store)
    assert first["store"] is store
    second = await turns.response(store=store, input="And?", previous_response_id=first["id"])
    third = await turns.response(store=store, input="So?", previous_response_id=second["id"])
    assert third["status"] == "completed"
    said = [(message["role"], message["content"]) for message in engine.requests[-1].messages]
    assert said == [
        *(("user", "Hi"), ("assistant", "a"), ("user", "And?"), ("assistant", "a")),
        ("user", "So?"),
    ]
    another = await opened(client)
    events = await another.ask(input="x", previous_response_id=first["id"])
    if store:
        assert events[-1]["type"] == "response.completed"
    else:
        assert (events[0]["status"], events[0]["error"]["code"]) == (400, "previous_response_not_found")


async def test_the_last_responses_alone_are_remembered(serve: Serve) -> None:
    turns = await opened(await serve(saying("a"), max_stored_responses=0))
    ids = [(await turns.response())["id"] for _ in range(9)]
    assert (await turns.error(previous_response_id=ids[0]))[1]["code"] == "previous_response_not_found"
    assert (await turns.response(previous_response_id=ids[1]))["status"] == "completed"


async def test_long_conversations_are_forgotten_sooner(serve: Serve) -> None:
    turns = await opened(await serve(saying("a"), max_body_size=20_000))
    first, second = [(await turns.response(store=False, input="x" * 15_000))["id"] for _ in range(2)]
    status, error = await turns.error(store=False, previous_response_id=first)
    assert (status, error["code"]) == (400, "previous_response_not_found")
    assert (await turns.response(store=False, previous_response_id=second))["status"] == "completed"


async def test_a_response_without_output_can_be_continued(serve: Serve) -> None:
    engine = saying("a")
    turns = await opened(await serve(engine))
    events = await turns.ask(generate=False, store=False)
    assert [event["type"] for event in events] == [
        *("response.created", "response.in_progress", "response.completed")
    ]
    prepared = events[-1]["response"]
    assert (prepared["output"], prepared["usage"]["total_tokens"], engine.requests) == ([], 0, [])
    await turns.response(store=False, input="And?", previous_response_id=prepared["id"])
    assert [message["content"] for message in engine.requests[-1].messages] == ["Hi", "And?"]


async def test_a_response_that_is_only_prepared_uses_up_no_refusal(serve: Serve) -> None:
    turns = await opened(await serve(saying("a"), Pii(prompt="refuse_new")))
    fields = {"store": False, "input": "I am ada@initech.org."}
    said = {"store": False, "input": [{"role": "user", "content": text} for text in (fields["input"], "Hi")]}
    for prepares, turn in ((True, fields), (True, said), (False, said)):
        assert (await turns.error(generate=not prepares, **turn))[0] == 400


async def test_turns_run_one_after_another_and_name_their_lane(serve: Serve) -> None:
    going = asyncio.Event()
    engine = ScriptedEngine(lambda r: [*make_deltas(["a"], finish=False), going, Delta(finish_reason="stop")])
    turns = await opened(await serve(engine))
    for lane in ("one", "two"):
        await turns.ws.send_json({**CREATE, "stream_id": lane})
    await until(lambda: engine.running == 1)
    going.set()
    assert {event["stream_id"] for event in await turns.events()} == {"one"}
    assert {event["stream_id"] for event in await turns.events()} == {"two"}
    assert len(engine.requests) == 2


async def test_too_many_turns_that_wait_are_an_error(serve: Serve) -> None:
    engine = ScriptedEngine(lambda r: [*make_deltas(["a"], finish=False), asyncio.Event()])
    turns = await opened(await serve(engine))
    await turns.ws.send_json({**CREATE, "stream_id": "one"})
    await until(lambda: engine.running == 1)  # a turn that has not begun counts as one that waits
    for _ in range(16):
        await turns.ws.send_json({**CREATE, "stream_id": "one"})
    await turns.ws.send_json({**CREATE, "stream_id": "two"})
    while (event := await turns.ws.receive_json())["type"] != "error":
        assert event["stream_id"] == "one"
    assert event["stream_id"] == "two"
    assert (event["status"], event["headers"]["Retry-After"]) == (429, "1")
    await turns.ws.close()
    await until(lambda: not engine.running)
    assert len(engine.requests) == 1


@pytest.mark.parametrize("ends", ["close", "abort"])
async def test_a_client_that_leaves_cancels_the_engines_work(serve: Serve, ends: str) -> None:
    engine = ScriptedEngine(lambda r: [*make_deltas(["a"], finish=False), asyncio.Event()])
    client = await serve(engine)
    turns = await opened(client)
    await turns.ws.send_json(CREATE)
    await until(lambda: engine.running == 1)
    if ends == "close":
        await turns.ws.close()
    else:
        transport: Any = turns.ws._response.connection
        transport.transport.abort()
    await until(lambda: not engine.running)
    assert engine.aborted == 1
    await until(lambda: not client.server.connections)


async def test_the_operator_cancels_a_turn_and_the_socket_goes_on(serve: Serve) -> None:
    waits = iter([asyncio.Event()])
    engine = ScriptedEngine(
        lambda r: [
            *make_deltas(["a"], finish=False),
            *([w] if (w := next(waits, None)) else []),
            Delta(finish_reason="stop"),
        ]
    )
    client = await serve(engine)
    turns = await opened(client)
    await turns.ws.send_json(CREATE)
    await until(lambda: engine.running == 1)
    (running,) = client.server.service.requests.oldest(2).oldest
    assert client.server.service.requests.cancel(running.id)
    events = await turns.events()
    assert (events[-1]["status"], events[-1]["error"]["code"]) == (403, "request_cancelled")
    assert (await turns.response())["status"] == "completed"


@pytest.mark.parametrize(
    ("sent", "status", "param"),
    [
        ("{", 400, None),
        ("[]", 400, None),
        ('{"type": "response.steer", "input": "Hi"}', 400, "type"),
        ('{"input": "Hi"}', 400, "type"),
        ('{"type": "response.create", "input": "Hi", "background": true}', 400, "background"),
        ('{"type": "response.create", "input": "Hi", "stream_id": 1}', 400, "stream_id"),
        ('{"type": "response.create", "input": "Hi", "model": "other"}', 404, "model"),
        ('{"type": "response.create", "input": ' + "[" * 101 + "]" * 101 + "}", 400, None),
        (b"\x00", 400, None),
    ],
)
async def test_a_wrong_message_is_an_error_and_the_socket_goes_on(
    serve: Serve, sent: Any, status: int, param: str | None
) -> None:
    turns = await opened(await serve(saying("a")))
    await (turns.ws.send_bytes(sent) if isinstance(sent, bytes) else turns.ws.send_str(sent))
    (event,) = await turns.events()
    assert (event["type"], event["status"], event["error"]["param"]) == ("error", status, param)
    assert list(event["error"]) == ["message", "type", "param", "code"]
    assert (await turns.response())["status"] == "completed"


@pytest.mark.parametrize("kind", ["response.steer", "other", 1])
async def test_an_unknown_type_of_message_is_told_in_its_lane(serve: Serve, kind: Any) -> None:
    turns = await opened(await serve(saying("a")))
    await turns.ws.send_json({"type": kind, "stream_id": "one"})
    (event,) = await turns.events()
    assert (event["status"], event["error"]["param"], event["stream_id"]) == (400, "type", "one")
    assert "not supported" in event["error"]["message"]


async def test_an_unexpected_error_of_a_turn_is_logged_by_its_type(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: Any) -> None:
        raise KeyError("secret")

    turns = await opened(await serve(saying("a")))
    monkeypatch.setattr("proxy.http.turns._answer", fails)
    await turns.ws.send_json(CREATE)
    await until(lambda: "a response over a WebSocket failed (KeyError)" in caplog.messages)
    assert "secret" not in caplog.text


async def test_frames_without_a_message_leave_the_headers_for_the_first_message() -> None:
    stream = SocketAnswer.__new__(SocketAnswer)
    stream.started, stream._first, stream._each = False, {"headers": {"a": "b"}}, {}
    assert (stream._messages(b": comment\n\n"), stream.started) == ([], False)
    (message,) = stream._messages(b'data: {"type":"x"}\n\n')
    assert (orjson.loads(message)["headers"], stream.started) == ({"a": "b"}, True)


async def test_a_message_that_is_too_large_closes_the_socket(serve: Serve) -> None:
    turns = await opened(await serve(saying("a"), max_body_size=5000))
    assert (await turns.response(input="x" * 4000))["status"] == "completed"
    await turns.ws.send_json({**CREATE, "input": "x" * 5000})
    assert (await turns.ws.receive()).type is WSMsgType.CLOSE
    assert turns.ws.close_code == 1009


async def test_a_get_without_an_upgrade_is_a_405(serve: Serve) -> None:
    client = await serve(saying("a"))
    async with client.http.get(client.url + PATH) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")


async def test_the_door_is_the_same(serve: Serve) -> None:
    client = await serve(saying("a"), api_key=["one"])
    for headers, status in (
        ({}, 401),
        ({"Authorization": "Bearer two"}, 401),
        ({"Authorization": "Bearer one", "Origin": "https://evil.example"}, 403),
        ({"Authorization": "Bearer one", "Host": "evil.example"}, 421),
    ):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await opened(client, headers=headers)
        assert refused.value.status == status
    turns = await opened(client, headers={"Authorization": "Bearer one"})
    assert (await turns.response())["status"] == "completed"


async def test_each_turn_counts_for_its_caller(serve: Serve) -> None:
    going = asyncio.Event()
    engine = ScriptedEngine(lambda r: [*make_deltas(["a"], finish=False), going, Delta(finish_reason="stop")])
    client = await serve(engine, max_requests_per_caller=1)
    turns, others = await opened(client), await opened(client)
    await turns.ws.send_json(CREATE)
    await until(lambda: engine.running == 1)
    status, error = await others.error()
    assert (status, error["code"]) == (429, "rate_limit_exceeded")
    going.set()
    assert (await turns.events())[-1]["type"] == "response.completed"
    assert (await others.response())["status"] == "completed"
    metrics = (await client.get("/metrics"))[1]
    assert b'weir_requests_total{endpoint="responses",outcome="finished"} 2.0' in metrics


async def test_messages_that_wait_count_for_their_caller(serve: Serve) -> None:
    going = asyncio.Event()
    engine = ScriptedEngine(lambda r: [*make_deltas(["a"], finish=False), going, Delta(finish_reason="stop")])
    client = await serve(engine, max_body_bytes_per_caller=2500)
    turns, others = await opened(client), await opened(client)
    await turns.ws.send_json({**CREATE, "input": "x" * 1000})
    await until(lambda: engine.running == 1)
    await turns.ws.send_json({**CREATE, "input": "x" * 1000})
    held = client.server.service.body_bytes
    await until(lambda: sum(held.values()) > 2000)
    (event,) = await others.ask(input="x" * 1000, stream_id="one")
    assert (event["status"], event["stream_id"], event["headers"]["Retry-After"]) == (429, "one", "1")
    assert "bytes of requests" in event["error"]["message"]
    await turns.ws.close()
    await until(lambda: not held)
    going.set()
    assert (await others.response(input="x" * 1000))["status"] == "completed"


async def test_remembered_conversations_count_for_their_caller(serve: Serve) -> None:
    client = await serve(saying("a"), max_body_bytes_per_caller=4000)
    turns, others = await opened(client), await opened(client)
    first, _ = [(await turns.response(store=False, input="x" * 1000))["id"] for _ in range(2)]
    third = (await others.response(store=False, input="x" * 2500))["id"]
    status, error = await others.error(store=False, previous_response_id=third)
    assert (status, error["code"]) == (400, "previous_response_not_found")
    assert (await turns.response(store=False, previous_response_id=first))["status"] == "completed"
    for one in (turns, others):
        await one.ws.close()
    await until(lambda: not client.server.service.remembered_bytes)
    another = await opened(client)
    third = (await another.response(store=False, input="x" * 2500))["id"]
    assert (await another.response(store=False, previous_response_id=third))["status"] == "completed"


async def test_each_turn_has_a_line_in_the_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "weir.access")
    turns = await opened(await serve(saying("a")))
    await turns.response()
    await turns.error(temperature=9)
    await turns.ws.close()
    await until(lambda: len(lines_of(caplog)) == 3)
    found = [(line["path"], line["status"], line.get("outcome")) for line in lines_of(caplog)]
    assert found == [(PATH, 200, "finished"), (PATH, 400, None), (PATH, 101, None)]
    assert [line.get("error_field") for line in lines_of(caplog)] == [None, "temperature", None]


async def test_each_turn_has_an_id_with_the_handshakes_in_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "weir.access")
    logged: list[str | None] = []
    monkeypatch.setattr("proxy.http.door.log_fields", lambda *_: logged.append(REQUEST_ID.get()))
    turns = await opened(await serve(saying("a")), headers={"X-Request-Id": "my-id"})
    given = [(await turns.ask(**fields))[0]["headers"]["X-Request-Id"] for fields in ({}, {"n": 2}, {})]
    assert given == ["my-id-1", "my-id-2", "my-id-3"]
    await turns.ws.close()
    await until(lambda: len(logged) == 4)
    assert logged == [*given, "my-id"]


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(one)["fields"] for one in caplog.records if one.name == "weir.access"]


async def test_a_slow_client_pauses_the_flow_and_misses_nothing(serve: Serve) -> None:
    words = ["x" * 4096] * 4096  # 16 MiB: more than the system's buffers hold
    engine = ScriptedEngine(lambda r: make_deltas(words))
    client = await serve(engine)
    session = aiohttp.ClientSession(read_bufsize=1024)
    async with session, session.ws_connect(client.url + PATH, max_msg_size=0) as ws:
        await ws.send_json(CREATE)
        await until(lambda: engine.running == 1)
        await until(lambda: any(one.writing_paused for one in client.server.connections._all))
        assert engine.running == 1
        text = ""
        async for message in ws:
            event = orjson.loads(message.data)
            text += event["delta"] if event["type"] == "response.output_text.delta" else ""
            if event["type"] in LAST:
                break
        assert text == "".join(words)


def redacting(chunk: Chunk) -> Verdict:
    if not chunk.is_final:
        return hold()
    at = chunk.pending.find("secret")
    return emit(chunk.pending) if at < 0 else redact([(at, at + 6, "***")])


def terminating(chunk: Chunk) -> Verdict:
    return terminate("no") if "secret" in chunk.text else emit(chunk.pending)


def withholding(chunk: Chunk) -> Verdict:
    return suppress() if "secret" in chunk.text else emit(chunk.pending)


@pytest.mark.parametrize(
    ("guard", "text", "status"),
    [(redacting, "A ***.", "completed"), (terminating, "A ", "incomplete"), (withholding, "A ", "completed")],
)
async def test_hooks_see_every_piece_before_the_client(
    serve: Serve, guard: Any, text: str, status: str
) -> None:  # contract 1.3
    client = await serve(saying("A ", "secret", "."), Script(guard))
    turns = await opened(client)
    events = await turns.ask()
    assert "secret" not in str(events)
    response = events[-1]["response"]
    assert (response["output"][0]["content"][0]["text"], response["status"]) == (text, status)
    assert (await turns.ask())[-1]["response"]["status"] == status


async def test_a_hook_that_fails_ends_its_turn_alone(serve: Serve) -> None:  # contracts 4.1, 4.2
    def failing(chunk: Chunk) -> Verdict:
        if "secret" in chunk.text:
            raise ValueError(chunk.text)
        return emit(chunk.pending)

    answers = iter([["A ", "secret"], ["secret"], ["fine"]])
    engine = ScriptedEngine(lambda r: make_deltas(next(answers)))
    turns = await opened(await serve(engine, Script(failing)))
    events = await turns.ask()
    assert [event["type"] for event in events[-2:]] == ["response.failed", "error"]
    assert (events[-1]["status"], events[-1]["error"]["type"]) == (500, "guardrail_error")
    (event,) = await turns.ask()
    assert (event["status"], event["error"]["type"]) == (500, "guardrail_error")
    assert "secret" not in str(events) + str(event)
    assert (await turns.response())["output"][0]["content"][0]["text"] == "fine"


async def test_a_custom_call_is_redacted(serve: Serve) -> None:
    call = ToolCall(0, "patch")
    pieces = ['{"input": "a ', 'secret"}']
    engine = ScriptedEngine(
        lambda r: [
            *make_deltas(pieces, channel="tool_call", tool_call=call, finish=False),
            Delta(finish_reason="stop"),
        ]
    )
    turns = await opened(await serve(engine, Script(redacting)))
    events = await turns.ask(tools=[{"type": "custom", "name": "patch"}])
    assert "secret" not in str(events)
    assert events[-1]["response"]["output"][0]["input"] == "a ***"


async def test_a_prompt_hook_reads_the_whole_conversation(serve: Serve) -> None:  # contract 8.1
    seen: list[str] = []

    class Reads:
        def on_request(self, request: Any) -> Any:
            seen.append(" ".join(text.text for text in prompt_texts(request)))
            return request

        def __call__(self, chunk: Chunk) -> Verdict:
            return emit(chunk.pending)

    turns = await opened(await serve(saying("a"), Reads()))
    first = await turns.response(generate=False, store=False, input="prepared")
    await turns.response(store=False, input="asked", previous_response_id=first["id"])
    assert "prepared" in seen[-1]
    assert "asked" in seen[-1]


@pytest.mark.parametrize("generate", [True, False])
async def test_a_prompt_is_refused_whether_or_not_a_response_follows(
    serve: Serve, generate: bool
) -> None:  # contract 8.1
    class Refuses:
        def on_request(self, request: Any) -> Any:
            return refuse("no") if "secret" in str(request.messages) else request

        def __call__(self, chunk: Chunk) -> Verdict:
            return emit(chunk.pending)

    engine = saying("a")
    client = await serve(engine, Refuses())
    turns = await opened(client)
    status, error = await turns.error(generate=generate, store=True, input="the secret")
    assert (status, error["code"], engine.requests) == (400, "content_filter", [])
    assert (await turns.response(generate=generate, store=True))["status"] == "completed"


@pytest.mark.parametrize("generate", [True, False])
async def test_hooks_that_a_turn_names_are_checked_whether_or_not_a_response_follows(
    serve: Serve, generate: bool
) -> None:
    turns = await opened(await serve(saying("a")))
    status, error = await turns.error(generate=generate, hooks=["unknown"])
    assert (status, error["param"]) == (400, "hooks")


async def test_a_server_that_stops_finishes_the_turn_and_closes(serve: Serve) -> None:
    going = asyncio.Event()
    engine = ScriptedEngine(lambda r: [*make_deltas(["a"], finish=False), going, Delta(finish_reason="stop")])
    client = await serve(engine)
    turns, idle = await opened(client), await opened(client)
    await turns.ws.send_json(CREATE)
    await until(lambda: engine.running == 1)
    stopping = asyncio.get_running_loop().create_task(client.server.stop())
    assert (await idle.ws.receive()).type is WSMsgType.CLOSE
    assert idle.ws.close_code == 1001
    going.set()
    assert (await turns.events())[-1]["type"] == "response.completed"
    assert (await turns.ws.receive()).type is WSMsgType.CLOSE
    await stopping


async def test_a_socket_that_waits_makes_room(serve: Serve) -> None:
    client = await serve(saying("a"), max_connections=4)
    idle = await opened(client)
    await idle.response()
    connection = next(iter(client.server.connections._all))
    await until(lambda: connection in client.server.connections._waiting)
    assert client.server.connections.close_one()
    assert (await idle.ws.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.ERROR)
