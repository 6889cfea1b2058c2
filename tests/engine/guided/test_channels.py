"""Guided outputs on their channels: an answer after reasoning, and calls that a model must make."""

import dataclasses
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from engine.backends.local import LocalEngine
from engine.config import EngineConfig, LogitsProcessorConfig
from engine.logits_processors import NamedProcessorSpec, PythonProcessorSpec
from engine.parsers import Parsers, parsed
from engine.protocol import Delta, GenerationRequest, RequestError, SamplingParams
from tests.engine.conftest import TEMPLATE

EOS = 1
HELLO = GenerationRequest(
    request_id="r", model="m", endpoint="chat", messages=({"role": "user", "content": "hello"},)
)
Start = Callable[..., Any]


async def answer(engine: LocalEngine, parsers: Parsers, **fields: Any) -> list[Delta]:
    request = dataclasses.replace(HELLO, **fields)
    deltas = parsed(parsers, request, engine.generate(request), engine.tokenizer)
    return [delta async for delta in deltas]


def text_of(deltas: list[Delta], channel: str) -> str:
    return "".join(delta.text for delta in deltas if delta.channel == channel)


# Reasoning.


ANSWER = "(<thirst>)?[a-f]{6}[0-9]*"


class Says:
    """Has the model begin with these tokens, wherever it may."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def __call__(self, input_ids: Any, logits: Any) -> None:
        num = len(input_ids) - input_ids.num_prompt_tokens
        if num < len(self.ids):
            logits[self.ids[num]] += 1000.0


@pytest.mark.parametrize(
    ("parser", "says", "reasoning"),
    [
        ("qwen3", "<think>the fox</think>", "the fox"),
        ("qwen3", "", ""),
        ("qwen3", "<thirst", ""),
        ("deepseek_r1", "the fox</think>", "the fox"),
        ("deepseek_r1", "<think>the fox</think>", "the fox"),
        ("mistral", "[THINK]the fox[/THINK]", "the fox"),
        ("granite", "Here's my thought process:the fox. Here is my response:", "the fox. "),
        ("openai_gptoss", "<|channel|>analysis<|message|>the fox<|end|>", "the fox"),
    ],
)
async def test_guidance_begins_where_reasoning_ends(
    parser: str, says: str, reasoning: str, start_engine: Start
) -> None:
    engine = await start_engine(reasoning_parser=parser)
    if parser == "openai_gptoss":
        says += "<|start|>assistant<|channel|>final <|constrain|>json<|message|>"
    ids = engine.tokenizer.encode(says)
    sampling = SamplingParams(
        max_tokens=200,
        temperature=0.0,
        logit_bias={EOS: 100.0},  # the end would come at once, if it could
        logits_processors=(PythonProcessorSpec(lambda: Says(ids)),),
    )
    deltas = await answer(engine, Parsers(parser), sampling=sampling, extra={"guided_regex": ANSWER})
    assert text_of(deltas, "reasoning") == reasoning
    content = text_of(deltas, "content")
    assert re.fullmatch(ANSWER, content)
    assert content.startswith("<thirst") == (says == "<thirst")
    assert deltas[-1].finish_reason == "stop"


async def test_what_stands_in_a_token_behind_the_reasoning_s_end_counts(
    start_engine: Start, tiny_core: Start
) -> None:
    engine = await start_engine(reasoning_parser="deepseek_r1")
    ids = [i for text in ("</think", "> the") for i in engine.tokenizer.encode(text)]
    raw = [engine.tokenizer.raw(i) for i in ids]
    assert b"".join(raw) == b"</think> the"
    sampling = SamplingParams(
        max_tokens=99, temperature=0.0, logits_processors=(PythonProcessorSpec(lambda: Says(ids)),)
    )
    deltas = await answer(
        engine, Parsers("deepseek_r1"), sampling=sampling, extra={"guided_choice": ["the fox", "the dog"]}
    )
    assert text_of(deltas, "content").strip() in ("the fox", "the dog")


async def test_without_a_chat_nothing_is_reasoning(start_engine: Start) -> None:
    engine = await start_engine(reasoning_parser="deepseek_r1")
    (found,) = await engine.complete((5, 70), max_tokens=99, extra={"guided_choice": ["the fox"]})
    assert found.text == "the fox"


# Calls.


WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 8},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: tuple[dict[str, Any], ...] = (
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {
        "type": "function",
        "function": {"name": "größe", "parameters": {"properties": {}, "additionalProperties": False}},
    },
)
SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
NAMED = {"type": "function", "function": {"name": "weather"}}


def calls_of(deltas: list[Delta]) -> list[tuple[str, str]]:
    """Each call's name and arguments."""
    calls: dict[int, tuple[str, str]] = {}
    for delta in deltas:
        if call := delta.tool_call:
            _, arguments = calls.get(call.index, ("", ""))
            calls[call.index] = call.name, arguments + delta.text
    return list(calls.values())


