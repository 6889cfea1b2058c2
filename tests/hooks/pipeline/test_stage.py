"""Each verdict releases the same on text, ids and logprobs (contract 3)."""

import asyncio
import enum
from typing import Any, cast

import pytest

from engine.protocol import Delta, EngineError, Token, ToolCall, Usage
from hooks import Chunk, Verdict, emit, hold, redact, rewind, suppress, terminate
from hooks.decisions.failure import HookError
from tests.helpers import (
    Script,
    Source,
    finish_of,
    guard_all,
    ids_of,
    make_deltas,
    make_request,
    make_token,
    pipeline_of,
    text_of,
)


def passing(chunk: Chunk) -> Verdict:
    return emit(chunk.pending)


async def test_no_hooks_release_the_deltas_themselves() -> None:
    deltas = make_deltas(["a", "b"])
    assert await guard_all(pipeline_of(), deltas) == deltas


async def test_an_observer_changes_nothing() -> None:  # contract 3.1, 5.4
    deltas = make_deltas(["Hello", " ", "world"])
    assert await guard_all(pipeline_of(Script(passing), Script(passing)), deltas) == deltas


async def test_a_rewrite_takes_its_tokens_with_it() -> None:  # contract 3.1, 3.6
    released = await guard_all(
        pipeline_of(Script(lambda c: emit(c.text_diff.upper()))), make_deltas(["a", "B", "c"])
    )
    assert text_of(released) == "ABC"
    assert ids_of(released) == [1]  # B was released as it was


async def test_emit_without_alternatives_keeps_the_token_alone() -> None:  # contract 3.1
    hook = Script(lambda c: emit(c.pending, alternatives=False))
    released = await guard_all(pipeline_of(hook), make_deltas(["a"]))
    (token,) = released[0].tokens
    assert (token.id, token.logprob, token.top) == (0, -0.25, ())


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize(
    ("verdict", "ids"),
    [
        (lambda c: hold(0, alternatives=False), [0, 1, 2]),
        (lambda c: hold(0 if c.is_final else min(2, len(c.pending)), alternatives=False), [0, 1, 2]),
        (lambda c: redact([], alternatives=False), [0, 1, 2]),
        (lambda c: redact([(0, 1, "x")] if c.text_diff == "b" else [], alternatives=False), [0, 2]),
        (lambda c: terminate("no", after=len(c.pending), alternatives=False), [0]),
        (lambda c: emit(c.pending, alternatives=False), [0, 1, 2]),
    ],
)
async def test_every_verdict_can_withhold_alternatives(verdict: Any, ids: list[int], is_split: bool) -> None:
    """Contract 3.13."""
    deltas = make_deltas(["a", "b", "c"])
    if is_split:  # a token without text of its own comes first
        deltas.insert(0, Delta(text="", tokens=(make_token("", 9),)))
        ids = [9, *ids]
    released = await guard_all(pipeline_of(Script(verdict)), deltas)
    assert ids_of(released) == ids
    assert [token.top for delta in released for token in delta.tokens] == [()] * len(ids)


async def test_suppress_withholds_every_channel_for_good() -> None:  # contract 3.2
    hook = Script(lambda c: suppress() if "b" in c.text_diff else emit(c.pending))
    released = await guard_all(pipeline_of(hook), make_deltas(["a", "b", "c"]))
    assert (text_of(released), ids_of(released)) == ("ac", [0, 2])
    assert b"b" not in b"".join(t.raw + b"".join(a.raw for a in t.top) for d in released for t in d.tokens)


async def test_terminate_withholds_the_chunk_and_ends_the_engine() -> None:  # contract 3.3
    source = Source(make_deltas(["a", "b", "c", "d"]))
    hook = Script(lambda c: terminate("because") if "b" in c.text else emit(c.pending))
    released = await guard_all(pipeline_of(hook), source)
    assert (text_of(released), ids_of(released)) == ("a", [0])
    assert finish_of(released) == ("content_filter", "because")
    assert source.closed_early
    assert source.taken == 2


