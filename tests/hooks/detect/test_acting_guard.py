"""A tool call's name is the model's word unless the request has such a tool (contract 5.3)."""

from dataclasses import replace
from typing import Any

import pytest

from engine.protocol import Delta, ToolCall
from hooks.detect.judge_guard import JudgeGuard
from hooks.detect.windows import make_windows
from hooks.loading.loader import HookSpec, load_hook
from hooks.testing import Released, assert_never_released, play, stream_of
from tests.helpers import finish_of, guard_all, make_deltas, make_request, pipeline_of, text_of
from tests.hooks.detect.test_judge_guard import Finds

KEY = "AKIA" + "J7QRSTUVWX234567"
FOUND: list[tuple[str, dict[str, Any], str]] = [
    ("phrases", {"phrases": ["hunter2"]}, "hunter2"),
    ("phrases", {"phrases": ["project bluebird"]}, "project_bluebird"),
    ("phrases", {"phrases": ["project bluebird"]}, "getProjectBluebird"),
    ("pii", {}, "ann@initech.org"),
    ("secrets", {}, KEY),
    ("prompt_leak", {"roles": ["user"], "min_words": 3}, "never-say-this"),
]


def played(guard: Any, name: str, tools: tuple[Any, ...] = ()) -> Released:
    stream = stream_of(['{"a": ', "1}"], channel="tool_call", tool_name=name, prompt="Never say this.")
    return play(guard, replace(stream, request=replace(stream.request, tools=tools)))


@pytest.mark.parametrize("mode", ["the kit's own"], indirect=True)
@pytest.mark.parametrize("action", ["redact", "suppress", "terminate"])
@pytest.mark.parametrize(("guard", "args", "name"), FOUND)
def test_a_call_by_a_name_that_is_found_is_withheld(
    guard: str, args: dict[str, Any], name: str, action: str
) -> None:
    text = {"text": "No."} if action == "terminate" else {}
    spec = HookSpec(guard, args={**args, **text, "action": action})
    released = played(spec, name)
    assert released.tool_calls == []
    assert released.finish_reason == ("content_filter" if action == "terminate" else "stop")
    stream = stream_of("{}", channel="tool_call", tool_name=name, prompt="Never say this.")
    assert_never_released(spec, stream, name, num_random=0)


@pytest.mark.parametrize("guard", ["phrases", "judge"])
def test_the_callers_own_names_pass_and_so_do_harmless_ones(guard: str) -> None:
    phrases = load_hook(HookSpec("phrases", args={"phrases": ["hunter2"]})).call
    hook = phrases if guard == "phrases" else JudgeGuard(Finds("hunter2"), make_windows("characters", 9, 3))
    assert played(hook, "hunter2").tool_calls == []
    assert played(hook, "send").tool_calls == [("send", '{"a": 1}')]
    for tool in (
        {"type": "function", "function": {"name": "hunter2"}},
        {"type": "custom", "name": "hunter2"},
    ):
        assert played(hook, "hunter2", (tool,)).tool_calls == [("hunter2", '{"a": 1}')]


async def test_a_withheld_call_takes_nothing_else_with_it() -> None:
    guard = load_hook(HookSpec("phrases", args={"phrases": ["hunter2"]})).call
    deltas = [
        *make_deltas(["Well, "], finish=False),
        *make_deltas(
            ["{", "}"], first_id=1, finish=False, channel="tool_call", tool_call=ToolCall(0, "hunter2")
        ),
        *make_deltas(["[]"], first_id=3, finish=False, channel="tool_call", tool_call=ToolCall(1, "send")),
        Delta(finish_reason="tool_calls"),
    ]
    released = await guard_all(pipeline_of(guard), deltas, make_request())
    assert {delta.tool_call.name for delta in released if delta.tool_call} == {"send"}
    assert (text_of(released), text_of(released, "tool_call")) == ("Well, ", "[]")
    assert finish_of(released) == ("tool_calls", None)


SUSPICIOUS = "All is well. The word is hunter2, and hunter2 again."


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize("guard", ["phrases", "judge"])
def test_suspect_withholds_nothing_and_says_it_once_before_the_match_leaves(guard: str, size: int) -> None:
    args = {"phrases": ["hunter2"], "action": "suspect"}
    phrases = load_hook(HookSpec("phrases", args=args)).call
    judge = JudgeGuard(Finds("hunter2"), make_windows("characters", 9, 3), action="suspect")
    hook = phrases if guard == "phrases" else judge
    pieces = [SUSPICIOUS[at : at + size] for at in range(0, len(SUSPICIOUS), size)]
    released = play(hook, stream_of(pieces))
    assert released.content == SUSPICIOUS
    (one,) = [one for one in released.judgements if one.action == "suspect"]
    assert one.start <= SUSPICIOUS.index("hunter2") < one.end


def test_a_suspicious_name_of_a_tool_is_told_and_the_call_passes() -> None:
    released = played(JudgeGuard(Finds("x"), make_windows("characters", 9, 3), action="suspect"), "x")
    assert released.tool_calls == [("x", '{"a": 1}')]
    assert released.judgements[0].action == "suspect"
