"""Tools whose names hooks change, as clients of every endpoint see them (contract 8.17)."""

import json
from typing import Any

import pytest

from engine.protocol import Delta, GenerationRequest
from hooks.loading.loader import HookSpec
from tests.contract.case import Case, end, everywhere
from tests.contract.test_calls import run
from tests.helpers import ScriptedEngine

pytestmark = pytest.mark.usefixtures("restore_key")

NAMES = ["get_zebra7", "getZebra7", "zebra7", "plain"]
MASKS = HookSpec("phrases", {"phrases": ["zebra7"], "prompt": "redact"})
RESTORES = HookSpec("phrases", {"phrases": ["zebra7"], "prompt": "redact", "restore": True})


def calls_all() -> ScriptedEngine:
    """A model that calls each of its tools once, by the names that it was shown."""

    def script(request: GenerationRequest) -> list[Delta]:
        calls = [run('{"a": 1}', index=i, name=name) for i, name in enumerate(request.tool_names)]
        return [*(delta for call in calls for delta in call), end("tool_calls")]

    return ScriptedEngine(script)


def conversation(case: Case, name: str) -> dict[str, Any]:
    """A conversation in which the tool was called, and is to be called again."""
    function = {"name": name, "arguments": "{}"}
    call = {"id": "c", "type": "function", "function": function}
    used = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": name, "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "done"}]},
    ]
    called = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": name, "content": "done"},
    ]
    items = [
        {"type": "function_call", "call_id": "c", **function},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
    ]
    turn = {"role": "user", "content": "Hi"}
    return {
        "chat": {
            "messages": [turn, *called],
            "tool_choice": {"type": "function", "function": {"name": name}},
        },
        "responses": {"input": [turn, *items], "tool_choice": {"type": "function", "name": name}},
        "messages": {"messages": [turn, *used], "tool_choice": {"type": "tool", "name": name}},
    }[case.endpoint.name]


@everywhere("tool_call")
@pytest.mark.parametrize("hook_workers", [0, 1])
@pytest.mark.parametrize("masks", [MASKS, RESTORES], ids=["redact", "restore"])
async def test_a_client_gets_calls_by_its_own_names(case: Case, masks: HookSpec, hook_workers: int) -> None:
    """Contract 8.17: several names that a hook makes alike stay different ones."""
    workers = {"hook_workers": hook_workers} if hook_workers else {}
    answer = await case.answer(calls_all(), masks, tools=case.endpoint.tools(*NAMES), **workers)
    assert [name for name, _ in answer.only.calls] == NAMES
    (request,) = case.engine.requests
    assert len({*request.tool_names}) == len(NAMES)
    assert "zebra7" not in str(request).lower()
    assert all(name.replace("_", "").replace("-", "").isalnum() for name in request.tool_names)


@everywhere("tool_call")
async def test_a_name_is_the_same_throughout_a_request(case: Case) -> None:  # contract 8.17
    for own in NAMES:
        answer = await case.answer(
            calls_all(), MASKS, tools=case.endpoint.tools(*NAMES), **conversation(case, own)
        )
        assert [name for name, _ in answer.only.calls] == NAMES
        (request,) = case.engine.requests
        shown = dict(zip(NAMES, request.tool_names, strict=True))[own]
        calls = [call for one in request.messages for call in one.get("tool_calls") or ()]
        assert [call["function"]["name"] for call in calls] == [shown]
        assert {one["name"] for one in request.messages if "name" in one} <= {shown}
        assert json.dumps(request.tool_choice).count(f'"{shown}"') == 1


@everywhere("tool_call")
async def test_a_name_that_the_caller_did_not_give_is_not_changed(case: Case) -> None:  # contract 8.17
    script = [*run('{"a": 1}', name="get_phrase_9"), end("tool_calls")]
    answer = await case.answer(script, MASKS, tools=case.endpoint.tools(*NAMES))
    assert [name for name, _ in answer.only.calls] == ["get_phrase_9"]


@everywhere("tool_call")
async def test_hooks_see_the_name_that_the_model_wrote(case: Case) -> None:  # contract 8.17
    rules = [{"tools": ["get_phrase"]}]
    policy = HookSpec("tools", {"rules": rules})
    answer = await case.answer(calls_all(), MASKS, policy, tools=case.endpoint.tools("get_zebra7", "plain"))
    assert [name for name, _ in answer.only.calls] == ["get_zebra7"]