async def test_terminate_wins_over_the_engines_own_finish() -> None:  # contract 3.3
    deltas = [Delta(text="a", tokens=(make_token("a", 0),), finish_reason="length")]
    released = await guard_all(pipeline_of(Script(lambda c: terminate("x"))), deltas)
    assert finish_of(released) == ("content_filter", "x")
    assert text_of(released) == ""


async def test_terminate_can_say_stop_as_tensorrt_llm_does() -> None:  # contract 3.3
    pipeline = pipeline_of(Script(lambda c: terminate("x")), terminate_finish_reason="stop")
    assert finish_of(await guard_all(pipeline, make_deltas(["a"]))) == ("stop", "x")


async def test_terminate_after_releases_what_came_before_untouched() -> None:  # contract 3.3
    hook = Script(lambda c: terminate("x", after=4) if c.is_final else hold())
    released = await guard_all(pipeline_of(hook), make_deltas(["ab", "cd", "ef"]))
    assert (text_of(released), ids_of(released)) == ("abcd", [0, 1])


async def test_terminate_after_in_the_middle_of_a_token_withholds_the_token() -> None:  # contract 3.6
    hook = Script(lambda c: terminate("x", after=3) if c.is_final else hold())
    released = await guard_all(pipeline_of(hook), make_deltas(["ab", "cd"]))
    assert (text_of(released), ids_of(released)) == ("abc", [0])


async def test_a_closing_text_is_seen_by_later_hooks() -> None:  # contract 3.3
    ends = Script(lambda c: terminate("x", text="I must stop.") if "b" in c.text else emit(c.pending))
    shouts = Script(lambda c: emit(c.text_diff.upper()))
    released = await guard_all(pipeline_of(ends, shouts), make_deltas(["a", "b"]))
    assert text_of(released) == "AI MUST STOP."
    assert [c.text_diff for c in shouts.finals] == ["I must stop."]
    assert not shouts.finals[0].aborted


async def test_terminate_ends_every_sibling_in_the_same_instant() -> None:  # contract 5.1
    hook = Script(lambda c: terminate("x") if c.output_index == 1 else emit(c.pending))
    deltas = [
        *make_deltas(["a"], finish=False),
        *make_deltas(["b"], index=1, finish=False),
        *make_deltas(["c"], finish=True),
    ]
    released = await guard_all(pipeline_of(hook), deltas, make_request(n=3))
    assert [text_of(released, index=i) for i in range(3)] == ["a", "", ""]
    assert [finish_of(released, i) for i in range(3)] == [("content_filter", "x")] * 3


async def test_terminate_of_one_output_leaves_its_siblings_running() -> None:  # contract 3.3
    hook = Script(lambda c: terminate("x", scope="output") if c.output_index == 1 else emit(c.pending))
    deltas = [*make_deltas(["b", "bb"], index=1, finish=False), *make_deltas(["a"], finish=True)]
    source = Source([*deltas, *make_deltas(["late"], index=1)])
    released = await guard_all(pipeline_of(hook), source, make_request(n=2))
    assert (text_of(released), finish_of(released)) == ("a", ("stop", None))
    assert (text_of(released, index=1), finish_of(released, 1)) == ("", ("content_filter", "x"))
    assert source.closed_early  # nothing is left to do once the sibling has ended


async def test_hold_releases_all_but_the_last_characters() -> None:  # contract 3.4
    seen: list[str] = []

    def last_two(chunk: Chunk) -> Verdict:
        seen.append(chunk.pending)
        return emit(chunk.pending) if chunk.is_final else hold(min(2, len(chunk.pending)))

    released = await guard_all(pipeline_of(Script(last_two)), make_deltas(["abc", "d", "ef"]))
    assert [d.text for d in released] == ["a", "b", "cd", "ef", ""]
    assert seen == ["abc", "bcd", "cdef", "ef"]
    assert ids_of(released) == [0, 1, 2]


async def test_a_token_is_released_with_its_last_character() -> None:  # contract 3.6
    hook = Script(lambda c: emit(c.pending) if c.is_final else hold(1))
    released = await guard_all(pipeline_of(hook), make_deltas(["abc"]))
    assert [(d.text, [t.id for t in d.tokens]) for d in released] == [("ab", []), ("c", [0]), ("", [])]


