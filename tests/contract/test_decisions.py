"""What listeners are told of a request's decisions, and when (contract 8.2, 8.10)."""

import pytest

from engine.protocol import Channel
from tests.contract.case import SECRET, Case, end, every_channel, everywhere, guard, said, well
from tests.contract.wire import OPEN

ACTIONS = {"Redacts": "redact", "Rewrites": "rewrite", "Suppresses": "suppress", "Ends": "terminate"}


@every_channel()
@pytest.mark.parametrize("name", ACTIONS)
async def test_a_listener_is_told_who_withheld_what(case: Case, channel: Channel, name: str) -> None:
    """Contract 8.2, 3.13: the reason of a suppression is told to listeners alone."""
    case.withholds(*SECRET)
    answer = await case.answer(well(channel), guard(name, word="zebra7"), guard("Listens"))
    listens = case.hooks[-1]
    (told,) = [one for one in listens.decisions if one.action != "hold"]
    assert (told.hook, told.action, told.mode) == (name, ACTIONS[name], "enforce")
    assert (told.endpoint, told.channel, told.output_index) == (case.endpoint.name, channel, 0)
    assert told.offset == len("well ") + (len(OPEN) if channel == "tool_call" else 0)
    assert (told.withheld, told.num_withheld) == ("zebra7", 6)
    assert told.reason == (None if name in ("Redacts", "Rewrites") else "no_secrets")
    assert told.tool_name == ("f" if channel == "tool_call" else None)
    assert told.held_seconds >= 0
    assert told.request_id == answer.headers["X-Request-Id"]


@every_channel()
async def test_listeners_are_told_before_the_client(case: Case, channel: Channel) -> None:
    """Contract 8.2, 8.10: a listener that fails ends the request before anything that follows leaves."""
    case.withholds(*SECRET, "[x]", "more")
    answer = await case.answer(well(channel), guard("Redacts", word="zebra7"), guard("FailsToListen"))
    assert answer.error is not None
    assert answer.error.kind == case.endpoint.guardrail_error
    assert answer.only.said(channel) == (case.ended(channel, "well ") if case.streams else "")


@everywhere()
async def test_every_listener_is_told_each_decision_once(case: Case) -> None:  # contract 8.10
    hooks = (
        guard("Redacts", word="more", mode="shadow"),
        guard("Redacts", word="zebra7"),
        guard("Listens"),
        guard("Raises", word="[x]"),
        guard("Listens"),
    )
    await case.answer(well("content"), *hooks)
    first, second = case.hooks[2], case.hooks[4]
    assert first.decisions == second.decisions
    told = [(one.hook, one.action, one.mode) for one in first.decisions if one.action != "hold"]
    assert told == [("Redacts", "redact", "enforce"), ("Raises", "error", "enforce")]


@everywhere()
async def test_what_was_held_at_a_failure_is_told(case: Case) -> None:  # contract 8.2
    case.withholds("zeb")
    script = [*said("content", "well ", "zeb"), *said("content", "bad"), end()]
    await case.answer(script, guard("Holds"), guard("Listens"), guard("Raises", word="zebbad"))
    *_, told = case.hooks[1].decisions
    assert (told.hook, told.action, told.withheld) == ("Raises", "error", "well zebbad")
