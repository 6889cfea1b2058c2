"""What hooks are shown, whichever endpoint a client asks (contract 1.3 and 2)."""

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from engine.protocol import Channel, Delta, EngineError, ProbeInfo, PromptScores, Token
from engine.upstream.echo import EchoEngine
from engine.upstream.openai.engine import OpenAIEngine
from hooks import Chunk
from hooks.loading.loader import HookSpec
from tests.contract.case import SECRET, Case, end, engine_of, every_channel, everywhere, guard, said, well
from tests.contract.wire import Responses
from tests.helpers import until


def streams_of(chunks: list[Chunk]) -> dict[Any, list[Chunk]]:
    """The chunks by stream."""
    found = defaultdict(list)
    for chunk in chunks:
        found[chunk.output_index, chunk.channel, chunk.tool_name].append(chunk)
    return found


@everywhere()
async def test_no_request_skips_a_hook_and_only_listed_ones_are_added(case: Case) -> None:  # contract 1.3
    case.withholds(*SECRET)
    more, secret = guard("Shouts"), guard("Redacts", word="zebra7")
    client = await case.start(well("content"), secret, allowed=[more])
    for fields in ({}, {"hooks": []}, {"skip_hooks": True, "hook_workers": 0, "mode": "shadow"}):
        assert (await case.ask(client, **fields)).only.content == "well [x] more"
    assert (await case.ask(client, hooks=["Shouts"])).only.content == "WELL [X] MORE"
    refused = await case.ask(client, hooks=["tests.contract.guards:Looks"])
    assert refused.status == 400


@every_channel()
async def test_a_chunk_tells_its_stream_and_its_request(case: Case, channel: Channel) -> None:
    """Contract 2.1, 2.2, 2.5."""
    told = {"prompt": "Hi there", "user": "u1", "metadata": {"team": "t"}}
    answer = await case.answer(well(channel), guard("Looks"), **told)
    (looks,) = case.hooks
    chunks = [chunk for chunk in looks.chunks if chunk.channel == channel]
    assert "".join(chunk.text_diff for chunk in chunks) == chunks[-1].text
    assert "well zebra7 more" in chunks[-1].text
    assert [i for chunk in chunks for i in chunk.token_ids_diff] == list(range(100, 100 + len(chunks) - 1))
    for chunk in chunks:
        assert (chunk.output_index, chunk.streaming, chunk.aborted) == (0, case.streams, False)
        assert chunk.tool_name == ("f" if channel == "tool_call" else None)
        assert (chunk.request.endpoint, chunk.request.model) == (case.endpoint.name, "m")
        assert chunk.request.user == "u1"
        assert chunk.request.metadata == ({"team": "t"} if case.endpoint.can("metadata") else {})
        texts = [*chunk.request.prompts, *(message["content"] for message in chunk.request.messages)]
        assert texts == ["Hi there"]
        assert chunk.request_id == answer.headers["X-Request-Id"]


@everywhere("logprobs")
async def test_a_chunk_has_the_logprobs_that_the_client_gets(case: Case) -> None:  # contract 2.2
    answer = await case.answer(well("content"), guard("Looks"))
    tokens = [token for chunk in case.hooks[0].chunks for token in chunk.logprobs_diff]
    assert [token.text for token in tokens] == answer.only.tokens
    assert {(token.logprob, len(token.top)) for token in tokens} == {(-0.25, 1)}


PROBES = (ProbeInfo(name="kestrel", kind="linear", labels=("harm",)),)
PROMPT_SCORES = PromptScores(PROBES, ((-31337.25,), (-31338.25,)))


@every_channel()
async def test_hooks_are_shown_scores_and_no_client_is(case: Case, channel: Channel) -> None:
    """Contract 2.10."""
    case.withholds("kestrel", "31337", "31338", "41337")
    first, *others = [
        replace(delta, tokens=tuple(token._replace(scores=(-41337.5 - i,)) for token in delta.tokens))
        for i, delta in enumerate(well(channel))
    ]
    script = [replace(first, prompt_scores=PROMPT_SCORES, prompt_token_ids=(1, 2)), *others]
    await case.answer(script, guard("Looks"))
    chunks = [chunk for chunk in case.hooks[0].chunks if chunk.channel == channel]
    assert [scores for chunk in chunks for scores in chunk.scores_diff] == [
        (-41337.5 - i,) for i in range(len(script) - 1)
    ]
    for chunk in chunks:
        assert (chunk.probes, chunk.prompt_scores) == (PROBES, PROMPT_SCORES.tokens)
    await case.answer(script)  # without a guard, too


