"""The fields of a request to the Messages API: what the engine gets, and what is refused."""

from typing import Any

import pytest

from engine.protocol import GenerationRequest
from tests.proxy.conftest import Serve
from tests.proxy.wire.messages.conftest import ASK, PATH, TOOL, saying


async def asked(serve: Serve, **fields: Any) -> GenerationRequest:
    engine = saying("Hello")
    status, body, _ = await (await serve(engine)).post(PATH, {**ASK, **fields})
    assert status == 200, body
    return engine.requests[-1]


async def test_the_engine_gets_a_chat(serve: Serve) -> None:
    request = await asked(
        serve,
        system=[
            {"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "brief."},
        ],
        temperature=0.5,
        top_p=0.9,
        top_k=5,
        stop_sequences=["END"],
        metadata={"user_id": "u"},
        service_tier="auto",
        cache_control=None,
    )
    assert request.endpoint == "messages"
    assert request.messages == (
        {"role": "system", "content": "Be\n\nbrief."},
        {"role": "user", "content": "Hi"},
    )
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (64, 0.5, 0.9, 5)
    assert sampling.stop == ("END",)
    assert request.user == "u"
    assert request.metadata == {}
    assert request.extra == {"service_tier": "auto"}


async def test_an_empty_system_prompt_is_none(serve: Serve) -> None:
    assert len((await asked(serve, system="")).messages) == 1


@pytest.mark.parametrize(
    ("choice", "in_chat"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
    ],
)
async def test_tools_and_their_choice_have_the_chats_form(serve: Serve, choice: Any, in_chat: Any) -> None:
    tool = {"type": "custom", "description": "d", "strict": True, **TOOL}
    request = await asked(serve, tools=[tool], tool_choice={**choice, "disable_parallel_tool_use": True})
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
    assert request.tools == ({"type": "function", "function": function},)
    assert request.tool_choice == in_chat
    assert not request.parallel_tool_calls


async def test_a_schema_and_the_effort_are_passed_on(serve: Serve) -> None:
    schema = {"type": "object"}
    config = {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}
    request = await asked(serve, output_config=config)
    assert request.extra["reasoning_effort"] == "low"
    assert request.extra["response_format"]["json_schema"]["schema"] == schema


@pytest.mark.parametrize(
    ("thinking", "extra"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, {}),
        ({"type": "adaptive", "display": "summarized"}, {}),
        ({"type": "between_tools"}, {}),
        ({"type": "disabled"}, {"chat_template_kwargs": {"enable_thinking": False}}),
    ],
)
async def test_every_form_of_thinking_is_answered(serve: Serve, thinking: Any, extra: Any) -> None:
    """What a chat has no words for is kept for an upstream of this API."""
    request = await asked(serve, thinking={**thinking, "other": "text"}, max_tokens=2000)
    assert request.extra == {**extra, "thinking": thinking}


async def test_a_mark_of_the_whole_prompt_and_edits_of_the_context_are_for_upstreams_of_this_api(
    serve: Serve,
) -> None:
    for mark in ({"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}):
        own = {"cache_control": mark, "context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}
        assert (await asked(serve, **own)).extra == own


async def test_an_answer_goes_on_from_the_assistants_last_turn(serve: Serve) -> None:
    turns = [*ASK["messages"], {"role": "assistant", "content": "Once"}]
    request = await asked(serve, messages=turns)
    assert request.messages[-1] == {"role": "assistant", "content": "Once"}
    assert request.extra == {"continue_final_message": True, "add_generation_prompt": False}


async def test_the_query_that_agents_add_changes_nothing(serve: Serve) -> None:
    client = await serve(saying("Hello"))
    assert (await client.post(f"{PATH}?beta=true", ASK))[0] == 200


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "x"}]}]}, "messages.0.content.0.type"),
        ({"tools": [{"name": "f"}]}, "tools.0.input_schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "g"}, "tools": [TOOL]}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}, "tools": [TOOL]}, "tool_choice"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "budget_tokens"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"n": 2}, "n must be 1"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_sequences": ["x"] * 1000}, "stop_sequences"),
        ({"system": [{"type": "text", "text": "x"}] * 5000}, "system"),
        ({"system": [{"type": "image", "source": {"type": "url", "url": "https://x"}}]}, "system"),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
                    }
                ]
            },
            "last turn",
        ),
    ],
)
async def test_a_bad_field_is_named(serve: Serve, fields: dict[str, Any], field: str) -> None:
    client = await serve(saying("never"))
    status, body, headers = await client.post(PATH, {**ASK, **fields})
    assert status == 400
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert field in body["error"]["message"]
    assert headers["request-id"] == body["request_id"]