async def test_redact_replaces_spans_and_takes_their_tokens() -> None:  # contract 3.5, 3.6
    hook = Script(lambda c: redact([(3, 5, "##")]) if c.is_final else hold())
    released = await guard_all(pipeline_of(hook), make_deltas(["ab", "cd", "ef", "gh"]))
    assert (text_of(released), ids_of(released)) == ("abc##fgh", [0, 3])


@pytest.mark.parametrize("verdict", [suppress(), emit("AB"), redact([(0, 1, "")])], ids=repr)
async def test_changing_a_tokens_first_part_withholds_the_token(verdict: Verdict) -> None:  # contract 3.6
    keeps_one = Script(lambda c: emit(c.pending) if c.is_final else hold(1))
    changes_first = Script(lambda c: verdict if c.text == "ab" else emit(c.pending))
    released = await guard_all(pipeline_of(keeps_one, changes_first), make_deltas(["abc"]))
    assert text_of(released).endswith("c")
    assert ids_of(released) == []


async def test_later_hooks_see_what_earlier_ones_released() -> None:  # contract 1.3, 3.7
    first = Script(lambda c: emit(c.text_diff.replace("a", "XX")))
    second = Script(passing)
    await guard_all(pipeline_of(first, second), make_deltas(["a", "b", "a"]))
    assert [c.text_diff for c in second.chunks] == ["XX", "b", "XX", ""]
    assert [c.text for c in second.chunks] == ["XX", "XXb", "XXbXX", "XXbXX"]
    assert [c.token_ids_diff for c in second.chunks] == [(), (1,), (), ()]


async def test_ids_leave_in_the_order_generated_across_channels() -> None:  # contract 2.4
    hook = Script(lambda c: hold() if c.channel == "reasoning" and not c.is_final else emit(c.pending))
    deltas = [
        Delta(text="think", tokens=(make_token("think", 1),), channel="reasoning"),
        Delta(text="say", tokens=(make_token("say", 2),)),
        Delta(finish_reason="stop"),
    ]
    released = await guard_all(pipeline_of(hook), deltas)
    assert [(d.channel, d.text) for d in released if d.text] == [("content", "say"), ("reasoning", "think")]
    assert ids_of(released) == [1, 2]
    assert released[0].tokens == ()


async def test_ids_of_released_text_are_not_lost_after_withheld_ones() -> None:  # contract 3.3
    def answer(chunk: Chunk) -> Verdict:
        if chunk.channel == "reasoning":
            return hold()
        return terminate("x", after=len(chunk.pending)) if "!" in chunk.text else emit(chunk.pending)

    deltas = [
        Delta(text="think", tokens=(make_token("think", 1),), channel="reasoning"),
        Delta(text="say", tokens=(make_token("say", 2),)),
        Delta(text="!", tokens=(make_token("!", 3),)),
    ]
    released = await guard_all(pipeline_of(Script(answer)), deltas)
    assert ids_of(released) == [2, 3]


async def test_tokens_without_text_move_with_the_text_that_follows() -> None:  # contract 2.4
    deltas = [
        Delta(tokens=(Token(7, "", b"\xf0\x9f"),)),
        Delta(text="🎉", tokens=(Token(8, "🎉", b"\x8e\x89"),)),
        Delta(tokens=(Token(9, "", b"<|im_end|>"),), finish_reason="stop"),
    ]
    redacting = Script(lambda c: redact([(0, 1, "*")]) if c.text_diff else emit(""))
    assert ids_of(await guard_all(pipeline_of(redacting), deltas)) == [9]
    observer = Script(passing)
    assert ids_of(await guard_all(pipeline_of(observer), deltas)) == [7, 8, 9]
    assert [c.token_ids_diff for c in observer.chunks] == [(7, 8), (9,)]


async def test_tokens_that_are_not_told_apart_move_as_one_piece() -> None:  # contract 3.11
    deltas = [Delta(text="abcd", tokens=(Token(1, ""), Token(2, "abcd"))), Delta(finish_reason="stop")]
    hook = Script(lambda c: redact([(0, 1, "*")]) if c.text_diff else emit(""))
    released = await guard_all(pipeline_of(hook), deltas)
    assert (text_of(released), ids_of(released)) == ("*bcd", [])


