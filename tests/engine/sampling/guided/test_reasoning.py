"""A grammar begins to hold where reasoning ends."""

import json
import re

import pytest
from jsonschema import Draft202012Validator

from engine.parsers import Parsers
from engine.protocol import SamplingParams
from engine.protocol.options import LogitsProcessorConfig
from engine.sampling.logits_processors import NamedProcessorSpec, PythonProcessorSpec
from tests.engine.sampling.guided.chats import NAMED, TOOLS, WEATHER, Says, Start, answer, calls_of, text_of
from tests.engine.sampling.guided.conftest import EOS

ANSWER = "(<thirst>)?[a-f]{6}[0-9]*"


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
        logit_bias={EOS: 100.0},  # the end would come at once if it were allowed
        logits_processors=(PythonProcessorSpec(lambda: Says(ids)),),
    )
    deltas = await answer(engine, Parsers(parser), sampling=sampling, extra={"guided_regex": ANSWER})
    assert text_of(deltas, "reasoning") == reasoning
    content = text_of(deltas, "content")
    assert re.fullmatch(ANSWER, content)
    assert content.startswith("<thirst") == (says == "<thirst")
    assert deltas[-1].finish_reason == "stop"


async def test_the_rest_of_the_token_that_ends_reasoning_counts(
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


async def test_completions_have_no_reasoning(start_engine: Start) -> None:
    engine = await start_engine(reasoning_parser="deepseek_r1")
    (found,) = await engine.complete((5, 70), max_tokens=99, extra={"guided_choice": ["the fox"]})
    assert found.text == "the fox"


@pytest.mark.parametrize("budget", [0, 2, 9])
async def test_reasoning_within_a_budget_comes_before_a_call_or_an_answer(
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
        # After its reasoning, the model must keep to the grammar.
        thought = text_of(deltas, "reasoning").strip()
        assert thought == "the" * min(budget, 9)
        content, calls = text_of(deltas, "content"), calls_of(deltas)
        if "tools" in fields:
            ((name, arguments),) = calls
            assert (content, name) == ("", "weather")
            Draft202012Validator(WEATHER).validate(json.loads(arguments))
        else:
            assert content.strip() in ("the fox", "the dog")