@everywhere("tool_call")
async def test_each_channel_and_each_call_is_a_stream_of_its_own(case: Case) -> None:  # contract 2.3
    script = [
        *said("content", "one "),
        *said("reasoning", "why ", first_id=110),
        *said("content", "two ", first_id=120),
        *said("reasoning", "not", first_id=130),
        *said("tool_call", "x", first_id=140),
        *said("tool_call", "y", first_id=150, call=1, name="g"),
        *said("content", "three", first_id=160),
        end("tool_calls"),
    ]
    answer = await case.answer(script, guard("Looks"))
    streams = streams_of(case.hooks[0].chunks)
    texts = {key: "".join(chunk.text_diff for chunk in chunks) for key, chunks in streams.items()}
    assert texts == {
        (0, "content", None): "one two three",
        (0, "reasoning", None): "why not",
        (0, "tool_call", "f"): '{"a":"x"}',
        (0, "tool_call", "g"): '{"a":"y"}',
    }
    assert len({id(chunks[0].state) for chunks in streams.values()}) == 4
    assert all(len({id(chunk.state) for chunk in chunks}) == 1 for chunks in streams.values())
    assert (answer.only.content, answer.only.reasoning) == ("one two three", "why not")
    assert answer.only.calls == [("f", '{"a":"x"}'), ("g", '{"a":"y"}')]


@everywhere("tool_call")
@pytest.mark.parametrize("ends_in_call", [False, True])
async def test_calls_end_before_the_content_does(case: Case, ends_in_call: bool) -> None:  # contract 2.14
    *first, last = said("tool_call", "x")
    script = (
        [*first, replace(last, finish_reason="tool_calls")]
        if ends_in_call
        else [*first, last, end("tool_calls")]
    )
    answer = await case.answer(script, guard("Looks"), HookSpec("tools", {"text": "No."}))
    assert [chunk.channel for chunk in case.hooks[0].finals] == ["tool_call", "content"]
    assert (answer.only.content, answer.only.calls) == ("No.", [])


@everywhere("token_ids")
@pytest.mark.parametrize("name", ["Looks", "Holds", "Suppresses"])
async def test_a_token_waits_for_the_text_that_it_begins(case: Case, name: str) -> None:
    """Contract 2.4: the two tokens of a divided character, and of a special token, move together."""
    crab = "🦀".encode()
    script = [
        Delta(tokens=(Token(1, "", crab[:2], -0.1),)),
        Delta(text="🦀", tokens=(Token(2, "🦀", crab[2:], -0.1),)),
        Delta(text="!", tokens=(Token(3, "!", b"!", -0.1),)),
        end(),
    ]
    answer = await case.answer(script, guard(name, **({"word": "🦀"} if name == "Suppresses" else {})))
    looks = case.hooks[0]
    if name == "Suppresses":
        case.withholds("🦀")
        assert (answer.only.content, answer.only.ids) == ("!", [3])
    else:
        assert (answer.only.content, answer.only.ids) == ("🦀!", [1, 2, 3])
        assert [chunk.token_ids_diff for chunk in looks.chunks if chunk.text_diff] == [(1, 2), (3,)]


