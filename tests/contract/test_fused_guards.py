"""What reads text in place of guards fails as a hook: it may raise, and it may be late (contract 4.5)."""

import asyncio
import logging
import time
from typing import Any

import pytest

from engine.protocol import Channel, Delta
from engine.upstream.echo import EchoEngine
from hooks import Chunk, Verdict, emit, terminate
from hooks.decisions.failure import HookError
from hooks.loading.loader import HookLoadError, HookSpec, LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.loading.screen import Mark, Screened
from hooks.pipeline.pipeline import Pipeline
from tests.contract.case import SECRET, Case, every_channel, everywhere, well
from tests.helpers import make_request, verdicts_of

LIMIT = 0.5
"""Seconds that a hook has for a chunk."""
WAYS = {
    "raises in step": "ValueError at ",
    "raises in step_over": "ValueError at ",
    "raises in may_skip": "ValueError at ",
    "raises in skip": "ValueError at ",
    "is late": "TimeoutError",
}
"""What a screen does wrong, and what the log contains of it."""
every_way = pytest.mark.parametrize("way", WAYS)


class Screens(Screened):
    """Lets everything through. Its screen does something wrong at `sign`; `may_skip` and `skip` do so at
    once. `at_start`: also in the self-test."""

    def __init__(self, way: str, sign: str, at_start: bool = False) -> None:
        self.way = way
        self.at_start = at_start
        self.reads = Reads(way, sign)

    @property
    def screen(self) -> Any:
        return self.reads

    def __call__(self, chunk: Chunk) -> Verdict:
        chunk.state["fails"] = self.at_start or chunk.request_id != "weir-self-test"
        return emit(chunk.pending)

    def may_skip(self, state: dict[Any, Any]) -> Any:
        if state.get("fails"):
            self.reads.fail("may_skip")
        return "fails" in state

    def skip(self, state: dict[Any, Any], before: str) -> None:
        if state["fails"]:
            self.reads.fail("skip")


class Reads:
    width = 8
    start = anywhere = Mark(0, "")

    def __init__(self, way: str, sign: str) -> None:
        self.way = way
        self.sign = sign

    def fail(self, method: str) -> None:
        if self.way == f"raises in {method}":
            raise ValueError("zebra7 I saw")

    def step(self, mark: Mark, char: str) -> Any:
        if char not in self.sign:
            return mark
        self.fail("step")
        if self.way == "is late":
            time.sleep(1.1 * LIMIT)
        return None if self.way in ("raises in skip", "raises in step_over") else mark

    def step_over(self, mark: Mark, char: str) -> Mark:
        if char in self.sign:
            self.fail("step_over")
        return mark


def screens(way: str, sign: str, name: str = "screens", *, at_start: bool = False) -> HookSpec:
    return HookSpec(f"{__name__}:Screens", {"way": way, "sign": sign, "at_start": at_start}, name=name)


AFTER = screens("", "", "after")


@every_channel()
@every_way
async def test_a_screen_that_fails_is_a_hook_that_fails(case: Case, channel: Channel, way: str) -> None:
    """Contract 4.1, 4.2, 4.5. In tool calls guards are called by themselves."""
    if channel == "tool_call":
        answer = await case.answer(well(channel), screens(way, "z7"), AFTER, hook_timeout=LIMIT)
        assert answer.error is None
        return
    shown = {"raises in skip": SECRET[:1], "raises in step_over": SECRET}.get(way, ())
    case.withholds("more", "I saw", *(one for one in SECRET if one not in shown))
    sign = "7" if way == "raises in skip" else "z"
    case.caplog.set_level(logging.INFO)
    hooks = (screens(way, sign), AFTER)
    answer = await case.answer(well(channel), *hooks, hook_timeout=LIMIT)
    assert answer.error is not None
    assert answer.error.kind == case.endpoint.guardrail_error
    assert answer.error.message == "A guardrail failed, so the request was ended."
    assert answer.status == (200 if case.streams else 500)
    assert answer.only.finish is None
    assert (case.engine.running, case.engine.aborted) == (0, 1)
    assert [tally.others["error"] for tally in case.tallies.values()] == [1, 0]
    lines = [one.getMessage() for one in case.caplog.records if "failed" in one.getMessage()]
    (line,) = (one for one in lines if one.startswith("hook screens failed: "))
    assert WAYS[way] in line
    if way.startswith("raises"):
        assert f"at {__file__}:" in line


