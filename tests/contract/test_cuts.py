"""Where a client chose the end of an output, guards withhold what they hold (contract 2.9, 3.12)."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from engine.protocol import Delta, ModelInfo, Token
from engine.protocol.fields.support import FieldSupport
from engine.protocol.fields.table import FIELDS
from engine.upstream.echo import EchoEngine
from engine.upstream.openai.engine import OpenAIEngine
from hooks.loading.loader import HookSpec
from tests.contract.case import Case, engine_of, everywhere, guard, said
from tests.engine.upstream.conftest import fake_upstream

PHRASES = HookSpec("phrases", {"phrases": ["project bluebird"]})
SECRETS = HookSpec("secrets", {})
EOS = 9
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
async def test_a_stop_string_inside_or_after_a_tool_call_is_a_cut(
    case: Case, form: str, text: str, stop: str, spec: HookSpec, beginning: str
) -> None:  # contract 2.9, 3.12
    case.withholds(beginning)
    prompt = FORMS[form].replace("TEXT", text)
    await case.answer(
        EchoEngine(), spec, guard("Looks"), prompt=prompt, stop=[stop], tool_call_parser="hermes"
    )
    last = [chunk for chunk in case.hooks[1].finals if form == "inside" or chunk.channel == "content"]
    assert [chunk.is_cut for chunk in last] == [True] * len(last) != []


@everywhere("token_ids")
@pytest.mark.parametrize("string", ["", "\u0120bird", "</s>"])
async def test_a_token_of_an_upstream_does_not_show_the_model_s_own_end(case: Case, string: str) -> None:
    """Contract 2.9: the last token may be a stop string's, without its text or in the vocabulary's form."""
    case.withholds("Project Blue")

    def script(body: Mapping[str, Any]) -> list[Any]:
        pieces = [("Project Blue", "Project Blue", None), ("", string, "stop")]
        return [*(_chunk("messages" in body, *piece) for piece in pieces), b"data: [DONE]\n\n"]

    async with fake_upstream() as upstream:
        upstream.script = script
        await case.answer(OpenAIEngine(upstream.url), PHRASES, guard("Looks"), stop=[" bird"])
    assert [chunk.is_cut for chunk in case.hooks[1].finals] == [True]


def _chunk(is_chat: bool, text: str, token: str, reason: str | None) -> dict[str, Any]:
    if is_chat:
        logprobs: Any = {"content": [{"token": token, "logprob": -0.5, "bytes": None}]}
    else:
        logprobs = {"tokens": [token], "token_logprobs": [-0.5], "top_logprobs": [{}]}
    said: Any = {"delta": {"content": text}} if is_chat else {"text": text}
    choice = {"index": 0, **said, "finish_reason": reason, "logprobs": logprobs, "token_ids": [5]}
    return {"choices": [choice]}


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


STEERING: Mapping[str, Any] = {
    "min_tokens": 2,
    "ignore_eos": True,
    "allowed_token_ids": [1, EOS],
    "bad_words": ["bird"],
    "thinking_token_budget": 5,
    "logits_processors": [{"name": "forced"}],
    "guided_regex": ".{5}",
    "structured_outputs": {"regex": ".{5}"},
    "repetition_detection": {"max_pattern_size": 2},
}


def own_engine(size: int = 100) -> Any:
    """An engine that acts on every field, and whose model ends by `EOS`."""
    last = Delta(tokens=(Token(EOS, "", b"</s>", -0.5),), finish_reason="stop")
    engine = engine_of([*said("content", "It is ", "Project ", "Blue"), last])
    engine.fields = FieldSupport(relayed=frozenset(FIELDS))
    engine.info = ModelInfo(vocab_size=size, eos_token_ids=frozenset({EOS}))
    return engine


@everywhere()
@pytest.mark.parametrize(
    "fields",
    [
        *({name: value} for name, value in STEERING.items()),
        {"logit_bias": {str(EOS): 5}},
        {"logit_bias": {str(EOS): -100}},
        {"logit_bias": {str(i): -5 for i in range(100) if i != EOS}},
        {"min_tokens": 2, "logit_bias": {str(EOS): 100}},
    ],
    ids=lambda fields: orjson.dumps(fields).decode()[:40],
)
async def test_a_client_that_steers_the_end_of_sequence_gets_no_beginning_of_a_match(
    case: Case, fields: dict[str, Any]
) -> None:  # contract 2.9, 3.12
    case.withholds("Project", "Blue")
    answer = await case.answer(own_engine(), PHRASES, guard("Looks"), **fields)
    assert (answer.only.content, answer.only.finish) == ("It is ", "stop")
    assert [chunk.is_cut for chunk in case.hooks[1].finals] == [True]


@everywhere()
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"logit_bias": {"5": 5, "7": -100}},
        {"temperature": 0.5, "top_p": 0.5, "frequency_penalty": 0.5, "seed": 1},
        {"stop": ["never"]},
    ],
    ids=str,
)
async def test_the_model_s_own_end_is_none(case: Case, fields: dict[str, Any]) -> None:  # contract 2.9
    answer = await case.answer(own_engine(), PHRASES, guard("Looks"), **fields)
    assert answer.only.content == "It is Project Blue"
    assert [chunk.is_cut for chunk in case.hooks[1].finals] == [False]


@everywhere()
async def test_with_an_upstream_any_bias_may_be_one_of_the_end_of_sequence(case: Case) -> None:
    """Contract 2.9: Weir does not know the upstream's ids."""
    engine = own_engine()
    engine.info = ModelInfo()
    case.withholds("Project", "Blue")
    answer = await case.answer(engine, PHRASES, logit_bias={"5": 5})
    assert answer.only.content == "It is "