async def test_prompt_ids_do_not_go_round_the_hooks() -> None:  # contract 5.3
    deltas = [Delta(text="a", prompt_token_ids=(1, 2)), Delta(finish_reason="stop")]
    released = await guard_all(pipeline_of(Script(passing)), deltas)
    assert all(d.prompt_token_ids is None for d in released)


async def test_a_tool_call_that_is_suppressed_leaves_no_name() -> None:  # contract 5.3
    call = ToolCall(0, "launch_missiles")
    deltas = [
        Delta(channel="tool_call", tool_call=call),
        Delta(channel="tool_call", tool_call=call, text="{}"),
        Delta(finish_reason="tool_calls"),
    ]
    hook = Script(lambda c: suppress() if c.tool_name == "launch_missiles" else emit(c.pending))
    released = await guard_all(pipeline_of(hook), deltas)
    assert [d.tool_call for d in released] == [None]
    assert finish_of(released) == ("stop", None)  # a client must not look for a call


async def test_a_tool_call_without_arguments_is_vetted_and_released() -> None:  # contract 5.3
    call = ToolCall(0, "ping")
    deltas = [Delta(channel="tool_call", tool_call=call), Delta(finish_reason="tool_calls")]
    released = await guard_all(pipeline_of(Script(passing)), deltas)
    assert [d.tool_call for d in released] == [call, None]


async def test_usage_is_what_the_engine_counted_up_to_the_end() -> None:  # contract 6.1
    deltas = [Delta(text=t, usage=Usage(5, i + 1)) for i, t in enumerate("abcd")]
    hook = Script(lambda c: terminate("x") if "c" in c.text else suppress())
    released = await guard_all(pipeline_of(hook), deltas)
    assert [d.usage for d in released] == [Usage(5, 3)]


class _Returns:
    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict

    def __call__(self, chunk: Chunk) -> Any:
        return self.verdict


async def _coroutine() -> Verdict:
    return suppress()


@pytest.mark.parametrize(
    "verdict",
    [
        None,
        "emit",
        object,
        emit(cast(Any, 3)),
        hold(99),
        hold(-1),
        redact([(0, 99, "")]),
        redact([(0, 2, ""), (1, 3, "")]),
        redact([(2, 1, "")]),
        redact([(0, 1, None)]),
        redact([(2, 3, "")], hold=1),
        redact(["abc"]),
        redact([], hold=99),
        terminate(cast(Any, None)),
        terminate("\ud800"),
        emit("\ud800"),
        redact([(0, 1, "\ud800")]),
        terminate("x", text="\ud800"),
        terminate("x", after=99),
        terminate("x", text=cast(Any, 1)),
        terminate("x", scope=cast(Any, "world")),
        rewind("x", scope=cast(Any, "world")),
    ],
    ids=repr,
)
async def test_anything_else_is_a_hook_error(verdict: Any) -> None:  # contract 3.8
    source = Source(make_deltas(["abc", "d"]))
    with pytest.raises(HookError):
        await guard_all(pipeline_of(_Returns(verdict)), source)
    assert source.closed_early


async def test_a_coroutine_from_a_plain_hook_is_a_hook_error() -> None:  # contract 3.8
    hook = Script(lambda c: _coroutine())
    with pytest.raises(HookError):
        await guard_all(pipeline_of(hook), make_deltas(["a"]))


@pytest.mark.parametrize("verdict", [hold(), hold(1), redact([], hold=1)], ids=repr)
async def test_holding_on_the_final_chunk_is_a_hook_error(verdict: Verdict) -> None:  # contract 3.4
    hook = Script(lambda c: verdict if c.is_final else hold())
    with pytest.raises(HookError):
        await guard_all(pipeline_of(hook), make_deltas(["abc"]))


