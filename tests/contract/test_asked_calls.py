"""A person decides on a tool call, on every endpoint (contract 3.21)."""

import asyncio
from hashlib import sha256
from typing import Any

import pytest
from pydantic import SecretStr

from engine.protocol import Delta, Deltas, GenerationRequest
from hooks.loading.loader import HookSpec
from proxy.service.approvals import digest_of
from tests.contract.case import Answer, Case, end, everywhere, guard, said
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import Client
from tests.proxy.http.admin.conftest import ADMIN, OPERATOR, ask

SETTINGS: dict[str, Any] = {"admin_key": [SecretStr(ADMIN)], "store": SecretStr("sqlite:///:memory:")}
CALL = '{"a":"well zebra7 more"}'
SCRIPT = [
    *said("content", "I look."),
    *said("tool_call", "well ", "zeb", "ra7", " more", first_id=200),
    end("tool_calls"),
]


async def waiting(client: Client, num: int = 1) -> list[dict[str, Any]]:
    """The calls that wait, once there are `num`."""
    while len(data := (await ask(client, "GET", "/admin/approvals"))[1]["data"]) < num:
        pass
    return list(data)


async def decide(client: Client, call: dict[str, Any], *, approve: bool, **fields: Any) -> int:
    body = {"approve": approve, "digest": call["digest"], **fields}
    return (await ask(client, "POST", f"/admin/approvals/{call['id']}", body))[0]


async def asked(case: Case, script: list[Delta], approve: bool, *hooks: Any, **options: Any) -> Answer:
    """The answer, if a person decides so on every call that waits."""
    client = await case.start(script, *(hooks or [guard("Asks", word="zebra7")]), **SETTINGS, **options)
    async with asyncio.TaskGroup() as group:
        answer = group.create_task(case.ask(client))
        for call in await waiting(client):
            assert await decide(client, call, approve=approve) == 200
    return answer.result()


@everywhere("tool_call")
async def test_an_approved_call_leaves_as_the_person_read_it(case: Case) -> None:
    client = await case.start(SCRIPT, guard("Asks", word="zebra7"), **SETTINGS)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(case.ask(client))
        (call,) = await waiting(client)
        assert (call["tool"], call["arguments"], call["hook"], call["reason"]) == ("f", CALL, "Asks", "odd")
        assert call["digest"] == digest_of("f", CALL)
        assert not task.done()
        assert await decide(client, call, approve=True) == 200
        assert await decide(client, call, approve=False) == 404
    output = task.result().only
    assert (output.content, output.calls) == ("I look.", [("f", CALL)])
    assert output.finish == ("tool_calls" if case.endpoint.can("finish_tool_calls") else "stop")


@everywhere("tool_call")
async def test_a_refused_call_is_no_call(case: Case) -> None:
    answer = await asked(case, SCRIPT, False)
    assert (answer.only.content, answer.only.calls) == ("I look.\n\n[refused]", [])
    assert answer.only.finish == "stop"
    assert b"zebra7" not in answer.raw


@everywhere("tool_call")
@pytest.mark.parametrize("options", [{"approval_timeout": 0.05}, {"admin_key": []}], ids=["late", "nobody"])
async def test_no_answer_is_a_refusal(case: Case, options: Any) -> None:
    settings = {**SETTINGS, **options}
    client = await case.start(SCRIPT, guard("Asks", word="zebra7", text=None), **settings)
    case.withholds("zebra7")
    output = (await case.ask(client)).only
    assert (output.content, output.calls, output.finish) == ("I look.", [], "stop")


@everywhere("tool_call")
async def test_only_the_call_waits(case: Case) -> None:
    script = [
        *said("tool_call", "well zebra7 more"),
        *said("tool_call", "plain", first_id=200, call=1, name="g"),
        end("tool_calls"),
    ]
    answer = await asked(case, script, True)
    assert sorted(answer.only.calls) == [("f", CALL), ("g", '{"a":"plain"}')]
    refused = await asked(case, script, False)
    assert refused.only.calls == [("g", '{"a":"plain"}')]
    assert refused.only.finish == ("tool_calls" if case.endpoint.can("finish_tool_calls") else "stop")


