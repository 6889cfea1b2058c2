"""A model makes the calls that a request forces, in its own form."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from engine.parsers import Parsers
from engine.protocol import RequestError, SamplingParams
from tests.engine.sampling.guided.chats import NAMED, SCHEMAS, TOOLS, Start, answer, calls_of, text_of
from tests.engine.sampling.guided.conftest import EOS
from tests.helpers import slow


@pytest.mark.parametrize(
    ("parser", "special"),
    [
        ("hermes", ()),
        ("granite4", ()),
        ("hermes", ("<tool_call>", "</tool_call>")),
        ("llama3_json", ()),
        ("mistral", ("[TOOL_CALLS]",)),
        ("mistral", ("[TOOL_CALLS]", "[ARGS]")),
    ],
)
@pytest.mark.parametrize("choice", ["required", slow(NAMED)])
async def test_a_model_makes_the_forced_calls(
    choice: Any, parser: str, special: tuple[str, ...], start_tools: Start
) -> None:
    engine = await start_tools(parser, special)
    names = set()
    for seed in range(8):
        deltas = await answer(
            engine,
            Parsers(tool_calls=parser),
            tools=TOOLS,
            tool_choice=choice,
            parallel_tool_calls=seed % 2 == 0,
            # The bias ends the output where that is allowed: a random model would make calls for ever.
            sampling=SamplingParams(max_tokens=400, temperature=1.0, seed=seed, logit_bias={EOS: 50.0}),
        )
        assert deltas[-1].finish_reason == "tool_calls"
        assert text_of(deltas, "content") == ""
        calls = calls_of(deltas)
        assert len(calls) == 1 or (choice == "required" and seed % 2 == 0)
        for name, arguments in calls:
            names.add(name)
            Draft202012Validator(SCHEMAS[name]).validate(json.loads(arguments))
    assert names == {"weather"} if choice == NAMED else names <= SCHEMAS.keys()


@pytest.mark.parametrize("parser", ["hermes", "llama3_json", "mistral"])
async def test_a_call_has_no_other_arguments_than_its_function_names(parser: str, start_tools: Start) -> None:
    """By the API, a function without `parameters` has none."""
    functions = [{"name": "f", "parameters": {"properties": {"n": {"type": "boolean"}}}}, {"name": "g"}]
    tools = tuple({"type": "function", "function": function} for function in functions)
    engine = await start_tools(parser)
    fields: dict[str, Any] = {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False}
    calls = []
    for seed in range(40):
        sampling = SamplingParams(max_tokens=200, temperature=1.0, seed=seed)
        deltas = await answer(engine, Parsers(tool_calls=parser), **fields, sampling=sampling)
        assert deltas[-1].finish_reason == "tool_calls"
        calls += calls_of(deltas)
    assert {name for name, _ in calls} == {"f", "g"}
    for name, arguments in calls:
        assert json.loads(arguments).keys() <= ({"n"} if name == "f" else set())


async def test_a_model_may_make_several_calls_unless_told_otherwise(start_tools: Start) -> None:
    engine = await start_tools("hermes")
    for is_parallel in (True, False):
        fields = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": is_parallel}
        deltas = await answer(
            engine,
            Parsers(tool_calls="hermes"),
            **fields,
            sampling=SamplingParams(max_tokens=400, temperature=1.0, seed=1, ignore_eos=True),
        )
        assert (len(calls_of(deltas)) > 1) == is_parallel
        assert deltas[-1].finish_reason == ("length" if is_parallel else "tool_calls")


async def test_a_forced_call_replaces_the_answer(start_tools: Start) -> None:
    engine = await start_tools("hermes")
    fields: dict[str, Any] = {"tools": TOOLS, "tool_choice": NAMED}
    sampling = SamplingParams(max_tokens=400, temperature=1.0, seed=1)
    response_format = {"type": "json_object"}
    deltas = await answer(
        engine,
        Parsers(tool_calls="hermes"),
        **fields,
        sampling=sampling,
        extra={"response_format": response_format},
    )
    assert deltas[-1].finish_reason == "tool_calls"
    with pytest.raises(RequestError) as caught:
        await answer(engine, Parsers(), **fields, extra={"guided_regex": "a"})
    assert caught.value.param == "guided_regex"


@pytest.mark.parametrize(
    ("parser", "tools", "param"),
    [
        ("openai", TOOLS, "tool_choice"),
        (None, TOOLS, "tool_choice"),
        (
            "hermes",
            ({"type": "function", "function": {"name": "f", "parameters": 3}},),
            "tools[0].function.parameters",
        ),
        (
            "hermes",
            ({"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}},),
            "tools[0].function.parameters",
        ),
        ("hermes", ({"type": "function", "function": {"name": "f", "parameters": {"not": {}}}},), "tools"),
    ],
)
async def test_calls_that_cannot_be_forced_are_refused(
    parser: str | None, tools: Any, param: str, start_tools: Start
) -> None:
    engine = await start_tools(parser)
    with pytest.raises(RequestError) as caught:
        await answer(engine, Parsers(), tools=tools, tool_choice="required")
    assert (caught.value.param, caught.value.status) == (param, 400)
    assert param in str(caught.value)
