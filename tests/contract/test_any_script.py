"""Whatever an engine says, however it is cut, and whatever hooks decide: every endpoint tells the same.

What a client gets is what the machine releases (contract 2.5), in the words that its endpoint has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.protocol import Channel, Delta, Token, ToolCall
from hooks import Chunk, Verdict, emit, hold, redact, suppress, terminate
from tests.contract.case import Case, counted
from tests.contract.wire import ENDPOINTS, Endpoint, Output
from tests.helpers import ScriptedEngine, examples, guard_all, make_request, make_token, pipeline_of
from tests.proxy.conftest import Client, Serve

TEXTS = st.text(st.sampled_from('ab z"\\{}\n🦀é'), max_size=12)


@st.composite
def scripts(draw: st.DrawFn, channels: Sequence[Channel]) -> list[Delta]:
    """Runs of text on these channels, each cut into tokens and deltas, and an end."""
    deltas: list[Delta] = []
    num_calls = 0
    for channel in draw(st.lists(st.sampled_from(channels), max_size=4)):
        text, call = draw(TEXTS), None
        if channel == "tool_call":
            text = draw(st.sampled_from(["", orjson.dumps({"a": text}).decode(), text]))
            call = ToolCall(num_calls, f"f{num_calls}")
            num_calls += 1
        while True:
            tokens = []
            for _ in range(draw(st.integers(0, 3))):
                size = draw(st.integers(0, 4))
                piece, text = text[:size], text[size:]
                tokens.append(make_token(piece, 100 + 10 * len(deltas) + len(tokens)))
            said = "".join(token.text for token in tokens)
            deltas.append(Delta(text=said, tokens=tuple(tokens), channel=channel, tool_call=call))
            if not text:
                break
    finish: Any = draw(st.sampled_from(["length", "tool_calls" if num_calls else "stop"]))
    tokens = draw(st.sampled_from([(), (Token(9, "", b"</s>", -0.5),)]))
    return counted([*deltas, Delta(tokens=tokens, finish_reason=finish)])


ACTIONS = ("emit", "emit", "hold 1", "hold", "suppress", "redact", "rewrite", "bare", "terminate")
PLANS = st.lists(st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=6), min_size=1, max_size=2)


class Plan:
    """Decides the n-th chunk of each stream by the n-th action, over and over."""

    def __init__(self, actions: Sequence[str]) -> None:
        self.actions = actions

    def __call__(self, chunk: Chunk) -> Verdict:
        number = chunk.state["number"] = chunk.state.get("number", -1) + 1
        action, text = self.actions[number % len(self.actions)], chunk.pending
        if action.startswith("hold") and not chunk.is_final:
            return hold(min(1, len(text)) if action == "hold 1" else None)
        if action == "redact":
            return redact([(0, -(-len(text) // 2), "_")])
        if action == "terminate":
            return terminate("planned", after=len(text) // 2, text="!")
        others = {
            "suppress": suppress(),
            "rewrite": emit(text.upper()),
            "bare": emit(text, alternatives=False),
        }
        return others.get(action, emit(text))


async def released(script: list[Delta], plans: list[list[str]]) -> tuple[Output, tuple[int, int]]:
    """What the machine releases, without any endpoint."""
    deltas = await guard_all(pipeline_of(*(Plan(plan) for plan in plans)), script, make_request())
    output = Output(finish=deltas[-1].finish_reason, reason=deltas[-1].stop_reason)
    calls: dict[int, tuple[str, str]] = {}
    for delta in deltas:
        if delta.tool_call is not None:
            name, text = calls.get(delta.tool_call.index, (delta.tool_call.name, ""))
            calls[delta.tool_call.index] = name, text + delta.text
        elif delta.channel == "reasoning":
            output.reasoning += delta.text
        else:
            output.content += delta.text
        output.ids += [token.id for token in delta.tokens if token.id is not None]
    output.calls = [*calls.values()]
    usage = deltas[-1].usage
    assert usage is not None
    return output, (usage.prompt_tokens, usage.completion_tokens)


def is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def told(endpoint: Endpoint, output: Output) -> Output | None:
    """The output in the endpoint's words, without tokens; None: it is an error there."""
    calls, finish = output.calls, output.finish
    if not endpoint.can("cut_call"):
        is_ended = finish in ("stop", "tool_calls")
        if is_ended and not all(is_object(text or "{}") for _, text in calls if text.strip()):
            return None
        calls = [(name, text if text.strip() or not is_ended else "{}") for name, text in calls]
        calls = [(name, orjson.dumps(orjson.loads(text)).decode()) for name, text in calls if is_object(text)]
        if is_ended:
            finish = "tool_calls" if calls else "stop"
    if not endpoint.can("finish_tool_calls") and finish == "tool_calls":
        finish = "stop"
    return Output(output.content, output.reasoning, calls, finish=finish, reason=output.reason)


async def check(client: Client, endpoint: Endpoint, output: Output, usage: tuple[int, int]) -> None:
    """Ask in both modes, and compare with what the machine released."""
    expected = told(endpoint, output)
    answers = []
    for streams in (False, True):
        case = Case(endpoint, streams, None, None)
        answers.append(await case.ask(client))
    whole, streamed = answers
    if expected is None:
        assert whole.error is not None
        assert streamed.error is not None
        assert (whole.error.kind, whole.error.message) == (streamed.error.kind, streamed.error.message)
        return
    assert whole.seen == streamed.seen
    got = whole.only
    if endpoint.can("token_ids"):
        assert got.ids == output.ids
        assert len(got.tokens) == len(got.ids)
    assert Output(got.content, got.reasoning, got.calls, finish=got.finish, reason=got.reason) == expected
    assert whole.usage == usage


@dataclass
class Scene:
    """A server whose engine and hooks do what each example says."""

    client: Client
    plans: list[Plan]
    script: list[Delta]

    async def check(self, script: list[Delta], plans: list[list[str]], endpoints: Sequence[Endpoint]) -> None:
        self.script[:] = script
        for plan, actions in zip_longest(self.plans, plans, fillvalue=["emit"]):
            plan.actions = actions
        output, usage = await released(script, plans)
        for endpoint in endpoints:
            await check(self.client, endpoint, output, usage)


@pytest.fixture
async def scene(serve: Serve) -> Scene:
    script: list[Delta] = []
    plans = [Plan(["emit"]), Plan(["emit"])]
    return Scene(await serve(ScriptedEngine(lambda request: list(script)), *plans), plans, script)


few = settings(
    examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
"""A server has no state that an answer depends on."""


@few
@given(script=scripts(["content"]), plans=PLANS)
async def test_a_text_is_the_same_on_every_endpoint(
    scene: Scene, script: list[Delta], plans: list[list[str]]
) -> None:
    await scene.check(script, plans, ENDPOINTS)


@few
@given(script=scripts(["content", "reasoning", "tool_call"]), plans=PLANS)
async def test_every_channel_is_the_same_on_every_endpoint_that_has_it(
    scene: Scene, script: list[Delta], plans: list[list[str]]
) -> None:
    await scene.check(script, plans, [one for one in ENDPOINTS if one.can("tool_call", "reasoning")])