@everywhere("tool_call")
async def test_an_output_whose_calls_are_all_refused_has_no_call(case: Case) -> None:
    script = [
        *said("tool_call", "well zebra7 more"),
        *said("tool_call", "zebra7", first_id=200, call=1, name="g"),
        end("tool_calls"),
    ]
    client = await case.start(script, guard("Asks", word="zebra7"), **SETTINGS)
    async with asyncio.TaskGroup() as group:
        answer = group.create_task(case.ask(client))
        for call in await waiting(client, 2):
            assert await decide(client, call, approve=False) == 200
    output = answer.result().only
    assert (output.content, output.calls, output.finish) == ("[refused]\n\n[refused]", [], "stop")


@everywhere("tool_call")
async def test_a_decision_has_the_name_that_hooks_know(case: Case) -> None:  # contract 8.17
    script = [*said("tool_call", "well zebra7 more", name="get_phrase"), end("tool_calls")]
    masks = HookSpec("phrases", {"phrases": ["bluebird"], "channels": ["content"], "prompt": "redact"})
    client = await case.start(script, masks, guard("Asks", word="zebra7"), **SETTINGS)
    headers = OPERATOR | {"X-Weir-Decisions": "true"}
    async with asyncio.TaskGroup() as group:
        tools = case.endpoint.tools("get_bluebird")
        answer = group.create_task(case.ask(client, headers=headers, tools=tools))
        (call,) = await waiting(client)
        assert call["tool"] == "get_bluebird"
        await decide(client, call, approve=True)
    assert [name for name, _ in answer.result().only.calls] == ["get_bluebird"]
    told = [(one["action"], one["tool_name"]) for _, one in answer.result().told if "action" in one]
    assert {("ask", "get_phrase"), ("approve", "get_phrase")} <= {*told}


@everywhere("tool_call")
async def test_an_answer_about_another_call_decides_nothing(case: Case) -> None:
    client = await case.start(SCRIPT, guard("Asks", word="zebra7"), **SETTINGS)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(case.ask(client))
        (call,) = await waiting(client)
        assert await decide(client, call, approve=True, digest=digest_of("f", "{}")) == 409
        assert not task.done()
        assert await decide(client, call, approve=False) == 200
    assert task.result().only.calls == []


@everywhere("tool_call")
async def test_a_later_hook_can_still_withhold_the_call(case: Case) -> None:
    hooks = guard("Asks", word="well"), guard("Suppresses", word="zebra7")
    client = await case.start(SCRIPT, *hooks, **SETTINGS)
    case.withholds("zebra7")
    assert (await case.ask(client)).only.calls == []
    assert client.server.service.approvals.num_waiting == 0


@everywhere("tool_call")
async def test_in_shadow_mode_it_only_says_so(case: Case) -> None:
    client = await case.start(SCRIPT, guard("Asks", word="zebra7", mode="shadow"), **SETTINGS)
    answer = await case.ask(client, headers=OPERATOR | {"X-Weir-Decisions": "true"})
    assert answer.only.calls == [("f", CALL)]
    told = [(one["action"], one["mode"]) for _, one in answer.told if one.get("action") != "hold"]
    assert ("ask", "shadow") in told
    assert not {"approve", "deny"} & {action for action, _ in told}


@everywhere("tool_call")
async def test_text_that_is_no_call_is_no_question(case: Case) -> None:
    answer = await case.answer([*said("content", "zebra7"), end()], guard("Asks", word="zebra7"))
    assert answer.error is not None
    assert answer.error.kind in ("guardrail_error", "api_error")


@everywhere("tool_call")
async def test_without_whole_calls_it_suppresses(case: Case) -> None:
    hook = guard("Asks", word="zebra7")
    client = await case.start(SCRIPT, hook, **SETTINGS, tool_calls="stream")
    case.withholds("zebra7")
    await case.ask(client)
    assert client.server.service.approvals.num_waiting == 0