@pytest.fixture
async def start_tools(
    tiny_model: Start, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> AsyncIterator[Start]:
    """Starts an engine whose chat template takes tools, with these special tokens beside its own."""
    async with AsyncExitStack() as stack:

        async def start(parser: str | None, special: tuple[str, ...] = (), **settings: Any) -> LocalEngine:
            path = tmp_path / "model"
            shutil.copytree(tiny_model("llama").path, path)
            with_tools = PreTrainedTokenizerFast.from_pretrained(path)
            with_tools.chat_template = (
                "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}" + TEMPLATE
            )
            with_tools.add_tokens([AddedToken(text, special=True) for text in special])
            with_tools.save_pretrained(path)
            config = EngineConfig(model=str(path), num_threads=1, tool_call_parser=parser, **settings)
            engine = LocalEngine(config)
            stack.push_async_callback(engine.aclose)
            await engine.start()
            return engine

        yield start


@pytest.mark.parametrize(
    ("parser", "special"),
    [
        ("hermes", ()),
        ("hermes", ("<tool_call>", "</tool_call>")),
        ("llama3_json", ()),
        ("mistral", ("[TOOL_CALLS]",)),
        ("mistral", ("[TOOL_CALLS]", "[ARGS]")),
    ],
)
@pytest.mark.parametrize("choice", ["required", NAMED])
async def test_a_model_calls_what_it_must(
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
            # The end comes where it may: a random model would call for ever.
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


async def test_a_call_that_must_be_made_comes_instead_of_an_answer(start_tools: Start) -> None:
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


@pytest.mark.parametrize("budget", [0, 2, 9])
async def test_reasoning_of_a_budget_comes_before_a_call_or_an_answer(
    budget: int, start_tools: Start
) -> None:
    special = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    processors = (LogitsProcessorConfig("thinking_budget", "thinking_budget"),)
    engine = await start_tools("hermes", special, reasoning_parser="qwen3", logits_processors=processors)
    ids = engine.tokenizer.encode("<think>" + "the" * 9 + "</think>")
    specs = (
        NamedProcessorSpec("thinking_budget", {"thinking_budget": budget}),
        PythonProcessorSpec(lambda: Says(ids)),
    )
    sampling = SamplingParams(max_tokens=400, temperature=1.0, seed=1, logits_processors=specs)
    for fields in (
        {"extra": {"guided_choice": ["the fox", "the dog"]}},
        {"tools": TOOLS, "tool_choice": NAMED},
    ):
        deltas = await answer(engine, Parsers("qwen3", "hermes"), sampling=sampling, **fields)
        # After it the model has to say what it was asked for.
        thought = text_of(deltas, "reasoning").strip()
        assert thought == "the" * min(budget, 9)
        content, calls = text_of(deltas, "content"), calls_of(deltas)
        if "tools" in fields:
            ((name, arguments),) = calls
            assert (content, name) == ("", "weather")
            Draft202012Validator(WEATHER).validate(json.loads(arguments))
        else:
            assert content.strip() in ("the fox", "the dog")


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
async def test_what_cannot_be_forced_is_refused(
    parser: str | None, tools: Any, param: str, start_tools: Start
) -> None:
    engine = await start_tools(parser)
    with pytest.raises(RequestError) as caught:
        await answer(engine, Parsers(), tools=tools, tool_choice="required")
    assert (caught.value.param, caught.value.status) == (param, 400)
    assert param in str(caught.value)
