"""Hooks that read prompts, as clients of each endpoint see them (contract 8.1 and 8.6 to 8.9)."""

from hashlib import sha256
from typing import Any

import pytest

from engine.protocol import GenerationRequest
from hooks import prompt_texts
from hooks.loading.loader import HookSpec
from tests.contract.case import Case, end, everywhere, guard, said, well
from tests.contract.wire import ENDPOINTS
from tests.helpers import ScriptedEngine

FIELDS = {"chat": "messages", "completions": "prompt", "responses": "input", "messages": "messages"}


def every_output(request: GenerationRequest) -> list[Any]:
    return [
        one for i in range(request.num_outputs) for one in (*said("content", "ok", index=i), end(index=i))
    ]


@everywhere()
async def test_a_refused_prompt_is_a_400_with_the_reason(case: Case) -> None:  # contract 8.8
    case.withholds("hunter2")
    answer = await case.answer(well("content"), guard("Reads"), prompt="it is hunter2")
    assert answer.error is not None
    assert (answer.status, answer.error.kind) == (400, "invalid_request_error")
    place = "" if case.endpoint.can("error_code") else f" (in {FIELDS[case.endpoint.name]})"
    assert answer.error.message == "The prompt was refused: no_passwords" + place
    if case.endpoint.can("error_code"):
        assert (answer.error.code, answer.error.param) == ("content_filter", FIELDS[case.endpoint.name])
    assert case.engine.requests == []


@everywhere()
async def test_a_refusal_with_a_text_is_an_answer(case: Case) -> None:  # contract 8.8, 6.1
    case.withholds("hunter2")
    hooks = (guard("Reads", text="I cannot."), guard("Shouts"))
    answer = await case.answer(well("content"), *hooks, prompt="hunter2, please")
    assert (answer.only.content, *answer.ended) == ("I CANNOT.", "content_filter", "no_passwords")
    assert answer.usage == (0, 0)
    assert case.engine.requests == []


@everywhere("outputs")
async def test_every_output_gets_the_refusals_text(case: Case) -> None:  # contract 8.8
    answer = await case.answer(well("content"), guard("Reads", text="I cannot."), prompt="hunter2", n=3)
    assert [(one.content, one.finish) for one in answer.outputs] == [("I cannot.", "content_filter")] * 3


@everywhere()
async def test_the_engine_and_hooks_get_the_changed_prompt(case: Case) -> None:  # contract 8.1, 8.6, 8.7
    engine = ScriptedEngine(every_output)
    answer = await case.answer(engine, guard("Reads"), prompt="say bluebird", user="u1")
    (request,) = engine.requests
    assert [text.text for text in prompt_texts(request) if text.text.startswith("say")] == ["say [name]"]
    assert request.user == sha256(b"u1").hexdigest()
    assert request.stream == case.streams
    (reads,) = case.hooks
    shown = [text.text for chunk in reads.chunks for text in prompt_texts(chunk.request)]
    assert "say [name]" in shown
    assert "say bluebird" not in shown
    assert answer.only.content == "ok"


@everywhere()
async def test_a_hook_that_fails_on_a_prompt_is_a_500(case: Case) -> None:  # contract 4.2, 8.1
    case.withholds("hunter2")
    answer = await case.answer(well("content"), guard("Reads", raises=True), prompt="hunter2")
    assert answer.error is not None
    assert (answer.status, answer.error.kind) == (500, case.endpoint.guardrail_error)
    assert case.engine.requests == []


@everywhere()
async def test_a_hook_may_change_prompts_alone(case: Case) -> None:  # contract 8.7
    answer = await case.answer(well("content"), guard("ChangesTheModel"))
    assert answer.error is not None
    assert (answer.status, answer.error.kind) == (500, case.endpoint.guardrail_error)
    assert case.engine.requests == []


@everywhere()
@pytest.mark.parametrize("field", ["stop", "lead"])
async def test_hooks_see_the_lead_and_stop_strings(case: Case, field: str) -> None:  # contract 8.1, 8.6
    value = ["hunter2"] if field == "stop" else "hunter2"
    answer = await case.answer(well("content"), guard("Reads"), **{field: value})
    assert answer.status == 400
    assert case.engine.requests == []


@everywhere("tool_call")
async def test_hooks_see_the_names_of_tools(case: Case) -> None:  # contract 8.1, 8.6
    tools = case.endpoint.tools("hunter2")
    answer = await case.answer(well("content"), guard("Reads"), tools=tools)
    assert answer.status == 400
    assert case.engine.requests == []


