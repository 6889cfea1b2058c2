"""Guards that are models, as clients and operators of every endpoint see them (contract 3.16, 3.17)."""

from typing import Any

from engine.protocol import Channel
from tests.contract.case import SECRET, Case, end, every_channel, everywhere, guard, said, well
from tests.contract.test_operator import OPERATOR, settings

ALL = ("content", "reasoning", "tool_call", "echo")


def judged(answer: Any) -> list[dict[str, Any]]:
    return [one for name, one in answer.told if name == "weir.decision" and one["action"] == "judged"]


@every_channel()
async def test_text_waits_for_its_verdict(case: Case, channel: Channel) -> None:  # contract 3.17
    case.withholds(*SECRET, "more")
    hook = guard("Judges", word="zebra7", window=2, channels=ALL)
    server = await case.start(well(channel), hook, **settings())
    fields = {"echo": True} if channel == "echo" else {}
    answer = await case.ask(server, headers=OPERATOR, **fields)
    (told,) = [one for one in judged(answer) if one["channel"] == channel]
    assert told["num_judged"] > 0
    assert (told["num_unjudged"], told["max_unjudged"]) == (0, 0)
    assert "zebra7" not in str(told)


@everywhere()
async def test_an_answer_says_how_much_of_it_was_judged(case: Case) -> None:  # contract 3.17
    hook = guard("Judges", word="zebra7", releases=True, window=2)
    engine = [*said("content", "one ", "two ", "three ", "four"), end("stop")]
    server = await case.start(engine, guard("Looks"), **settings())
    plain = await case.ask(server)
    server = await case.start(engine, hook, **settings())
    answer = await case.ask(server, headers=OPERATOR)
    assert answer.only.content == plain.only.content
    (told,) = judged(answer)
    assert (told["num_judged"], told["num_unjudged"], told["reason"]) == (4, 0, None)
    assert 1 <= told["max_unjudged"] <= 2


@everywhere()
async def test_a_judge_that_fails_ends_the_request(case: Case) -> None:  # contract 3.17, 4.1
    case.withholds("fails", "later")
    hook = guard("Judges", word="zebra7", window=1)
    answer = await case.answer([*said("content", "one ", "fails", "later"), end("stop")], hook)
    assert answer.error is not None
    assert answer.error.kind == case.endpoint.guardrail_error


@everywhere()
async def test_a_suspicion_lets_the_next_hook_act(case: Case) -> None:  # contract 3.16, 2.11
    case.withholds("bluebird")
    hooks = guard("Suspects", word="zebra7"), guard("Judges", word="bluebird", only_when="suspect")
    answer = await case.answer([*said("content", "a ", "zebra7 ", "bluebird"), end("stop")], *hooks)
    assert answer.only.content == "a zebra7 "
    calm = await case.answer([*said("content", "a ", "zebra "), end("stop")], *hooks)
    assert calm.only.content == "a zebra "
