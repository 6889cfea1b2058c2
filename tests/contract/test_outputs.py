"""Several outputs, and all that can carry text to a client (contract 5)."""

from typing import Any

import pytest

from engine.protocol import Channel, Delta, ModelInfo, Token, ToolCall
from tests.contract.case import SECRET, Case, counted, end, every_channel, everywhere, guard, said, well
from tests.helpers import ScriptedEngine, make_token


@everywhere("outputs")
async def test_terminate_ends_all_outputs_at_once(case: Case) -> None:  # contract 5.1
    pieces = [("a", "b", "c"), ("x", "zebra7", "z"), ("p", "q", "r")]
    outputs = [[*said("content", *pieces[i], index=i), end(index=i)] for i in range(3)]
    script = [delta for step in zip(*outputs, strict=True) for delta in step]
    case.withholds("zebra7")
    answer = await case.answer(script, guard("Ends", word="zebra7"), n=3)
    assert [one.content for one in answer.outputs] == ["ab", "x", "p"]
    assert {(one.finish, one.reason) for one in answer.outputs} == {("content_filter", "no_secrets")}
    assert case.engine.aborted == 1


@everywhere("outputs")
async def test_outputs_have_streams_of_their_own(case: Case) -> None:  # contract 2.3, 5.1
    """The word is in neither output, though its parts come one after another."""
    script = [*said("content", "zeb"), *said("content", "ra7", index=1), end(), end(index=1)]
    answer = await case.answer(script, guard("Ends", word="zebra7"), n=2)
    assert [(one.content, one.finish) for one in answer.outputs] == [("zeb", "stop"), ("ra7", "stop")]


@everywhere()
@pytest.mark.parametrize("hooked", [True, False])
async def test_an_upstreams_own_names_reach_no_client(case: Case, hooked: bool) -> None:  # contract 5.3
    deltas = said("tool_call", "x") if case.endpoint.can("tool_call") else said("content", "x")
    case.withholds("upstreams-own")
    answer = await case.answer([*deltas, end("tool_calls")], *([guard("Looks")] if hooked else []))
    assert answer.error is None


@everywhere("token_ids")
async def test_the_ids_of_the_prompt_are_left_out(case: Case) -> None:  # contract 5.3
    first, *rest = well("content")
    with_ids = Delta(text=first.text, tokens=first.tokens, prompt_token_ids=(31337, 31338))
    answer = await case.answer([with_ids, *rest], guard("Looks"))
    assert answer.only.content == "well zebra7 more"
    case.withholds("31337")


@everywhere("prompt_logprobs")
async def test_the_logprobs_of_the_prompt_are_vetted(case: Case) -> None:  # contract 5.3
    case.withholds(*SECRET)
    script = [*said("echo", "well ", *SECRET), *said("content", "Hm.", first_id=200), end()]
    hook = guard("Redacts", word="zebra7")
    answer = await case.answer(script, hook, prompt_logprobs=1, echo=False)
    if case.streams:
        assert (answer.status, case.engine.requests) == (400, [])  # no stream has them
    else:
        assert answer.only.content == "Hm."
        assert b'"decoded_token":"well "' in answer.raw


@everywhere("tool_call")
async def test_a_withheld_call_takes_its_name_with_it(case: Case) -> None:  # contract 5.3
    case.withholds("get_zebra7", "stripes", "tool_use")
    deltas = said("tool_call", "stripes", name="get_zebra7")
    answer = await case.answer(
        [*said("content", "Hm."), *deltas, end("tool_calls")], guard("Nothing", channel="tool_call")
    )
    assert (answer.only.content, answer.only.calls, answer.only.finish) == ("Hm.", [], "stop")


@everywhere("tool_call")
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_call_whose_arguments_are_withheld_is_no_call_without_arguments(
    case: Case, at_once: bool
) -> None:
    """Contract 3.2, 5.3: an agent would run it."""
    case.withholds("get_it", *SECRET, "tool_use")
    call = ToolCall(0, "get_it")
    pieces = ['{"a":"zebra7"}'] if at_once else ['{"a":"', "zebra7", '"}']
    script = [
        *(Delta(text=piece, channel="tool_call", tool_call=call) for piece in pieces),
        end("tool_calls"),
    ]
    hook = guard("Suppresses", word="zebra7") if at_once else guard("SuppressesAtTheEnd")
    answer = await case.answer(script, hook)
    assert (answer.only.calls, answer.only.finish) == ([], "stop")


