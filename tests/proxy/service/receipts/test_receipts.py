"""Each answer has a receipt, on every endpoint, however it ends."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.protocol import Delta, EngineError, GenerationRequest, RequestError, ToolCall
from hooks import Chunk, emit, hold, redact, refuse, suppress, terminate
from hooks.loading.loader import HookSpec, LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.pipeline import Pipeline
from hooks.workers.pool import WorkerPool
from proxy.http.admission import GUARDS_HEADER
from proxy.storage.receipts.keys import PUBLIC, public_key, signed_by
from proxy.storage.receipts.verify import verify
from tests.helpers import Script, ScriptedEngine, make_deltas
from tests.proxy.conftest import CHAT, COMPLETION, Client, Serve

MESSAGE = {**CHAT, "max_tokens": 9}
RESPONSE = {"model": "m", "input": "Hi"}
ENDPOINTS = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/v1/responses": RESPONSE,
    "/v1/messages": MESSAGE,
}


def sha256(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


async def receipts_of(client: Client, folder: Path) -> list[dict[str, Any]]:
    """All receipts, once the server has stopped. They are verified."""
    await client.server.stop()
    file = folder / "receipts-1.jsonl"
    found = verify([file], signed_by([public_key(folder / PUBLIC)]))
    receipts = [orjson.loads(line)["receipt"] for line in file.read_bytes().splitlines()]
    assert found.num_receipts == len(receipts)
    for one in (channel for receipt in receipts for out in receipt["outputs"] for channel in out["channels"]):
        assert one["seen"] + one["written"] == one["released"] + one["withheld"]
        assert min(one[name] for name in ("seen", "written", "released", "withheld")) >= 0
    return receipts


def channels_of(receipt: dict[str, Any], index: int = 0) -> dict[str, dict[str, Any]]:
    return {one["channel"]: one for one in receipt["outputs"][index]["channels"]}


def numbers(channel: dict[str, Any]) -> tuple[int, ...]:
    return tuple(channel[name] for name in ("seen", "written", "withheld", "released"))


def redacts(chunk: Chunk) -> Any:
    """Holds all to the end, and redacts a word."""
    if not chunk.is_final:
        return hold()
    at = chunk.pending.find("zebra")
    return emit(chunk.pending) if at < 0 else redact([(at, at + 5, "[gone]", "animal")])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_receipt_counts_what_was_seen_withheld_written_and_released(
    serve: Serve, tmp_path: Path, path: str, stream: bool
) -> None:
    engine = ScriptedEngine(lambda _: make_deltas(["a ", "zebra", " ran"]))
    client = await serve(engine, Script(redacts), receipts=tmp_path)
    body = orjson.dumps({**ENDPOINTS[path], "stream": stream})
    async with client.http.post(
        client.url + path, data=body, headers={"Content-Type": "application/json"}
    ) as response:
        answer = await response.read()
        guards, request_id = response.headers[GUARDS_HEADER], response.headers["X-Request-Id"]
    assert b"[gone]" in answer
    (receipt,) = await receipts_of(client, tmp_path)
    content = channels_of(receipt)["content"]
    assert numbers(content) == (11, 6, 5, 12)
    assert content["sha256"] == sha256("a [gone] ran")
    assert receipt["prompt"] == {"bytes": len(body), "sha256": sha256(body)}
    assert receipt["answer"] == (None if stream else {"bytes": len(answer), "sha256": sha256(answer)})
    assert receipt["guards"] == [{"name": "hook0", "mode": "enforce"}]
    assert guards == f"hook0; policy=default; revision={receipt['revision']}"
    (decision,) = receipt["decisions"]
    assert (decision["action"], decision["reason"], decision["offset"]) == ("redact", "animal", 2)
    assert b"zebra" not in orjson.dumps(receipt)
    assert (receipt["request_id"], receipt["status"], receipt["outcome"]) == (request_id, 200, "finished")
    assert (receipt["model"], receipt["tenant"], receipt["key"]) == ("m", "default", "anonymous")
    assert receipt["outputs"][0]["finish_reason"] == "stop"


async def test_each_output_and_channel_and_call_has_its_counts(serve: Serve, tmp_path: Path) -> None:
    call = ToolCall(0, "look", "id")
    arguments = ['{"place":', ' "weir"}']
    deltas = [
        Delta(text="hm", channel="reasoning"),
        Delta(text="so "),
        Delta(text="two", index=1),
        *(Delta(text=one, channel="tool_call", tool_call=call) for one in arguments),
        Delta(finish_reason="stop", index=1),
        Delta(finish_reason="tool_calls"),
    ]
    client = await serve(ScriptedEngine(lambda _: deltas), receipts=tmp_path)
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    client.engine.info = type(client.engine.info)(max_model_len=1024, parses_tool_calls=True)
    _, body, headers = await client.post("/v1/chat/completions", {**CHAT, "n": 2, "tools": tools})
    assert headers[GUARDS_HEADER].startswith("none; policy=default; revision=")
    (receipt,) = await receipts_of(client, tmp_path)
    first, second = channels_of(receipt), channels_of(receipt, 1)
    message = body["choices"][0]["message"]
    called = message["tool_calls"][0]["function"]
    assert first["content"]["sha256"] == sha256(message["content"]) == sha256("so ")
    assert first["tool_call"]["calls"] == [
        {"index": 0, "sha256": sha256(f"{called['name']}\n{called['arguments']}")}
    ]
    assert numbers(first["tool_call"]) == (17, 0, 0, 17)
    assert first["reasoning"]["sha256"] == sha256("hm")
    assert numbers(second["content"]) == (3, 0, 0, 3)
    assert [out["finish_reason"] for out in receipt["outputs"]] == ["tool_calls", "stop"]


def says(word: str, verdict: Callable[[Chunk], Any]) -> Script:
    return Script(lambda chunk: verdict(chunk) if word in chunk.pending else emit(chunk.pending))


@pytest.mark.parametrize(
    ("verdict", "counts", "text"),
    [
        (lambda _: terminate("no"), (7, 0, 5, 2), "a "),
        (lambda _: terminate("no", text="Stopped."), (7, 8, 5, 10), "a Stopped."),
        (lambda _: suppress("no"), (11, 0, 5, 6), "a  ran"),
    ],
)
async def test_an_answer_that_a_hook_ends_or_shortens(
    serve: Serve, tmp_path: Path, verdict: Callable[[Chunk], Any], counts: tuple[int, ...], text: str
) -> None:
    engine = ScriptedEngine(lambda _: make_deltas(["a ", "zebra", " ran"]))
    client = await serve(engine, says("zebra", verdict), receipts=tmp_path)
    events = await client.stream("/v1/chat/completions", CHAT)
    assert events.content() == text
    (receipt,) = await receipts_of(client, tmp_path)
    content = channels_of(receipt)["content"]
    assert numbers(content) == counts
    assert content["sha256"] == sha256(text)


async def test_several_hooks_of_which_each_sees_what_the_one_before_released(
    serve: Serve, tmp_path: Path
) -> None:
    longer = Script(lambda chunk: emit(chunk.pending.replace("zebra", "zebra, zebra")))
    shadow = LoadedHook.of("quiet", Script(lambda chunk: suppress("all")), is_shadow=True)
    hooks = [LoadedHook.of("longer", longer), LoadedHook.of("redacts", Script(redacts)), shadow]
    engine = ScriptedEngine(lambda _: make_deltas(["a ", "zebra", " ran"]))
    client = await serve(engine, pipeline=Pipeline(hooks), receipts=tmp_path)
    _, body, headers = await client.post("/v1/chat/completions", CHAT)
    assert body["choices"][0]["message"]["content"] == "a [gone], zebra ran"
    assert headers[GUARDS_HEADER].startswith("longer, redacts; ")
    (receipt,) = await receipts_of(client, tmp_path)
    assert numbers(channels_of(receipt)["content"]) == (11, 18, 10, 19)
    assert [one["mode"] for one in receipt["guards"]] == ["enforce", "enforce", "shadow"]
    assert {one["mode"] for one in receipt["decisions"] if one["hook"] == "quiet"} == {"shadow"}


class Refuses:
    def __init__(self, text: str | None = None) -> None:
        self.text = text

    def on_request(self, request: GenerationRequest) -> Any:
        return refuse("no", self.text)

    def __call__(self, chunk: Chunk) -> Any:
        return emit(chunk.pending)


async def test_a_refused_prompt_has_a_receipt_of_nothing(serve: Serve, tmp_path: Path) -> None:
    client = await serve(ScriptedEngine(lambda _: []), Refuses(), receipts=tmp_path)
    status, body, _ = await client.post("/v1/chat/completions", CHAT)
    assert status == 400
    (receipt,) = await receipts_of(client, tmp_path)
    assert (receipt["outputs"], receipt["outcome"], receipt["status"]) == ([], "refused", 400)
    assert receipt["answer"]["sha256"] == sha256(orjson.dumps(body))
    assert [one["action"] for one in receipt["decisions"]] == ["refuse"]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_text_of_a_refusal_is_the_hook_s(serve: Serve, tmp_path: Path, stream: bool) -> None:
    client = await serve(ScriptedEngine(lambda _: []), Refuses("Not here."), receipts=tmp_path)
    await client.http.post(f"{client.url}/v1/chat/completions", json={**CHAT, "stream": stream})
    (receipt,) = await receipts_of(client, tmp_path)
    assert numbers(channels_of(receipt)["content"]) == (0, 9, 0, 9)
    assert channels_of(receipt)["content"]["sha256"] == sha256("Not here.")


def fails(chunk: Chunk) -> Any:
    if "zebra" in chunk.pending:
        raise RuntimeError
    return emit(chunk.pending)


@pytest.mark.parametrize(
    ("hook", "items", "outcome"),
    [
        (Script(fails), make_deltas(["a ", "zebra", " ran"]), "failed"),
        (None, [*make_deltas(["a "], finish=False), EngineError("Gone.", status=502)], "failed"),
    ],
)
async def test_an_answer_that_fails(
    serve: Serve, tmp_path: Path, hook: Any, items: Iterable[Any], outcome: str
) -> None:
    client = await serve(ScriptedEngine(lambda _: items), *filter(None, [hook]), receipts=tmp_path)
    await client.stream("/v1/chat/completions", CHAT)
    (receipt,) = await receipts_of(client, tmp_path)
    assert receipt["outcome"] == outcome
    content = channels_of(receipt)["content"]
    assert (content["released"], content["sha256"]) == (2, sha256("a "))


async def test_a_client_that_leaves(serve: Serve, tmp_path: Path) -> None:
    def endless(_: Any) -> Iterable[Any]:
        yield Delta(text="a ")
        yield asyncio.Event()

    client = await serve(ScriptedEngine(endless), receipts=tmp_path)
    async with client.http.post(
        f"{client.url}/v1/chat/completions", json={**CHAT, "stream": True}
    ) as response:
        await response.content.readany()
        response.close()
    while client.engine.running:
        await asyncio.sleep(0.01)
    (receipt,) = await receipts_of(client, tmp_path)
    assert (receipt["outcome"], receipt["status"]) == ("closed", 499)
    assert channels_of(receipt)["content"]["released"] == 2


@pytest.mark.parametrize("workers", [0, 1])
async def test_other_gateways_questions_and_moderations_have_receipts(
    serve: Serve, tmp_path: Path, workers: int
) -> None:
    hooks = [HookSpec("phrases", args={"phrases": ["zebra"]}, name="phrases")]
    given: Any = (hooks, [], PipelineOptions())
    pipeline: Any = WorkerPool(workers, *given) if workers else await Pipeline.load(*given)
    client = await serve(
        ScriptedEngine(lambda _: make_deltas(["a ", "zebra", " ran"])),
        pipeline=pipeline,
        moderations=True,
        guard_api=["litellm"],
        receipts=tmp_path,
    )
    await client.post("/v1/moderations", {"input": "a zebra"})
    question = {"texts": ["a zebra"], "input_type": "response", "request_data": {}, "litellm_call_id": "c"}
    status, _, _ = await client.post("/beta/litellm_basic_guardrail_api", question)
    assert status == 200
    await client.post("/v1/chat/completions", CHAT)
    moderation, asked, chat = await receipts_of(client, tmp_path)
    assert [one["endpoint"] for one in (moderation, asked, chat)] == ["moderations", "guard", "chat"]
    for one in (moderation, asked, chat):
        assert {decision["hook"] for decision in one["decisions"]} == {"phrases"}
        assert one["answer"] is not None
    assert moderation["outputs"] == asked["outputs"] == []
    assert channels_of(chat)["content"]["withheld"] == 5


async def test_no_request_is_taken_while_receipts_cannot_be_written(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from proxy.service.receipts import keeper
    from proxy.storage.receipts.chain import Chain

    monkeypatch.setattr(keeper, "RETRY", 0.01)
    monkeypatch.setattr(keeper, "GATHER", 0.0)
    client = await serve(ScriptedEngine(lambda _: make_deltas(["a"])), receipts=tmp_path)
    append = Chain.append

    def full(self: Chain, receipts: Any) -> None:
        raise OSError(28, "No space left on device")

    async def turns(status: int) -> None:
        while (await client.get("/ready"))[0] != status:
            await asyncio.sleep(0.01)

    monkeypatch.setattr(Chain, "append", full)
    assert (await client.post("/v1/chat/completions", CHAT))[0] == 200  # nobody knew yet
    await turns(503)
    status, body, _ = await client.post("/v1/chat/completions", CHAT)
    assert (status, body["error"]["message"]) == (503, "The receipts of answers cannot be written now.")
    _, metrics = await client.get("/metrics")
    assert b"weir_receipts_waiting 1.0" in metrics
    assert "No space left on device" in caplog.text
    monkeypatch.setattr(Chain, "append", append)
    await turns(200)
    assert (await client.post("/v1/chat/completions", CHAT))[0] == 200
    assert len(await receipts_of(client, tmp_path)) == 2


async def test_without_the_setting_no_answer_names_its_guards(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda _: make_deltas(["a"])), Script(redacts))
    _, _, headers = await client.post("/v1/chat/completions", CHAT)
    assert GUARDS_HEADER not in headers


async def test_a_request_that_is_not_admitted_has_no_receipt(serve: Serve, tmp_path: Path) -> None:
    engine = ScriptedEngine(lambda _: [RequestError("No.", param="messages")])
    client = await serve(engine, receipts=tmp_path)
    assert (await client.post("/v1/chat/completions", {**CHAT, "n": -1}))[0] == 400
    assert (await client.post("/v1/chat/completions", CHAT))[0] == 400
    (receipt,) = await receipts_of(client, tmp_path)
    assert receipt["outcome"] == "refused"