@everywhere()
@pytest.mark.parametrize("way", ["raises in step", "is late"])
async def test_a_screen_that_fails_does_not_affect_other_requests(case: Case, way: str) -> None:
    """Contract 4.1, 4.5."""
    client = await case.start(EchoEngine(), screens(way, "z"), AFTER, hook_timeout=LIMIT)
    prompts = [f"one two {'zwo zwo zwo zwo' if i == 3 else i} three four" for i in range(8)]
    answers = await asyncio.gather(*(case.ask(client, prompt) for prompt in prompts))
    for prompt, answer in zip(prompts, answers, strict=True):
        assert (answer.error is None) == ("zwo" not in prompt)
        if answer.error is None:
            assert (answer.only.content, answer.only.finish) == (prompt, "stop")


@every_way
async def test_a_screen_that_fails_keeps_the_server_from_starting(way: str) -> None:  # contract 4.5
    sign = {"raises in step_over": "l", "raises in skip": "w"}.get(way, ",")
    hook = screens(way, sign, at_start=True)
    pipeline = await Pipeline.load([hook], options=PipelineOptions(hook_timeout=LIMIT))
    with pytest.raises(HookLoadError, match="'screens' failed its self-test: ") as caught:
        await pipeline.start()
    assert ("zebra7 I saw" in str(caught.value)) == way.startswith("raises")
    assert verdicts_of(pipeline)["screens"]["error"] == 0


async def test_fused_guards_have_their_last_call_when_the_client_has_left() -> None:
    """Contract 2.6: also the guards for which a screen reads."""
    ended: list[str] = []

    class Ends(Screens):
        def __call__(self, chunk: Chunk) -> Verdict:
            ended.extend(["aborted"] * chunk.aborted)
            return super().__call__(chunk)

    hooks = [Ends("", ""), Ends("", "")]
    guard = Pipeline([LoadedHook.of(str(i), hook) for i, hook in enumerate(hooks)]).open(make_request())
    for piece in ("one ", "two ", "three "):
        assert (await guard.feed(Delta(text=piece))).released == [Delta(text=piece)]
    await guard.close()
    await guard.close()
    assert ended == ["aborted"] * 2


async def test_a_screen_that_fails_nowhere_passes_the_self_test() -> None:  # contract 4.5
    pipeline = await Pipeline.load([screens("raises in step", "z"), screens("is late", "z")])
    await pipeline.start()


class Ends(Screens):
    """The second guard: its closing text on another channel is shown to the guards after it alone."""

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.channel == "reasoning" and "end" in chunk.pending:
            return terminate("ended", text="That is all.")
        return super().__call__(chunk)


async def test_a_screen_that_fails_where_a_closing_text_comes_is_a_hook_that_fails() -> None:
    """Contract 3.3, 4.5: the guards after the one that ends go on from the text that was read for them."""
    hooks = [Screens("raises in skip", ""), Ends("", ""), Screens("", "")]
    pipeline = Pipeline([LoadedHook.of(str(i), hook) for i, hook in enumerate(hooks)])
    guard = pipeline.open(make_request())
    for piece in ("one ", "two ", "three "):
        await guard.feed(Delta(text=piece))
    with pytest.raises(HookError, match="A guardrail failed"):
        await guard.feed(Delta(text="the end", channel="reasoning"))
    assert verdicts_of(pipeline)["0"]["error"] == 1
