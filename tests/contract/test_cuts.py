"""Where a client chose the end of an output, guards withhold what they hold (contract 2.9, 3.12)."""

from collections.abc import Mapping
from typing import Any

import pytest

from engine.backends.echo import EchoEngine
from engine.backends.openai.engine import OpenAIEngine
from hooks.loading.loader import HookSpec
from tests.contract.case import Case, everywhere, guard
from tests.engine.backends.conftest import fake_upstream

PHRASES = HookSpec("phrases", {"phrases": ["project bluebird"]})
SECRETS = HookSpec("secrets", {})
CALL = '<tool_call>{"name": "f", "arguments": {"a": "TEXT"}}</tool_call>'
FORMS = {"inside": CALL, "behind": CALL.replace("TEXT", "x") + " TEXT"}


@everywhere("tool_call")
@pytest.mark.parametrize("form", [*FORMS])
@pytest.mark.parametrize(
    ("text", "stop", "spec", "beginning"),
    [
        ("Project Bluebird", "bird", PHRASES, "Project Blue"),
        ("key AKIAIOSFODNN7EXAMPLE", "AMPLE", SECRETS, "AKIAIOSF"),
    ],
)
async def test_a_stop_string_inside_or_behind_a_tool_call_is_a_cut(
    case: Case, form: str, text: str, stop: str, spec: HookSpec, beginning: str
) -> None:  # contract 2.9, 3.12
    case.withholds(beginning)
    prompt = FORMS[form].replace("TEXT", text)
    await case.answer(
        EchoEngine(), spec, guard("Looks"), prompt=prompt, stop=[stop], tool_call_parser="hermes"
    )
    assert all(chunk.is_cut for chunk in case.hooks[1].finals)


@everywhere("tool_call")
@pytest.mark.parametrize("reason", ["tool_calls", "stop", "stop_sequence"])
async def test_an_end_that_may_be_a_stop_string_of_an_upstream_is_a_cut(case: Case, reason: str) -> None:
    """Contract 2.9: a parser of the upstream may say `tool_calls` for it."""
    case.withholds("Project Blue")
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": "Project Blue'}}
    frames = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        b"data: [DONE]\n\n",
    ]
    async with fake_upstream() as upstream:
        upstream.script = lambda body: frames
        await case.answer(OpenAIEngine(upstream.url), PHRASES, guard("Looks"), stop=["bird"])
    assert all(chunk.is_cut for chunk in case.hooks[1].finals)


@everywhere()
@pytest.mark.parametrize("reason", ["repetition", "stop_sequence", "pause_turn", "MAX_TOKENS", None])
async def test_an_end_that_an_upstream_does_not_call_the_model_s_own_is_a_cut(
    case: Case, reason: str | None
) -> None:  # contract 2.9
    case.withholds("Project Blue")
    text = "It is Project Blue"

    def script(body: Mapping[str, Any]) -> list[Any]:
        said = {"delta": {"content": text}} if "messages" in body else {"text": text}
        return [{"choices": [{"index": 0, **said, "finish_reason": reason}]}, b"data: [DONE]\n\n"]

    async with fake_upstream() as upstream:
        upstream.script = script
        answer = await case.answer(OpenAIEngine(upstream.url), PHRASES)
    assert answer.only.content == "It is "