@every_channel()
async def test_the_last_call_of_a_stream_comes_once(case: Case, channel: Channel) -> None:  # contract 2.6
    await case.answer(well(channel), guard("Looks"), guard("Holds"))
    for hook in case.hooks:
        for chunks in streams_of(hook.chunks).values():
            assert [chunk.is_final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
            assert not any(chunk.aborted for chunk in chunks)


@every_channel()
@pytest.mark.parametrize("ending", ["Ends", "Raises", "engine"])
async def test_the_last_call_comes_when_something_else_ends_the_answer(
    case: Case, channel: Channel, ending: str
) -> None:  # contract 2.6
    script: list[Any] = [*well(channel)[:-1], EngineError("It broke.")]
    hooks = [guard("Looks")] if ending == "engine" else [guard("Looks"), guard(ending, word="zebra7")]
    await case.answer(script, *hooks)
    finals = case.hooks[0].finals
    assert [(chunk.channel, chunk.aborted) for chunk in finals] == [(channel, True)]


@everywhere()
@pytest.mark.parametrize("ending", ["client", "server"])
async def test_the_last_call_comes_when_the_client_or_the_server_leaves(case: Case, ending: str) -> None:
    """Contract 2.6."""
    client = await case.start([*said("content", "a ", "b "), asyncio.Event()], guard("Looks"), guard("Holds"))
    asking = asyncio.get_running_loop().create_task(case.ask(client))
    looks, holds = case.hooks
    await until(lambda: len(holds.chunks) == 2)
    case.withholds("a b ")
    if ending == "client":
        asking.cancel()
        await until(lambda: looks.finals)
    else:
        client.engine.stopped.set()
    await asyncio.gather(asking, return_exceptions=True)
    for hook in case.hooks:
        assert [chunk.aborted for chunk in hook.finals] == [True]
    assert case.engine.running == 0
    if ending == "server":
        assert case.answers[-1].error is not None


@everywhere()
async def test_no_part_of_a_stop_string_is_shown_or_delivered(case: Case) -> None:  # contract 2.7, 6.3
    case.withholds("zebra7", "bra7")
    answer = await case.answer(EchoEngine(), guard("Looks"), prompt="all is zebra7 here", stop=["ebra7 h"])
    assert (answer.only.content, *answer.ended) == ("all is z", "stop", None)
    assert case.hooks[0].chunks[-1].text == "all is z"


@everywhere()
async def test_the_text_that_an_output_continues_is_the_lead(case: Case) -> None:  # contract 2.8
    script = [*said("content", "ra7", " it is"), end()]
    case.withholds("ra7")
    spec = HookSpec("phrases", {"phrases": ["zebra7"]})
    answer = await case.answer(script, guard("Looks"), spec, lead="I saw a zeb")
    assert {chunk.lead for chunk in case.hooks[0].chunks} == {"I saw a zeb"}
    assert answer.only.content.endswith(" it is")


@everywhere("reasoning")
@pytest.mark.parametrize("through_upstream", [False, True])
@pytest.mark.parametrize("fields", [{"continue_final_message": True}, {"add_generation_prompt": False}])
@pytest.mark.parametrize("prompt", ["I saw a zeb", "I saw a zeb "])  # a template may trim the second
async def test_a_continued_message_is_the_lead_though_the_assistant_did_not_write_it(
    case: Case, fields: dict[str, Any], prompt: str, through_upstream: bool
) -> None:  # contract 2.8
    script = [*said("content", "ra7", " it is"), end()]
    case.withholds("ra7")
    spec = HookSpec("phrases", {"phrases": ["zebra7"]})
    engine: Any = engine_of(script)
    if through_upstream:
        engine = OpenAIEngine((await case.serve(engine)).url)
    answer = await case.answer(engine, guard("Looks"), spec, prompt=prompt, **fields)
    assert {chunk.lead for chunk in case.hooks[0].chunks} == {prompt}
    assert answer.only.content.endswith(" it is")


@pytest.mark.parametrize("case", [(Responses(), False), (Responses(), True)], indirect=True)
async def test_a_continued_result_of_a_function_is_the_lead(case: Case) -> None:  # contract 2.8
    script = [*said("content", "ra7", " it is"), end()]
    case.withholds("ra7")
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "I saw a zeb"},
    ]
    spec = HookSpec("phrases", {"phrases": ["zebra7"]})
    answer = await case.answer(script, guard("Looks"), spec, input=items, continue_final_message=True)
    assert {chunk.lead for chunk in case.hooks[0].chunks} == {"I saw a zeb"}
    assert answer.only.content.endswith(" it is")


@everywhere("tool_call")
async def test_only_text_of_the_same_kind_has_a_lead(case: Case) -> None:  # contract 2.8
    script = [*said("reasoning", "a"), *said("tool_call", "b"), end("tool_calls")]
    await case.answer(script, guard("Looks"), lead="I saw")
    leads = {chunk.channel: chunk.lead for chunk in case.hooks[0].chunks}
    assert leads["tool_call"] == ""


@every_channel()
@pytest.mark.parametrize(
    ("finish", "stop_reason", "stop", "is_cut"),
    [("length", None, [], True), ("stop", "END", ["END"], True), ("stop", None, [], False)],
)
async def test_the_last_chunk_tells_a_cut(
    case: Case, channel: Channel, finish: Any, stop_reason: str | None, stop: list[str], is_cut: bool
) -> None:  # contract 2.9
    script = [*said(channel, "a", "b"), end(finish, stop_reason)]
    await case.answer(script, guard("Looks"), stop=stop)
    cuts = [chunk.is_cut for chunk in case.hooks[0].finals if chunk.channel == channel]
    assert cuts == [is_cut and channel != "echo"]
