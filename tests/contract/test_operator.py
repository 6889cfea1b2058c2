"""The operator alone is told of decisions in an answer (contract 8.14)."""

from typing import Any

import pytest
from pydantic import SecretStr

from engine.protocol import Channel
from tests.contract.case import SECRET, Case, end, every_channel, everywhere, guard, said, well
from tests.contract.wire import ENDPOINTS

ADMIN = "a-key-of-the-operator"
ASKS = {"X-Weir-Decisions": "true"}
OPERATOR = {**ASKS, "X-Weir-Admin-Key": ADMIN}


def settings(**more: Any) -> dict[str, Any]:
    return {"admin_key": [SecretStr(ADMIN)], "store": SecretStr("sqlite:///:memory:"), **more}


def decisions(answer: Any) -> list[tuple[str, ...]]:
    return [
        (one["hook"], one["action"], one["mode"])
        for name, one in answer.told
        if name == "weir.decision" and one["action"] != "hold"
    ]


@every_channel()
async def test_the_operator_is_told_before_what_follows_from_a_decision(
    case: Case, channel: Channel
) -> None:  # contract 8.14
    case.withholds(*SECRET)
    hooks = guard("Ends", word="more", mode="shadow"), guard("Redacts", word="zebra7")
    server = await case.start(well(channel), *hooks, **settings())
    fields = {"echo": True} if channel == "echo" else {}
    plain = await case.ask(server, **fields)
    answer = await case.ask(server, headers=OPERATOR, **fields)
    assert (plain.seen, plain.told) == (answer.seen, [])
    assert decisions(answer) == [("Redacts", "redact", "enforce"), ("Ends", "terminate", "shadow")]
    (told,) = [one for name, one in answer.told if one.get("action") == "redact"]
    assert (told["channel"], told["num_withheld"], told["num_released"]) == (channel, 6, 3)
    assert told["request_id"] == answer.headers["X-Request-Id"]
    assert "withheld" not in told
    if case.streams:
        assert answer.raw.index(b"event: weir.decision") < answer.raw.index(b"[x]")


@everywhere()
async def test_nobody_else_is_told(case: Case) -> None:  # contract 8.14
    case.withholds(*SECRET)
    server = await case.start(well("content"), guard("Redacts", word="zebra7"), **settings())
    for headers in (ASKS, {**ASKS, "X-Weir-Admin-Key": "another"}, {**ASKS, "Authorization": "Bearer x"}):
        answer = await case.ask(server, headers=headers)
        assert answer.error is not None
        assert (answer.status, answer.told) == (403, [])
        assert "X-Weir-Decisions" in answer.error.message
    assert case.engine.requests == []


@everywhere()
@pytest.mark.parametrize(("keeps", "has_key"), [(False, True), (True, False), (True, True)])
async def test_withheld_text_is_told_by_the_setting_and_to_the_admin_key(
    case: Case, keeps: bool, has_key: bool
) -> None:  # contract 8.14
    if not (keeps and has_key):
        case.withholds(*SECRET)
    more = settings() if has_key else {}
    hook = guard("Redacts", word="zebra7")
    server = await case.start(well("content"), hook, keep_withheld_text=keeps, **more)
    answer = await case.ask(server, headers=OPERATOR)
    (told,) = [one for _, one in answer.told if one.get("action") == "redact"]
    assert told.get("withheld") == ("zebra7" if keeps and has_key else None)
    assert "zebra7" not in answer.only.content


@everywhere()
async def test_decisions_that_lead_to_an_error_are_told_with_it(case: Case) -> None:  # contract 8.14
    script = [*said("content", "well ", "bad"), end()]
    server = await case.start(script, guard("Raises", word="bad"), **settings())
    answer = await case.ask(server, headers=OPERATOR)
    assert answer.error is not None
    assert decisions(answer) == [("Raises", "error", "enforce")]


@everywhere()
async def test_a_refused_prompt_is_told(case: Case) -> None:  # contract 8.14
    server = await case.start(well("content"), guard("Reads"), **settings())
    answer = await case.ask(server, "hunter2", headers=OPERATOR)
    assert answer.status == 400
    assert decisions(answer) == [("Reads", "refuse", "enforce")]


@pytest.mark.parametrize("case", [(ENDPOINTS[0], True)], indirect=True)
async def test_held_text_is_counted_while_nothing_is_released(case: Case) -> None:  # contract 8.14
    script = [*said("content", "one ", "two ", "three"), end()]
    server = await case.start(script, guard("Holds"), **settings())
    answer = await case.ask(server, headers=OPERATOR)
    held = [one for name, one in answer.told if name == "weir.held"]
    assert held[0] == {"output_index": 0, "channel": "content", "hook": "Holds", "num_held": 4}
    assert [one["num_held"] for one in held] == [4, 8, 13, 0]