@everywhere("tool_call")
@pytest.mark.parametrize("name", ["get_zebra7", "getZebra7", "find-my.zebra7"])
async def test_hooks_see_the_words_of_names(case: Case, name: str) -> None:  # contract 8.1, 8.6, 8.7
    tools = case.endpoint.tools(name)
    args = {"phrases": ["zebra7"], "channels": ["reasoning"]}
    args["of"] = ["definition"]
    refuses, redacts = [HookSpec("phrases", {**args, "prompt": action}) for action in ("refuse", "redact")]
    assert (await case.answer(well("content"), refuses, tools=tools)).status == 400
    assert case.engine.requests == []
    assert (await case.answer(well("content"), redacts, tools=tools)).status == 200
    (changed,) = case.engine.requests[0].tool_names
    assert changed.endswith("_phrase")


HUNTER = "hunter2"
SCHEMA = {"title": HUNTER, "type": "object"}
TURN = {"role": "user", "content": "Hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "hunter2"}'}}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t"}
TEXT = {"type": "text", "text": HUNTER}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": blocks}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": blocks}


TEXTS: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {"messages": [user(TEXT)]},
        {"messages": [{"role": "system", "content": HUNTER}, TURN]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}]},
        {"messages": [{"role": "tool", "tool_call_id": "c", "content": HUNTER}]},
        {"messages": [{"role": "user", "name": HUNTER, "content": "Hi"}]},
        {"messages": [{"role": "user", "content": "Hi", "more": {"a": [HUNTER]}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "description": HUNTER}}]},
        {"documents": [{"text": HUNTER}]},
        {"chat_template_kwargs": {"greeting": HUNTER}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
    ],
    "completions": [{"prompt": ["Hi", HUNTER]}, {"some_field": HUNTER}],
    "responses": [
        {"instructions": HUNTER},
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": "hunter2"}'}]},
        {"input": [{"type": "function_call_output", "call_id": "c", "output": HUNTER}]},
        {"input": [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": HUNTER}]}]},
        {"tools": [{"type": "function", "name": "f", "description": HUNTER}]},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
    ],
    "messages": [
        {"system": HUNTER},
        {"system": [TEXT]},
        {"messages": [user(TEXT)]},
        {"messages": [{"role": "system", "content": HUNTER}, TURN]},
        {"messages": [TURN, assistant({"type": "thinking", "thinking": HUNTER}), TURN]},
        {"messages": [TURN, assistant({**USE, "input": {"a": HUNTER}}), user({**RESULT, "content": "ok"})]},
        {"messages": [TURN, assistant({**USE, "name": HUNTER}), user({**RESULT, "content": "ok"})]},
        {"messages": [TURN, assistant(USE), user({**RESULT, "content": HUNTER})]},
        {"messages": [TURN, assistant(USE), user({**RESULT, "content": [TEXT]})]},
        {"messages": [user({"type": "document", "title": HUNTER, "source": PDF})]},
        {"messages": [user({"type": "document", "source": {"type": "text", "data": HUNTER}})]},
        {"tools": [{"name": "f", "description": HUNTER, "input_schema": {"type": "object"}}]},
        {"tools": [{"name": "f", "input_schema": SCHEMA}]},
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ],
}


@pytest.mark.parametrize(
    ("case", "fields"),
    [((one, False), fields) for one in ENDPOINTS for fields in TEXTS[one.name]],
    indirect=["case"],
    ids=[f"{one}-{i}" for one in ENDPOINTS for i, _ in enumerate(TEXTS[one.name])],
)
async def test_hooks_see_every_text_of_a_prompt(case: Case, fields: dict[str, Any]) -> None:
    """Contract 8.1, 8.6."""
    client = await case.start(well("content"), guard("Reads"))
    asked = {name: value for name, value in case.body().items() if name not in fields}
    status, body, _ = await client.post(case.endpoint.path, {**asked, **fields})
    assert (status, case.engine.requests) == (400, []), body
    assert "no_passwords" in str(body)
    assert HUNTER not in str(body)


@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2]]])
@everywhere("prompt_ids")
async def test_ids_that_hooks_cannot_read_are_refused(case: Case, prompt: Any) -> None:  # contract 8.9
    answer = await case.answer(well("content"), guard("Reads"), prompt=prompt)
    assert answer.error is not None
    assert (answer.status, answer.error.param) == (400, "prompt")
    assert case.engine.requests == []
