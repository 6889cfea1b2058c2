"""What each verdict does to what a client gets (contract 3)."""

from collections.abc import Iterable
from typing import Any

import pytest

from engine.protocol import Channel, Delta, EngineError, Token
from hooks.loading.loader import HookSpec
from tests.contract.case import SECRET, Case, end, every_channel, everywhere, guard, said, well
from tests.contract.wire import Output
from tests.helpers import make_token

CONTENT: Channel = "content"


@every_channel()
async def test_text_that_is_let_through_is_untouched(case: Case, channel: Channel) -> None:  # contract 3.1
    answer = await case.answer(well(channel), guard("Looks"))
    assert answer.seen == (await case.answer(well(channel))).seen
    assert answer.only.said(channel) == "well zebra7 more"


@everywhere("logprobs")
async def test_alternatives_can_be_withheld_alone(case: Case) -> None:  # contract 3.1
    answer = await case.answer(well(CONTENT), guard("WithoutAlternatives"))
    assert answer.only.tokens == ["well ", "zeb", "ra7", " more"]
    case.withholds("alt:")


@every_channel()
async def test_suppressed_text_is_gone_and_the_rest_goes_on(
    case: Case, channel: Channel
) -> None:  # contract 3.2
    case.withholds(*SECRET, "no_secrets")
    answer = await case.answer(well(channel), guard("Suppresses", word="zebra7"))
    assert answer.only.said(channel) == case.ended(channel, "well  more")
    assert answer.error is None
    assert answer.only.finish != "content_filter"


@every_channel()
async def test_an_answer_that_is_suppressed_entirely_is_empty(case: Case, channel: Channel) -> None:
    """Contract 3.2: it ends as the engine ended it, without a call."""
    case.withholds(*SECRET, "well", "more")
    answer = await case.answer(well(channel), guard("Nothing", channel=channel))
    assert answer.only == Output(finish="stop")


@every_channel()
@pytest.mark.parametrize("text", [None, "[ended]"])
async def test_terminate_ends_the_answer_and_the_engine(
    case: Case, channel: Channel, text: str | None
) -> None:  # contract 3.3
    case.withholds(*SECRET, "more")
    answer = await case.answer(well(channel), guard("Ends", word="zebra7", text=text))
    is_content = channel in ("content", "echo")
    assert answer.only.said(channel) == case.ended(channel, f"well {text or ''}" if is_content else "well ")
    if not is_content:
        assert answer.only.content == (text or "")
    assert answer.only.calls == []
    assert answer.ended == ("content_filter", "no_secrets")
    assert (case.engine.running, case.engine.aborted) == (0, 1)
    _, metrics = await case.clients[-1].get("/metrics")
    assert b'weir_hook_verdicts_total{action="terminate",hook="Ends"} 1.0' in metrics
    assert b"weir_num_requests_running 0.0" in metrics


@everywhere()
@pytest.mark.parametrize("finish", ["stop", "length", "tool_calls"])
async def test_terminate_wins_over_the_engines_finish_reason(case: Case, finish: Any) -> None:
    """Contract 3.3."""
    last = Delta(text="zebra7", tokens=(make_token("zebra7", 9),), finish_reason=finish)
    case.withholds("zebra7")
    answer = await case.answer([*said(CONTENT, "well "), last], guard("Ends", word="zebra7"))
    assert (answer.only.content, *answer.ended) == ("well ", "content_filter", "no_secrets")


@everywhere()
async def test_terminate_can_be_told_as_a_stop(case: Case) -> None:  # contract 3.3
    told = await case.answer(well(CONTENT), guard("Ends", word="zebra7"), terminate_finish_reason="stop")
    assert told.ended == ("stop", "no_secrets")


@everywhere("outputs")
async def test_terminate_can_end_one_output(case: Case) -> None:  # contract 3.3
    script = [*well(CONTENT), *said(CONTENT, "all ", "is ", "well", index=1), end(index=1)]
    case.withholds(*SECRET)
    answer = await case.answer(script, guard("Ends", word="zebra7", scope="output"), n=2)
    assert [(one.content, one.finish) for one in answer.outputs] == [
        ("well ", "content_filter"),
        ("all is well", "stop"),
    ]


@every_channel()
async def test_what_is_held_does_not_leave(case: Case, channel: Channel) -> None:
    """Contract 3.4, 3.9: each hook holds characters of what the one before it released."""
    script = [*said(channel, "abcdefghij")[: 2 if channel == "tool_call" else 1], EngineError("It broke.")]
    case.withholds("defghij")
    hooks = (guard("Holds", n=2), guard("Holds", n=5))
    answer = await case.answer(script, *hooks)
    assert answer.error is not None
    assert answer.only.said(channel) == (case.ended(channel, "abc") if case.streams else "")


@every_channel()
async def test_what_was_held_is_released_untouched(case: Case, channel: Channel) -> None:  # contract 3.4
    answer = await case.answer(well(channel), guard("Holds"), guard("Holds", n=3))
    assert answer.seen == (await case.answer(well(channel))).seen


@every_channel()
async def test_a_redaction_replaces_its_spans_alone(case: Case, channel: Channel) -> None:  # contract 3.5
    case.withholds(*SECRET)
    answer = await case.answer(well(channel), guard("Redacts", word="zebra7"))
    assert answer.only.said(channel) == "well [x] more"


