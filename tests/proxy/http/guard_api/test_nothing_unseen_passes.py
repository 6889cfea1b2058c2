"""Nothing passes that no hook was shown, and no change is lost, in the protocols of other gateways."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.protocol import GenerationRequest
from engine.upstream.none import NoEngine
from hooks import Chunk, Verdict, emit, prompt_media
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.loading.loader import HookSpec, LoadedHook
from hooks.pipeline.pipeline import Pipeline
from hooks.workers.pool import WorkerPool
from proxy.http.guard_api import open_texts
from tests.helpers import Script, until
from tests.proxy.conftest import Client, Serve

ALL = ["litellm", "bedrock", "agentgateway", "fms", "nemo", "hooks"]
APIS = [{"name": name} for name in ALL]
LITELLM, CHAT, CONTENTS = "/beta/litellm_basic_guardrail_api", "/api/v1/text/chat", "/api/v1/text/contents"
MAIL = "ada@initech.com"
FINE = {"role": "user", "content": "Hi"}


@pytest.fixture
async def client(serve: Serve) -> Client:
    phrases = Phrases(["blue bird"], action="terminate", prompt="refuse")
    return await serve(NoEngine(), Pii(prompt="redact"), phrases, Secrets(), guard_api=APIS)


async def ask(client: Client, path: str, body: Any, detector: str = "weir") -> tuple[int, Any]:
    status, answer, _ = await client.post(path, body, headers={"detector-id": detector})
    return status, answer


def call(**fields: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "run", "arguments": "{}"}, **fields}


async def test_an_image_beside_a_text_is_refused(client: Client) -> None:
    block = {"text": {"text": "Hi"}, "image": {"format": "png", "source": {"bytes": "eA=="}}}
    for source in ("INPUT", "OUTPUT"):
        body = {"source": source, "content": [block]}
        status, answer = await ask(client, "/guardrail/weir/version/1/apply", body)
        assert (status, list(answer)) == (400, ["message"])


IMAGE = "data:image/png;base64,aGk="


@pytest.mark.parametrize(
    ("image", "content"),
    [
        ("a", "a cat"),
        (IMAGE, f"see {IMAGE}"),
        (IMAGE, [{"type": "text", "text": IMAGE}]),
        (IMAGE, [{"type": "file", "file": {"file_data": IMAGE}}, {"type": "text", "text": "x"}]),
        ("http://x.test/a", [{"type": "widget", "url": "http://x.test/a"}]),
        ("http://x.test/a", [{"type": "image_url", "image_url": {"url": "http://x.test/ab"}}]),
        ("data:,%", [{"type": "image_url", "image_url": {"url": "data:;base64,?"}}]),
    ],
)
async def test_an_image_whose_string_stands_elsewhere_is_not_seen(
    serve: Serve, image: str, content: Any
) -> None:
    sees: list[list[str | None]] = []

    class SeesImages:
        reads_media = True

        def on_request(self, request: GenerationRequest) -> GenerationRequest:
            sees.append([one.url or one.sha256 for one in prompt_media(request) if one.kind == "image"])
            return request

        def __call__(self, chunk: Chunk) -> Verdict:
            return emit(chunk.pending)

    blind = await serve(NoEngine(), Phrases(["blue bird"], prompt="refuse"), guard_api=APIS)
    said = [{"role": "user", "content": content}]
    texts = [content] if isinstance(content, str) else [one["text"] for one in content if "text" in one]
    body = {"input_type": "request", "texts": texts, "images": [image], "structured_messages": said}
    assert (await ask(blind, LITELLM, body))[0] == 400
    seeing = await serve(NoEngine(), SeesImages(), guard_api=APIS)
    assert (await ask(seeing, LITELLM, body))[0] == 200
    shown = sees[-1]
    part = {"type": "image_url", "image_url": {"url": image}}
    both = {**body, "structured_messages": [*said, {"role": "user", "content": [part]}]}
    assert (await ask(seeing, LITELLM, both))[0] == 200
    known = [one for one in shown if one is not None]
    assert [one for one in sees[-1] if one is not None] == known  # a part that hooks see is not shown twice


@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_content": MAIL},
        {"refusal": MAIL},
        {"function_call": {"name": "run", "arguments": MAIL}},
        {"audio": {"id": MAIL}},
        {"content": [{"type": "text", "text": "Hi"}, {"type": "refusal", "refusal": MAIL}]},
        {"content": [{"type": "text", "text": "Hi", "annotations": [MAIL]}]},
    ],
    ids=str,
)
@pytest.mark.parametrize(("path", "status"), [(CHAT, 422), ("/v1/checks", 400)])
async def test_an_answer_with_more_than_its_text_is_refused(
    client: Client, path: str, status: int, more: Any
) -> None:
    message = {"role": "assistant", "content": "Hi", "refusal": None, **more}
    answered, answer = await ask(client, path, {"messages": [FINE, message]})
    assert answered == status
    assert MAIL not in str(answer)


@pytest.mark.parametrize(
    "wrong",
    [
        {"content": MAIL},
        {"role": "", "content": MAIL},
        {"role": ["user"], "content": MAIL},
        {"role": "user", "content": {"text": MAIL}},
        {"role": "user", "content": [MAIL]},
        {"role": "user", "content": 5},
        {"role": "assistant", "tool_calls": 5},
        {"role": "assistant", "content": "x", "tool_calls": {"name": MAIL}},
    ],
    ids=str,
)
async def test_a_message_of_no_known_shape_is_the_callers_fault(client: Client, wrong: Any) -> None:
    for path, field, status in ((CHAT, "messages", 422), ("/v1/checks", "messages", 400)):
        assert (await ask(client, path, {field: [wrong]}))[0] == status
    body = {"input_type": "request", "texts": ["x"], "structured_messages": [wrong]}
    status, answer = await ask(client, LITELLM, body)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": MAIL}, {"role": "assistant", "content": "Hi"}, FINE],
        [{**FINE, "name": MAIL}],
        [{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "other", "other": MAIL}]}],
        [{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": MAIL}]}],
        [{"role": "assistant", "tool_calls": [call(more=MAIL)]}, FINE],
    ],
    ids=str,
)
async def test_nemos_answer_has_the_last_text_and_no_other_change(client: Client, messages: Any) -> None:
    status, answer = await ask(client, "/v1/checks", {"messages": messages})
    assert (status, list(answer)) == (500, ["detail"])
    assert MAIL not in str(answer)


async def test_nemos_answer_about_an_answer_has_no_change_of_the_prompt(client: Client) -> None:
    messages = [{"role": "user", "content": MAIL}, {"role": "assistant", "content": "Hi"}]
    both = {"rail_types": ["input", "output"]}
    assert (await ask(client, "/v1/checks", {"messages": messages, "guardrails": both}))[0] == 500
    assert (await ask(client, "/v1/checks", {"messages": messages}))[1]["status"] == "passed"


async def test_a_change_beside_the_texts_is_an_error_where_an_answer_has_texts_alone(serve: Serve) -> None:
    class ChangesRoles:
        def on_request(self, request: GenerationRequest) -> GenerationRequest:
            return replace(request, messages=tuple({**one, "role": "tool"} for one in request.messages))

        def __call__(self, chunk: Chunk) -> Verdict:
            return emit(chunk.pending)

    client = await serve(NoEngine(), ChangesRoles(), guard_api=APIS)
    content = [{"text": {"text": "Hi"}}]
    for path, body in (
        ("/request", {"body": {"messages": [FINE]}}),
        ("/guardrail/weir/version/1/apply", {"source": "INPUT", "content": content}),
    ):
        assert (await ask(client, path, body))[0] == 500


@pytest.mark.parametrize(
    "hidden",
    [
        call(input=MAIL),
        call(arguments=MAIL),
        call(type="custom", custom={"name": "run", "input": MAIL}),
        call(function={"name": "run", "arguments": "{}", "more": {"to": MAIL}}),
        call(function={"name": "run"}, more=MAIL),
        call(function=MAIL),
    ],
    ids=str,
)
async def test_all_of_a_tool_call_is_judged(client: Client, hidden: Any) -> None:
    body = {"input_type": "response", "texts": ["Done."], "tool_calls": [call(), hidden]}
    _, answer = await ask(client, LITELLM, body)
    assert answer == {"action": "BLOCKED", "blocked_reason": "tool_call"}
    message = {"role": "assistant", "content": "Done.", "tool_calls": [hidden]}
    assert (await ask(client, CHAT, {"messages": [message]}))[0] == 422
    harmless = call(provider_specific_fields={"signature": "c2lnbmVk"})
    _, answer = await ask(client, LITELLM, {**body, "tool_calls": [harmless]})
    assert answer == {"action": "NONE", "texts": ["Done."]}


async def test_a_detector_reports_where_another_hook_ended_the_text(client: Client) -> None:
    text = f"A blue bird. {'It sings. ' * 400} Write to {MAIL} now."
    _, (found,) = await ask(client, CONTENTS, {"contents": [text]}, "hook0")
    assert [one["detection_type"] for one in found] == ["hook1"]
    _, (found,) = await ask(client, CONTENTS, {"contents": [f"Hi {MAIL} there"]}, "hook1")
    assert found == []
    messages = [{"role": "user", "content": "Sing of the blue bird."}]
    _, answer = await ask(client, CHAT, {"messages": messages}, "hook0")
    assert [one["detection_type"] for one in answer] == ["hook1"]


async def test_a_detector_that_reads_no_prompts_passes_none(client: Client) -> None:
    status, answer = await ask(client, CHAT, {"messages": [FINE]}, "hook2")
    assert (status, set(answer)) == (501, {"code", "message"})
    message = {"role": "assistant", "content": "Hi"}
    assert await ask(client, CHAT, {"messages": [message]}, "hook2") == (200, [])


@pytest.mark.parametrize("in_workers", [False, True])
async def test_a_hook_that_did_not_run_is_no_detector(serve: Serve, in_workers: bool) -> None:
    if in_workers:
        pipeline: Any = WorkerPool(1, [HookSpec("pii")], [HookSpec("secrets")])
    else:
        pipeline = Pipeline([LoadedHook.of("pii", Pii())], [LoadedHook.of("secrets", Secrets())])
    client = await serve(NoEngine(), pipeline=pipeline, guard_api=APIS)
    assert (await ask(client, CONTENTS, {"contents": ["Hi"]}, "secrets"))[0] == 404
    assert await ask(client, CONTENTS, {"contents": ["Hi"]}, "pii") == (200, [[]])


def counts_turns(judged: list[int]) -> Callable[[Chunk], Verdict]:
    """A hook that notes at the end of each text how often the event loop ran between two texts."""
    turns: list[None] = []

    def answer(chunk: Chunk) -> Verdict:
        if chunk.is_final:
            judged.append(len(turns))
            asyncio.get_running_loop().call_soon(turns.append, None)
        return emit(chunk.pending)

    return answer


async def test_other_requests_are_served_between_two_texts(serve: Serve) -> None:
    judged: list[int] = []
    client = await serve(NoEngine(), Script(counts_turns(judged)), guard_api=APIS)
    for fields in ({}, {"litellm_call_id": "c"}):
        judged.clear()
        body = {"input_type": "response", "texts": ["x"] * 50, **fields}
        assert (await ask(client, LITELLM, body))[0] == 200
        assert len(set(judged)) == len(judged) == 50


async def test_other_requests_are_served_between_two_texts_that_end(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_texts, "LOOK_INTERVAL", 0.01)
    judged: list[int] = []
    client = await serve(NoEngine(), Script(counts_turns(judged)), guard_api=APIS)
    for text in ("x", "xy"):
        body = {"input_type": "response", "texts": [text] * 20, "litellm_call_id": "c"}
        assert (await ask(client, LITELLM, body))[0] == 200
    judged.clear()
    monkeypatch.setattr(open_texts, "IDLE_SECONDS", 0.0)
    await until(lambda: len(judged) == 20)
    assert len(set(judged)) == 20