@everywhere("tool_call")
@pytest.mark.parametrize("hooks", [(), ("Looks",), ("Holds",), ("Shouts", "Looks")])
async def test_a_call_without_arguments_is_one(case: Case, hooks: tuple[str, ...]) -> None:  # contract 5.4
    script = [Delta(channel="tool_call", tool_call=ToolCall(0, "get_it")), end("tool_calls")]
    answer = await case.answer(script, *map(guard, hooks))
    assert [(name, text or "{}") for name, text in answer.only.calls] == [("get_it", "{}")]


@everywhere("tool_call")
async def test_one_call_can_be_withheld_alone(case: Case) -> None:  # contract 5.3
    script = [
        *said("tool_call", "stripes", name="get_zebra7"),
        *said("tool_call", "x", call=1, name="g"),
        end("tool_calls"),
    ]
    case.withholds("get_zebra7", "stripes")
    answer = await case.answer(script, guard("Nothing", channel="tool_call", tool_name="get_zebra7"))
    assert answer.only.calls == [("g", '{"a":"x"}')]


@every_channel()
async def test_a_channel_can_be_withheld_alone(case: Case, channel: Channel) -> None:  # contract 5.3
    """Every other channel goes on as it would without it."""
    others = [
        one for one in ("reasoning", "content", "tool_call") if one != channel and case.endpoint.can(one)
    ]
    script = [
        *(said(channel, "zeb", "ra7") if channel == "echo" else []),
        *(delta for i, one in enumerate(others) for delta in said(one, "ok", first_id=200 + 10 * i)),
        *(said(channel, "zeb", "ra7", call=1, name="g") if channel != "echo" else []),
        end(),
    ]
    case.withholds(*SECRET, "alt:zeb")
    answer = await case.answer(script, guard("Nothing", channel=channel))
    assert [answer.only.said(one) for one in others] == ["ok"] * len(others)


PIECES = [
    *("<think>", "Rain", "?", "</think>", "Some", " qualms.", "<tool_call>", '{"name": "f", "arguments": '),
    *('{"a":"', "Zür", "ich", '"}', "}", "</tool_call>", "<tool_call>", '{"name": "g", "arguments": {}}'),
    "</tool_call>",
]
PARSERS = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}


class RawEngine(ScriptedEngine):
    """Gives the model's text as it is."""

    info = ModelInfo(max_model_len=1024, parses_tool_calls=False)


def raw_engine() -> RawEngine:
    tokens = [*(make_token(piece, i) for i, piece in enumerate(PIECES)), Token(99, "", b"<|im_end|>", -0.25)]
    deltas = counted([*(Delta(text=token.text, tokens=(token,)) for token in tokens), end()])
    return RawEngine(lambda request: deltas)


@everywhere("tool_call")
@pytest.mark.parametrize("names", [(), ("Looks",), ("Looks", "Holds")])
async def test_parsers_run_before_the_hooks(case: Case, names: tuple[str, ...]) -> None:  # contract 5.4
    answer = await case.answer(raw_engine(), *map(guard, names), **PARSERS)
    (output,) = answer.outputs
    assert (output.reasoning, output.content) == ("Rain?", "Some qualms.")
    assert [(name, text or "{}") for name, text in output.calls] == [("f", '{"a":"Zürich"}'), ("g", "{}")]
    if names:
        case.withholds("<think>", "tool_call>")
        shown: dict[Any, str] = {}
        for chunk in case.hooks[0].chunks:
            key = chunk.channel, chunk.tool_name
            shown[key] = shown.get(key, "") + chunk.text_diff
        assert shown == {
            ("reasoning", None): "Rain?",
            ("content", None): "Some qualms.",
            ("tool_call", "f"): '{"a":"Zürich"}',
            ("tool_call", "g"): "{}",
        }


@everywhere("tool_call")
@pytest.mark.parametrize("word", ["Rain", "qualms", "Zürich"])
@pytest.mark.parametrize("name", ["Redacts", "Ends", "Raises"])
async def test_nothing_of_a_parsed_answer_gets_round_a_hook(case: Case, word: str, name: str) -> None:
    """Contract 5.3, 8.4: the text of a marker's token may have the word too."""
    case.withholds(word)
    await case.answer(raw_engine(), guard(name, word=word), **PARSERS)
