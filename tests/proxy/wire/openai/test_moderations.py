"""Moderations: texts that the server's hooks judge, told in the shape of OpenAI's own."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from openai import AsyncOpenAI, NotFoundError
from openai.types import ModerationCreateResponse
from pydantic import ValidationError

from hooks import (
    Chunk,
    Decision,
    GenerationRequest,
    Verdict,
    emit,
    hold,
    redact,
    refuse,
    rewind,
    suppress,
    suspect,
    terminate,
)
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.remote import Remote
from hooks.loading.loader import HookSpec, LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.pipeline import Pipeline
from hooks.workers.pool import WorkerPool
from proxy.http.moderate import PIECE
from proxy.settings.serve import ServeSettings
from tests.helpers import Script, ScriptedEngine, until
from tests.proxy.conftest import CHAT, Client, Serve, hello

URL = "/v1/moderations"
MAIL = "Write to ada@initech.com today."


@pytest.fixture
def judge(serve: Serve) -> Any:
    """Start a server that judges texts by these hooks."""

    async def start(*hooks: Any, **options: Any) -> Client:
        return await serve(ScriptedEngine(hello), *hooks, moderations=True, **options)

    return start


async def one(client: Client, text: Any, **fields: Any) -> dict[str, Any]:
    """The result for one input."""
    status, answer, _ = await client.post(URL, {"input": text, **fields})
    assert status == 200, answer
    (result,) = answer["results"]
    return result


def fails(chunk: Chunk) -> Verdict:
    if "ada" in chunk.text:
        raise ValueError(chunk.pending)
    return emit(chunk.pending)


def told(result: dict[str, Any], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(decision[name] for name in names) for decision in result["decisions"]]


async def test_openais_client_reads_the_result_strictly(judge: Any) -> None:
    client = await judge(Pii())
    async with AsyncOpenAI(base_url=client.url + "/v1", api_key="-", http_client=None) as sdk:
        raw = await sdk.moderations.with_raw_response.create(input=["Fine.", MAIL])
    answer = ModerationCreateResponse.model_validate_json(raw.text, strict=True)
    assert answer.model == "weir-guards"
    assert [result.flagged for result in answer.results] == [False, True]
    for result in answer.results:
        assert not any(result.categories.model_dump().values())
        assert not any(result.category_scores.model_dump().values())


async def test_a_decision_tells_the_hook_the_reason_and_the_place_and_never_the_text(
    judge: Any,
) -> None:  # contract 8.13
    client = await judge(Pii())
    result = await one(client, MAIL)
    assert result["decisions"] == [
        {
            "hook": "hook0",
            "action": "redact",
            "reason": "EMAIL_ADDRESS",
            "mode": "enforce",
            "channel": "content",
            "part": 0,
            "start": MAIL.index("ada"),
            "end": MAIL.index(" today"),
        }
    ]


@pytest.mark.parametrize(
    ("verdict", "action"),
    [
        (suppress("s"), "suppress"),
        (terminate("t", after=1), "terminate"),
        (rewind("r", after=1), "terminate"),
        (redact([(1, 2, "", "d")]), "redact"),
        (emit("other"), "rewrite"),
    ],
)
async def test_a_text_that_a_hook_does_not_let_pass_is_flagged(  # contract 8.13
    judge: Any, verdict: Verdict, action: str
) -> None:
    hook = Script(lambda chunk: verdict if chunk.text_diff else emit(chunk.pending))
    hook.may_rewind = True  # type: ignore[attr-defined]
    result = await one(await judge(hook), "abc")
    assert (result["flagged"], told(result, "action")) == (True, [(action,)])


async def test_a_text_that_was_only_held_is_not_flagged(judge: Any) -> None:
    hook = Script(lambda chunk: emit(chunk.pending) if chunk.is_final else hold())
    result = await one(await judge(hook), "abc")
    assert (result["flagged"], result["decisions"]) == (False, [])


async def test_a_suspicion_is_told_and_flags_nothing(judge: Any) -> None:  # contract 8.13
    hook = Script(lambda chunk: suspect("odd") if chunk.text_diff else emit(chunk.pending))
    result = await one(await judge(hook), "abc")
    assert (result["flagged"], told(result, "action")) == (False, [("suspect",)])


async def test_how_much_was_judged_is_not_told(judge: Any) -> None:  # contract 8.13
    hook = Script(lambda chunk: emit(chunk.pending))
    hook.judges = True  # type: ignore[attr-defined]
    result = await one(await judge(hook), "abc")
    assert (result["flagged"], result["decisions"]) == (False, [])


class ReadsPrompts:
    """Refuses one prompt, answers another itself, and changes a third. Lets every answer pass."""

    def __init__(self) -> None:
        self.requests: list[GenerationRequest] = []
        self.chunks: list[Chunk] = []

    def on_request(self, request: GenerationRequest) -> Any:
        self.requests.append(request)
        if request.prompts == ("refuse",):
            return refuse("no")
        if request.prompts == ("answer",):
            return refuse("no", text="instead")
        return replace(request, prompts=("new",)) if request.prompts == ("change",) else request

    def __call__(self, chunk: Chunk) -> Verdict:
        self.chunks.append(chunk)
        return emit(chunk.pending)


async def test_a_text_is_a_prompt_and_an_answer_without_a_prompt(judge: Any) -> None:  # contract 8.13
    hook = ReadsPrompts()
    await one(await judge(hook), "Hi", user="ada")
    (request,) = [one for one in hook.requests if one.endpoint == "moderations"]
    assert (request.prompts, request.user) == (("Hi",), "ada")
    chunks = [chunk for chunk in hook.chunks if chunk.request.endpoint == "moderations"]
    assert {(c.channel, c.request.prompts, c.lead, c.request.user) for c in chunks} == {
        ("content", (), "", "ada")
    }
    assert "".join(chunk.text_diff for chunk in chunks) == "Hi"
    assert [(c.is_final, c.is_cut, c.aborted) for c in chunks][-1] == (True, False, False)


@pytest.mark.parametrize(
    ("text", "action", "reason"),
    [("refuse", "refuse", "no"), ("answer", "refuse", "no"), ("change", "rewrite_prompt", None)],
)
async def test_a_hook_on_prompts_flags_a_text(judge: Any, text: str, action: str, reason: str) -> None:
    client = await judge(ReadsPrompts(), Phrases(["instead"]))
    result = await one(client, text)
    assert result["flagged"]
    assert told(result, "action", "reason", "channel", "part", "start", "end") == [
        (action, reason, "prompt", None, None, None)
    ]


async def test_a_hook_in_shadow_mode_is_told_and_flags_nothing(serve: Serve) -> None:  # contract 8.13
    hooks = [LoadedHook.of(name, hook, is_shadow=True) for name, hook in (("p", Pii()), ("f", Script(fails)))]
    client = await serve(ScriptedEngine(hello), pipeline=Pipeline(hooks), moderations=True)
    result = await one(client, MAIL)
    assert not result["flagged"]
    assert sorted(told(result, "hook", "action", "mode", "reason"), key=str) == [
        ("f", "error", "shadow", None),
        ("p", "redact", "shadow", "EMAIL_ADDRESS"),
    ]


async def test_the_place_of_a_match_does_not_depend_on_the_pieces(judge: Any) -> None:
    client = await judge(Phrases(["hunter2"], action="terminate"))
    for before in (0, PIECE - 3, PIECE, 3 * PIECE - 1):
        result = await one(client, "x " * (before // 2) + " hunter2" + " y" * PIECE)
        assert told(result, "action", "start", "end") == [("terminate", 2 * (before // 2) + 1, None)]


async def test_the_parts_of_one_text_have_one_result(judge: Any) -> None:
    parts = [{"type": "text", "text": text} for text in ("Fine.", MAIL)]
    result = await one(await judge(Pii()), parts)
    assert told(result, "part", "start") == [(1, MAIL.index("ada"))]


async def test_a_hook_that_ends_one_text_ends_no_other(judge: Any) -> None:
    client = await judge(Phrases(["hunter2"], action="terminate"))
    status, answer, _ = await client.post(URL, {"input": ["hunter2", "Fine.", "hunter2", ""]})
    assert (status, [result["flagged"] for result in answer["results"]]) == (200, [True, False, True, False])


async def test_a_request_may_name_a_hook_that_the_server_allows(serve: Serve) -> None:
    pipeline = Pipeline([], [LoadedHook.of("pii", Pii())])
    client = await serve(ScriptedEngine(hello), pipeline=pipeline, moderations=True)
    assert (await one(client, MAIL, hooks=["pii"]))["flagged"]
    status, answer, _ = await client.post(URL, {"input": MAIL})
    assert (status, answer["error"]["type"]) == (501, "server_error")


async def test_a_hook_that_fails_fails_the_request(judge: Any) -> None:  # contract 8.13
    client = await judge(Script(fails))
    status, answer, _ = await client.post(URL, {"input": ["Fine.", MAIL]})
    assert (status, answer["error"]["type"]) == (500, "guardrail_error")
    assert "ada" not in str(answer)


@pytest.mark.parametrize(
    ("body", "param", "status"),
    [
        ({"input": "a", "model": "omni-moderation-latest"}, "model", 404),
        ({"input": "a", "hooks": ["other"]}, "hooks", 400),
        ({"input": "a", "threshold": 1}, "threshold", 400),
        ({"input": [{"type": "image_url", "image_url": {"url": "data:,"}}]}, "input.0.image_url", 400),
        ({"input": [{"type": "text", "text": "a", "more": 1}]}, "input.0.text.more", 400),
        ({"input": []}, "input", 400),
        ({"input": [1]}, "input.0", 400),
        ({}, "input", 400),
    ],
)
async def test_a_field_that_is_not_taken_is_named(judge: Any, body: Any, param: str, status: int) -> None:
    answered, answer, _ = await (await judge(Pii())).post(URL, body)
    assert (answered, answer["error"]["param"]) == (status, param), answer


async def test_no_decision_is_told_without_the_setting(serve: Serve) -> None:  # contract 8.13
    client = await serve(ScriptedEngine(hello), Pii())
    status, answer, _ = await client.post(URL, {"input": MAIL})
    assert (status, list(answer)) == (501, ["error"])
    assert "--moderations" in answer["error"]["message"]


async def test_listeners_hear_the_decisions_too(judge: Any) -> None:
    class Listens(ReadsPrompts):
        def __init__(self) -> None:
            super().__init__()
            self.heard: list[Decision] = []

        def on_decision(self, decision: Decision) -> None:
            self.heard.append(decision)

    listener = Listens()
    result = await one(await judge(Pii(), listener), MAIL)
    heard = [(d.hook, d.action, d.endpoint) for d in listener.heard if d.action != "hold"]
    assert heard == [("hook0", "redact", "moderations")]
    assert told(result, "hook") == [("hook0",)]


async def test_others_are_served_while_a_long_text_is_judged(judge: Any) -> None:
    seen: list[Chunk] = []

    def look(chunk: Chunk) -> Verdict:
        seen.append(chunk)
        return emit(chunk.pending)

    client = await judge(Script(look))
    async with asyncio.TaskGroup() as tasks:
        long = tasks.create_task(one(client, "word " * 100_000))
        await until(lambda: any(chunk.request.endpoint == "moderations" for chunk in seen))
        status, _, _ = await client.post("/v1/chat/completions", CHAT)
        assert (status, long.done()) == (200, False)
    assert not long.result()["flagged"]


@pytest.fixture
async def workers() -> WorkerPool:
    specs = [
        HookSpec("pii", args={"prompt": "refuse"}),
        HookSpec("phrases", args={"phrases": ["ada"]}, mode="shadow"),
    ]
    return WorkerPool(1, specs, options=PipelineOptions())


async def test_hook_workers_judge_as_the_service_would(serve: Serve, workers: WorkerPool) -> None:
    pipeline = await Pipeline.load(workers.setup.specs)
    here, there = [
        await serve(ScriptedEngine(hello), pipeline=one, moderations=True) for one in (pipeline, workers)
    ]
    for text in (MAIL, "Fine.", "ada"):
        assert await one(there, text) == await one(here, text)
    assert told(await one(there, MAIL), "hook", "action", "mode") == [
        ("pii", "refuse", "enforce"),
        ("pii", "redact", "enforce"),
    ]
    assert told(await one(there, "ada"), "hook", "mode") == [("phrases", "shadow")]


async def test_one_service_asks_another_for_its_guards(judge: Any) -> None:
    guards = await judge(Pii())
    client = await judge(Remote(guards.url + URL, action="terminate"))
    assert not (await one(client, "Fine."))["flagged"]
    result = await one(client, MAIL)
    assert (result["flagged"], told(result, "reason")) == (True, [("flagged",)])


async def test_a_judged_text_is_counted_as_a_request(judge: Any) -> None:
    client = await judge(Pii())
    await one(client, "Fine.")
    _, metrics = await client.get("/metrics")
    assert b'weir_requests_total{endpoint="moderations",outcome="finished"} 1.0' in metrics


async def test_an_unknown_model_is_an_error_of_the_clients(judge: Any) -> None:
    client = await judge(Pii())
    async with AsyncOpenAI(base_url=client.url + "/v1", api_key="-", max_retries=0) as sdk:
        with pytest.raises(NotFoundError, match="weir-guards"):
            await sdk.moderations.create(input="a", model="omni-moderation-latest")


async def test_reasons_are_categories_if_the_operator_says_so(serve: Serve) -> None:
    api = {"name": "moderations", "categories": {"PHONE.*|EMAIL.*": "illicit", "CREDIT_CARD": "violence"}}
    client = await serve(ScriptedEngine(hello), Pii(), guard_api=[api])
    found = await one(client, MAIL)
    assert [name for name, is_found in found["categories"].items() if is_found] == ["illicit"]
    assert found["category_scores"]["illicit"] == 1.0
    assert found["category_applied_input_types"]["illicit"] == ["text"]
    assert not any((await one(client, "Fine."))["categories"].values())


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "moderations", "categories": {"(": "hate"}},
        {"name": "moderations", "categories": {"x": "rude"}},
        {"name": "litellm", "categories": {"x": "hate"}},
        {"name": "openai"},
    ],
)
def test_wrong_protocols_and_categories_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"guard_api"):
        ServeSettings(guard_api=[wrong])