async def test_an_async_hook_is_awaited() -> None:  # contract 1.2
    class Slow:
        async def __call__(self, chunk: Chunk) -> Verdict:
            await asyncio.sleep(0)
            return emit(chunk.text_diff.upper())

    assert text_of(await guard_all(pipeline_of(Slow()), make_deltas(["a", "b"]))) == "AB"


async def test_terminate_after_everything_pending_still_ends_the_request() -> None:  # contract 3.3
    source = Source(make_deltas(["a", "b"]))
    hook = Script(lambda c: terminate("x", after=len(c.pending)))
    released = await guard_all(pipeline_of(hook), source)
    assert (text_of(released), finish_of(released)) == ("a", ("content_filter", "x"))
    assert source.closed_early


async def test_a_later_hook_that_ends_the_request_has_its_way() -> None:  # contract 3.3, 5.1
    first = Script(lambda c: terminate("first", after=len(c.pending), scope="output"))
    second = Script(lambda c: terminate("second"))
    deltas = [*make_deltas("ab", finish=False), *make_deltas("xy", index=1)]
    source = Source(deltas)
    released = await guard_all(pipeline_of(first, second), source, make_request(n=2))
    assert [finish_of(released, i) for i in range(2)] == [("content_filter", "second")] * 2
    assert (text_of(released), source.taken) == ("", 1)


async def test_an_engine_that_goes_back_to_an_ended_tool_call_fails_closed() -> None:  # contract 2.3, 2.6
    one, two = ToolCall(0, "f"), ToolCall(1, "g")
    parts = [("hun", one), ("a", two), ("ter2", one)]
    source = Source([Delta(channel="tool_call", text=text, tool_call=call) for text, call in parts])
    hook = Script(lambda c: emit(c.pending) if c.is_final else hold())
    with pytest.raises(EngineError):
        await guard_all(pipeline_of(hook), source)
    assert [(c.tool_name, c.text, c.aborted) for c in hook.finals] == [("f", "hun", False), ("g", "a", True)]
    assert source.closed_early


async def test_a_tool_name_that_comes_late_does_not_go_round_the_hook() -> None:  # contract 5.3
    names = ["", "launch_missiles"]
    deltas = [Delta(channel="tool_call", text="{", tool_call=ToolCall(0, name)) for name in names]
    hook = Script(lambda c: emit(c.pending))
    released = await guard_all(pipeline_of(hook), [*deltas, Delta(finish_reason="tool_calls")])
    assert {c.tool_name for c in hook.chunks if c.channel == "tool_call"} == {""}
    assert "launch_missiles" not in str(released)


async def test_textless_tokens_keep_their_place_across_channels() -> None:  # contract 2.4
    reasoning = (make_token("why", 1), Token(2, "", b"<end>"))
    deltas = [
        Delta(text="why", tokens=reasoning, channel="reasoning"),
        Delta(text="so", tokens=(make_token("so", 3),)),
        Delta(finish_reason="stop"),
    ]
    assert ids_of(await guard_all(pipeline_of(Script(passing)), deltas)) == [1, 2, 3]


async def test_inserting_after_a_tokens_released_part_withholds_the_token() -> None:  # contract 3.6
    hook = Script(lambda c: redact([(0, 0, "X")]) if c.is_final else hold(1))
    released = await guard_all(pipeline_of(hook), make_deltas(["abc"]))
    assert (text_of(released), ids_of(released)) == ("abXc", [])


async def test_inserting_between_tokens_keeps_both() -> None:  # contract 3.5
    hook = Script(lambda c: redact([(2, 2, "X")]) if c.is_final else hold())
    released = await guard_all(pipeline_of(hook), make_deltas(["ab", "cd"]))
    assert (text_of(released), ids_of(released)) == ("abXcd", [0, 1])


async def test_terminate_on_the_echos_last_chunk_ends_before_the_content() -> None:  # contract 5.3
    hook = Script(lambda c: terminate("x") if c.channel == "echo" and c.is_final else emit(c.pending))
    source = Source([Delta(text="p", channel="echo"), *make_deltas(["a"])])
    released = await guard_all(pipeline_of(hook), source)
    assert (text_of(released, "echo"), text_of(released)) == ("p", "")
    assert finish_of(released) == ("content_filter", "x")
    assert source.closed_early


