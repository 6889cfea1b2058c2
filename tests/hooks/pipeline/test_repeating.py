"""A text that hooks read once more is reported and counted once (contract 8.10, 8.16)."""

from typing import Any

import pytest

from engine.protocol import Delta
from hooks import Chunk, Decision, Verdict, emit, hold, redact, terminate
from hooks.decisions.failure import HookError
from tests.helpers import make_request, opened, pipeline_of, verdicts_of


class Digits:
    """Redacts digits, ends at a bell, fails at a backslash, and listens."""

    def __init__(self) -> None:
        self.told: list[Decision] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        text = chunk.pending
        if "\\" in text:
            raise ValueError
        if "\a" in text:
            return terminate("bell")
        if text.endswith("?") and not chunk.is_final:
            return hold()
        found = [(i, i + 1, "#", "digit") for i, sign in enumerate(text) if sign.isdigit()]
        return redact(found) if found else emit(text)

    def on_decision(self, decision: Decision) -> None:
        self.told.append(decision)


def places(decisions: list[Decision]) -> list[tuple[str, int]]:
    return [(one.action, one.offset) for one in decisions]


async def read(
    pipeline: Any, *texts: str, num_repeated: int, listener: list[Decision], ends: bool = True
) -> str:
    released = []
    async with opened(pipeline, make_request(), listener=listener.append, num_repeated=num_repeated) as guard:
        try:
            deltas = [Delta(text=text) for text in texts] + [Delta(finish_reason="stop")] * ends
            for delta in deltas:
                released += [one.text for one in (await guard.feed(delta)).released]
        finally:
            await guard.close()
    return "".join(released)


async def test_only_decisions_about_new_text_are_reported_and_counted() -> None:
    hook, heard = Digits(), list[Decision]()
    pipeline = pipeline_of(hook)
    assert await read(pipeline, "a1", "b2", "c3", num_repeated=4, listener=heard) == "a#b#c#"
    assert places(heard) == places(hook.told) == [("redact", 5)]
    assert verdicts_of(pipeline)["hook0"]["redact"] == 1


async def test_text_that_was_held_at_the_end_of_the_first_reading_is_reported_when_it_is_decided() -> None:
    hook, heard = Digits(), list[Decision]()
    pipeline = pipeline_of(hook)
    assert await read(pipeline, "1?", "2", num_repeated=2, listener=heard) == "#?#"
    assert places(heard) == places(hook.told) == [("redact", 0), ("redact", 2)]


@pytest.mark.parametrize(("sign", "action"), [("\a", "terminate"), ("\\", "error")])
async def test_an_end_and_a_failure_are_reported_wherever_they_come(sign: str, action: str) -> None:
    hook, heard = Digits(), list[Decision]()
    pipeline = pipeline_of(hook)
    try:
        await read(pipeline, f"1{sign}", num_repeated=2, listener=heard, ends=False)
    except HookError:
        assert action == "error"
    assert [one.action for one in heard] == [one.action for one in hook.told] == [action]
    assert +verdicts_of(pipeline)["hook0"] == {action: 1}


async def test_the_time_of_a_second_reading_is_counted() -> None:
    pipeline = pipeline_of(Digits())
    await read(pipeline, "12", num_repeated=2, listener=[], ends=False)
    tally = pipeline.tallies["hook0"]
    assert tally.seconds > 0
    assert not tally.others["redact"]