@everywhere("tool_call")
async def test_the_answer_is_a_decision_a_change_and_a_count(case: Case) -> None:
    client = await case.start(SCRIPT, guard("Asks", word="zebra7"), **SETTINGS)
    headers = OPERATOR | {"X-Weir-Decisions": "true"}
    async with asyncio.TaskGroup() as group:
        task = group.create_task(case.ask(client, headers=headers))
        (call,) = await waiting(client)
        await decide(client, call, approve=True)
    told = [one for _, one in task.result().told if one.get("action") in ("ask", "approve")]
    assert [one["action"] for one in told] == ["ask", "approve"]
    assert told[1]["reason"].startswith("admin-")
    (change,) = (await ask(client, "GET", "/admin/changes"))[1]["data"]
    assert (change["action"], change["object"]) == ("approve_call", call["id"])
    _, raw = await client.get("/metrics", headers=OPERATOR)
    assert b'weir_approvals_total{outcome="approved"} 1.0' in raw
    assert b"weir_approvals_waiting 0.0" in raw


@everywhere("tool_call")
async def test_a_request_that_ends_withdraws_its_questions(case: Case) -> None:
    client = await case.start(SCRIPT, guard("Asks", word="zebra7"), **SETTINGS)
    task = asyncio.get_running_loop().create_task(case.ask(client))
    (call,) = await waiting(client)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    while client.server.service.approvals.num_waiting:
        await ask(client, "GET", "/admin/approvals")
    assert await decide(client, call, approve=True) == 404
    assert client.server.service.approvals.outcomes == {"withdrawn": 1}


def test_the_digest_is_of_name_and_arguments() -> None:
    assert digest_of("f", "{}") != digest_of("f{", "}")
    assert digest_of("f", "{}") == sha256(b"f\0{}").hexdigest()


class Pauses(ScriptedEngine):
    """Says a call and a word, and then nothing until it is told to go on."""

    def __init__(self, rest: list[Delta]) -> None:
        super().__init__(lambda _: [])
        self.goes_on = asyncio.Event()
        self.rest = rest

    async def generate(self, request: GenerationRequest) -> Deltas:
        for delta in (*said("tool_call", "well zebra7 more"), *said("content", "Hm.", first_id=200)):
            yield delta
        await self.goes_on.wait()
        for delta in self.rest:
            yield delta


@everywhere("tool_call")
async def test_an_approved_call_leaves_at_once(case: Case) -> None:
    if not case.streams or case.endpoint.name == "messages":
        pytest.skip("a whole answer leaves at its end, and a stream of the Messages API has its calls last")
    engine = Pauses([end("tool_calls")])
    client = await case.start(engine, guard("Asks", word="zebra7"), **SETTINGS)
    body, url = case.body(), client.url + case.endpoint.path
    async with client.http.post(url, json=body) as response:
        (call,) = await waiting(client)
        assert await decide(client, call, approve=True) == 200
        seen = b""
        while b"zebra7" not in seen:
            seen += await response.content.readany()
        engine.goes_on.set()
        await response.read()


@everywhere("tool_call")
async def test_nothing_of_it_leaves_if_a_hook_ends_the_answer_meanwhile(case: Case) -> None:
    engine = Pauses([*said("content", " otter9", first_id=300), end("tool_calls")])
    hooks = guard("Asks", word="zebra7"), guard("Ends", word="otter9")
    client = await case.start(engine, *hooks, **SETTINGS)
    case.withholds("zebra7", "otter9")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(case.ask(client))
        await waiting(client)
        engine.goes_on.set()
    assert task.result().only.calls == []
    assert client.server.service.approvals.outcomes == {"withdrawn": 1}


@everywhere("tool_call")
async def test_a_server_that_stops_refuses_what_waits(case: Case) -> None:
    client = await case.start(SCRIPT, guard("Asks", word="zebra7"), **SETTINGS)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(case.ask(client))
        await waiting(client)
        client.server.service.approvals.end()
    assert task.result().only.calls == []
    assert task.result().only.finish == "stop"