async def test_terminate_on_another_channels_last_chunk_wins_over_the_end() -> None:  # contract 3.3
    hook = Script(lambda c: terminate("x") if c.channel == "reasoning" and c.is_final else emit(c.pending))
    deltas = [Delta(text="why", channel="reasoning"), *make_deltas(["a"])]
    released = await guard_all(pipeline_of(hook), deltas)
    assert finish_of(released) == ("content_filter", "x")


@pytest.mark.parametrize(
    "verdict",
    [hold(), emit("\ud800"), redact([(0, 0, "\ud800")]), terminate("x", text="\ud800")],
    ids=["hold", "emit", "redact", "terminate"],
)
async def test_a_verdict_that_cannot_be_carried_out_on_an_empty_final_chunk(verdict: Verdict) -> None:
    hook = Script(lambda c: verdict if c.is_final else emit(c.pending))
    with pytest.raises(HookError):  # contract 3.4, 3.8
        await guard_all(pipeline_of(hook), make_deltas(["a"]))


async def test_bytes_that_never_became_text_are_withheld() -> None:  # contract 2.4, 3.6
    """An output cut inside a character ends in tokens that no hook was shown the text of."""
    deltas = [
        Delta(text="a", tokens=(make_token("a", 1),)),
        Delta(text=" ", tokens=(Token(2, " ", b" \xf0\x9f"), Token(3, "", b"\x98")), finish_reason="length"),
    ]
    hook = Script(lambda c: emit(c.pending))
    released = await guard_all(pipeline_of(hook), deltas)
    assert (text_of(released), ids_of(released)) == ("a ", [1])


@pytest.mark.parametrize(
    "verdict", [hold(True), terminate("x", after=True), redact([(False, True, "")])], ids=repr
)
async def test_a_truth_value_is_no_number(verdict: Verdict) -> None:  # contract 3.8
    with pytest.raises(HookError):
        await guard_all(pipeline_of(_Returns(verdict)), make_deltas(["abc", "d"]))


class Reason(enum.StrEnum):
    PII = "pii"


class Mixed(str, enum.Enum):  # noqa: UP042 - as older code has them
    PII = "pii"


class Shout(str):
    def __str__(self) -> str:
        return "shouted"


@pytest.mark.parametrize("given", [Reason.PII, Mixed.PII, Shout("pii")], ids=["StrEnum", "Enum", "subclass"])
async def test_a_text_of_a_hooks_own_kind_is_taken_in_as_plain_text(given: str) -> None:
    """Its class is the hook's: the service, in another process, may not know it (contract 1.5)."""
    verdicts = [emit(given), redact([(0, 1, given)]), terminate(given), terminate("x", text=given)]
    for verdict in verdicts:
        hook = Script(lambda c, verdict=verdict: verdict if c.text_diff else emit(c.pending))
        released = await guard_all(pipeline_of(hook), make_deltas(["a"]))
        texts = [text for d in released for text in (d.text, d.stop_reason) if text]
        assert "pii" in texts
        assert {type(text) for text in texts} == {str}


@pytest.mark.parametrize(
    ("stop_reason", "tokens", "told"),
    [
        ("hunter2", (), None),
        (7, (), None),
        (7, (make_token("seven", 7),), None),
        (7, (Token(7, "", b"<|im_end|>"),), 7),
        (None, (Token(7, "", b"<|im_end|>"),), None),
    ],
    ids=["string", "id", "id with text", "special", "none"],
)
async def test_a_stop_reason_that_stands_for_text_is_not_told(
    stop_reason: str | int | None, tokens: tuple[Token, ...], told: int | None
) -> None:  # contract 2.7, 6.2, 6.3
    text = "".join(token.text for token in tokens)
    end = Delta(text=text, tokens=tokens, finish_reason="stop", stop_reason=stop_reason)
    deltas = [Delta(text="a"), end]
    assert finish_of(await guard_all(pipeline_of(Script(passing)), deltas)) == ("stop", told)
    assert finish_of(await guard_all(pipeline_of(), deltas)) == ("stop", stop_reason)
