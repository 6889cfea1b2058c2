"""Which tool calls a client gets, on every endpoint, streamed and whole (contract 3.20)."""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pytest

from engine.protocol import Delta, ToolCall
from engine.upstream.openai.engine import OpenAIEngine
from hooks.loading.loader import HookSpec
from tests.contract.case import Case, end, everywhere, guard, said
from tests.engine.upstream.conftest import fake_upstream
from tests.helpers import make_token
from tests.proxy.conftest import read_events

PHRASES = {"phrases": ["Project Bluebird"], "action": "terminate", "text": "Stopped."}
ARGUMENTS = '{"command":"rm -rf build/Project Bluebird"}'


def run(text: str, *, index: int = 0, name: str = "f", size: int = 5) -> list[Delta]:
    """A call in deltas of `size` characters."""
    call = ToolCall(index, name, "upstreams-own")
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    ids = range(100 * index + 200, 100 * index + 200 + len(pieces))
    return [
        Delta(text=piece, tokens=(make_token(piece, i),), channel="tool_call", tool_call=call)
        for i, piece in zip(ids, pieces, strict=True)
    ]


@everywhere("tool_call")
@pytest.mark.parametrize("hook_workers", [0, 1])
@pytest.mark.parametrize("finish", ["content_filter", "stop"])
async def test_a_call_that_a_guard_ends_is_no_call(case: Case, finish: str, hook_workers: int) -> None:
    """Contract 3.20, 3.3: neither its name nor a part of its arguments is anywhere. The closing text is
    content."""
    case.withholds("rm -rf", "command", "get_it")
    script = [*said("content", "So. "), *run(ARGUMENTS, name="get_it"), end("tool_calls")]
    answer = await case.answer(
        script,
        HookSpec("phrases", PHRASES),
        terminate_finish_reason=finish,
        **({"hook_workers": hook_workers} if hook_workers else {}),
    )
    assert (answer.only.content, answer.only.calls, answer.only.finish) == ("So. Stopped.", [], finish)


@everywhere("tool_call")
async def test_a_guard_that_ends_reasoning_closes_in_content(case: Case) -> None:  # contract 3.3
    script = [*said("reasoning", "About ", "Project ", "Bluebird."), end()]
    answer = await case.answer(script, HookSpec("phrases", PHRASES), HookSpec("secrets", {}))
    assert (answer.only.reasoning.strip(), answer.only.content) == ("About", "Stopped.")


@everywhere("tool_call")
async def test_the_call_in_front_of_an_ended_one_is_whole(case: Case) -> None:  # contract 3.20
    script = [*run('{"a":"b"}'), *run(ARGUMENTS, index=1, name="g"), end("tool_calls")]
    answer = await case.answer(script, HookSpec("phrases", PHRASES))
    assert (answer.only.calls, answer.only.content) == ([("f", '{"a":"b"}')], "Stopped.")
    assert answer.only.finish == "content_filter"
    for item in items_of(case, answer.raw):
        assert item["status"] == ("completed" if item["type"] == "function_call" else "incomplete")


@everywhere("tool_call")
async def test_the_call_in_front_of_text_that_is_ended_is_whole(case: Case) -> None:  # contract 3.20
    script = [*run('{"a":"b"}'), *said("content", "Project ", "Bluebird."), end("tool_calls")]
    answer = await case.answer(script, HookSpec("phrases", PHRASES))
    assert (answer.only.calls, answer.only.content) == ([("f", '{"a":"b"}')], "Stopped.")


@everywhere("tool_call")
async def test_a_call_whose_guard_fails_is_no_call(case: Case) -> None:  # contract 3.20, 4.1
    case.withholds("rm -rf")
    answer = await case.answer([*run(ARGUMENTS), end("tool_calls")], guard("Raises", word="Bluebird"))
    assert answer.error is not None
    assert answer.status == 500, "nothing had left"
    assert answer.only.calls == []


@everywhere("tool_call")
async def test_a_call_is_one_piece(case: Case) -> None:  # contract 3.20
    answer = await case.answer([*run(ARGUMENTS), end("tool_calls")], guard("Looks"))
    assert answer.only.calls == [("f", ARGUMENTS)]
    if case.streams:
        assert ARGUMENTS in pieces(answer.raw)