@every_channel("token_ids")
@pytest.mark.parametrize("action", ["Redacts", "Rewrites", "Suppresses"])
async def test_a_token_leaves_only_as_it_was(case: Case, channel: Channel, action: str) -> None:
    """Contract 3.6: neither id, logprob nor alternatives of a token that lost a character."""
    case.withholds(*SECRET)
    answer = await case.answer(well(channel), guard(action, word="bra"))
    kept = [token for token in tokens_of(well(channel)) if token.text not in SECRET]
    if (action, channel) == ("Suppresses", "tool_call"):
        kept = []  # there is no call (contract 3.20)
    assert answer.only.tokens == [token.text for token in kept]
    assert answer.only.ids == ([] if channel == "echo" else [token.id for token in kept])


def tokens_of(deltas: Iterable[Delta]) -> list[Token]:
    return [token for delta in deltas for token in delta.tokens]


@every_channel("token_ids")
async def test_rewritten_tokens_can_be_kept(case: Case, channel: Channel) -> None:  # contract 3.6
    answer = await case.answer(well(channel), guard("Redacts", word="zebra7"), rewritten_tokens="keep")
    assert answer.only.said(channel) == "well [x] more"
    assert answer.only.tokens == [token.text for token in tokens_of(well(channel))]
    assert answer.only.ids == ([] if channel == "echo" else [token.id for token in tokens_of(well(channel))])


@every_channel()
async def test_a_later_hook_sees_the_released_text(case: Case, channel: Channel) -> None:  # contract 3.7
    answer = await case.answer(
        well(channel), guard("Redacts", word="zebra7"), guard("Looks"), guard("Shouts")
    )
    _, looks, _ = case.hooks
    shown = "".join(chunk.text_diff for chunk in looks.chunks if chunk.channel == channel)
    assert "well [x] more" in shown
    if channel != "tool_call":
        assert answer.only.said(channel) == "WELL [X] MORE"


@everywhere()
@pytest.mark.parametrize("answer", ["none", "text", "out of range", "overlap", "rewind"])
async def test_an_answer_that_is_no_verdict_is_a_failure(case: Case, answer: str) -> None:  # contract 3.8
    case.withholds(*SECRET)
    got = await case.answer(well(CONTENT), guard("Nonsense", word="zebra7", answer=answer))
    assert got.error is not None
    assert got.error.kind == case.endpoint.guardrail_error
    assert got.only.content == ("well " if case.streams else "")


@everywhere()
async def test_a_hold_on_a_final_chunk_is_a_failure(case: Case) -> None:  # contract 3.4
    case.withholds(*SECRET, "well")
    got = await case.answer([*well(CONTENT)[:-1], end()], guard("HoldsAtTheEnd"))
    assert got.error is not None
    assert (got.status, got.error.kind) == (500, case.endpoint.guardrail_error)


SHADOWS = [
    guard("Redacts", word="zebra7", mode="shadow"),
    guard("Suppresses", word="zebra7", mode="shadow"),
    guard("Ends", word="zebra7", mode="shadow"),
    guard("Rewinds", word="zebra7", mode="shadow"),
    guard("Raises", word="zebra7", mode="shadow"),
    guard("Nonsense", word="zebra7", answer="none", mode="shadow"),
    guard("Reads", mode="shadow"),
    guard("FailsToListen", mode="shadow"),
]


@every_channel()
async def test_hooks_in_shadow_mode_change_nothing(case: Case, channel: Channel) -> None:
    """Contract 3.10, 3.15."""
    plain = await case.answer(well(channel), prompt="hunter2")
    answer = await case.answer(well(channel), *SHADOWS, prompt="hunter2")
    assert answer.seen == plain.seen
    for name in ("Redacts", "Suppresses", "Ends", "Rewinds", "Raises", "Nonsense"):
        assert case.tallies[name].verdicts.keys() - {"emit", "hold"}, "its verdict is counted"


@everywhere("token_ids")
async def test_tokens_whose_text_is_not_told_apart_move_as_one(case: Case) -> None:  # contract 3.11
    one = (Token(1, "", b"", -0.1), Token(2, "", b"", -0.1), Token(3, "well zebra7", b"", -0.1))
    two = (Token(4, "", b"", -0.1), Token(5, " more", b" more", -0.1))
    script = [Delta(text="well zebra7", tokens=one), Delta(text=" more", tokens=two), end()]
    answer = await case.answer(script, guard("Redacts", word="zebra7"))
    assert (answer.only.content, answer.only.ids) == ("well [x] more", [4, 5])


@every_channel()
@pytest.mark.parametrize(("at_cut", "tail"), [("withhold", ""), ("release", "zeb")])
async def test_a_possible_match_at_a_cut_is_withheld_unless_a_setting_says_otherwise(
    case: Case, channel: Channel, at_cut: str, tail: str
) -> None:  # contract 3.12
    script = [*said(channel, "well ", "zeb"), end("length")]
    if channel == "tool_call":
        del script[-2]  # the call's end
    spec = HookSpec("phrases", {"phrases": ["zebra7"], "at_cut": at_cut})
    answer = await case.answer(script, spec)
    if channel == "echo":
        tail = "zeb"  # the prompt is whole (contract 2.9)
    assert answer.only.said(channel) == case.cut(channel, f"well {tail}")
    assert answer.only.finish == "length"


@everywhere("logprobs")
@pytest.mark.parametrize("verdict", ["hold", "redact", "terminate"])
async def test_every_verdict_can_withhold_alternatives(case: Case, verdict: str) -> None:  # contract 3.13
    case.withholds("alt:")
    answer = await case.answer(well(CONTENT), guard("NoAlternatives", verdict=verdict))
    assert answer.only.tokens == ["well ", "zeb", "ra7", " more"][: 1 if verdict == "terminate" else 4]