@everywhere("tool_call")
async def test_pieces_of_calls_leave_if_a_setting_says_so(case: Case) -> None:  # contract 3.20
    script = [*run(ARGUMENTS), end("tool_calls")]
    answer = await case.answer(script, HookSpec("phrases", PHRASES), tool_calls="stream")
    cut = '{"command":"rm -rf build/'
    assert answer.only.calls == ([("f", cut)] if case.endpoint.can("cut_call") else [])
    assert answer.only.content == "Stopped."
    for item in items_of(case, answer.raw):
        assert item["status"] == "incomplete" or item["type"] == "message"
    passed = await case.answer(script, guard("Looks"), tool_calls="stream")
    bare = await case.answer(script)
    assert passed.seen == bare.seen
    if case.streams and case.endpoint.can("cut_call"):
        assert [*pieces(passed.raw)][:2] == [*pieces(bare.raw)][:2] == [ARGUMENTS[:5], ARGUMENTS[5:10]]


def items_of(case: Case, raw: bytes) -> list[dict[str, Any]]:
    """The items of a response."""
    if case.endpoint.name != "responses":
        return []
    body = orjson.loads(raw) if not case.streams else read_events(raw)[0][-2][1]["response"]
    items: list[dict[str, Any]] = body["output"]
    return items


def pieces(raw: bytes) -> Iterator[str]:
    """The pieces of arguments in a stream's events."""
    for _, data in read_events(raw)[0]:
        if not isinstance(data, dict):
            continue
        for choice in data.get("choices", ()):
            yield from (one["function"]["arguments"] for one in choice["delta"].get("tool_calls", ()))
        if data.get("type") == "response.function_call_arguments.delta":
            yield data["delta"]
        if data.get("type") == "content_block_delta" and "partial_json" in data["delta"]:
            yield data["delta"]["partial_json"]


@everywhere("tool_call")
@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize(
    ("reason", "has_call", "told"),
    [
        ("stop", True, "tool_calls"),
        ("end_turn", True, "tool_calls"),
        ("tool_calls", False, "stop"),
        ("tool_calls", True, "tool_calls"),
        ("length", True, "length"),
    ],
)
async def test_the_finish_reason_says_whether_there_are_calls(
    case: Case, reason: str, has_call: bool, told: str, hooked: bool
) -> None:  # contract 3.20
    calls = [[(0, "f", "{}")]] if has_call else []
    answer = await from_upstream(case, calls, reason, hooked)
    if not case.endpoint.can("finish_tool_calls") and told == "tool_calls":
        told = "stop"
    assert answer.only.finish == told
    assert len(answer.only.calls) == has_call


TURNS = [
    [[(0, "f", '{"a"')], [(1, "g", '{"b"')], [(0, None, ":1}")], [(1, None, ":2}")]],
    [[(0, "f", '{"a"'), (1, "g", '{"b"')], [(0, None, ":1}"), (1, None, ":2}")]],
    [[(0, "f", '{"a"')], [(1, "g", '{"b":2}')], [(0, None, ":1}")]],
    [[(0, "f", ""), (1, "g", "")], [(1, None, '{"b":2}')], [(0, None, '{"a":1}')]],
    [
        [(0, "f", '{"a"')],
        [(1, "g", "{"), (0, None, ":")],
        [(1, None, '"b":2'), (0, None, "1}")],
        [(1, None, "}")],
    ],
]


@everywhere("tool_call")
@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("turns", TURNS)
async def test_calls_that_come_in_turn_are_whole(case: Case, turns: Any, hooked: bool) -> None:
    """Contract 2.3, 2.6: each is one stream with one last chunk."""
    answer = await from_upstream(case, turns, "tool_calls", hooked)
    assert answer.error is None
    assert answer.only.calls == [("f", '{"a":1}'), ("g", '{"b":2}')]
    assert [item["type"] for item in items_of(case, answer.raw)] in ([], ["function_call"] * 2)
    if hooked:
        finals = [chunk.text for chunk in case.hooks[0].finals if chunk.channel == "tool_call"]
        assert finals == ['{"a":1}', '{"b":2}']


async def from_upstream(
    case: Case, turns: Sequence[Sequence[tuple[int, str | None, str]]], reason: str, hooked: bool
) -> Any:
    """The answer, if an upstream says these parts of calls in its chunks: index, name, arguments."""
    frames: list[Any] = []
    for parts in turns:
        calls = [
            {"index": index, "function": {"arguments": text}}
            | ({"id": f"call_{index}", "function": {"name": name, "arguments": text}} if name else {})
            for index, name, text in parts
        ]
        frames.append({"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}]})
    frames += [{"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}, b"data: [DONE]\n\n"]
    async with fake_upstream() as upstream:
        upstream.script = lambda body: frames
        return await case.answer(OpenAIEngine(upstream.url), *([guard("Looks")] if hooked else []))
