"""A call that a hook ended, failed or suppressed in part is no call (contract 3.20)."""

from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.parsers import Parsers
from engine.protocol import Delta, FinishReason, SamplingParams, ToolCall
from hooks import Chunk, Verdict, emit, hold, redact, rewind, terminate
from hooks import suppress as withhold
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import Phrases
from hooks.decisions.failure import HookError
from hooks.loading.loader import LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline import stream as stream_module
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import play, vetted
from hooks.testing.streams import stream_of
from tests.helpers import (
    Script,
    Source,
    Teller,
    guard_all,
    make_request,
    make_token,
    opened,
    pipeline_of,
    text_of,
)

ARGUMENTS = '{"command": "rm -rf build/Project Bluebird"}'


def passing(chunk: Chunk) -> Verdict:
    return emit(chunk.pending)


def pieces_of(text: str, cuts: Sequence[int]) -> list[str]:
    places = [0, *sorted({cut for cut in cuts if 0 < cut < len(text)}), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


def call(*pieces: str, index: int = 0, name: str = "run", with_tokens: bool = True) -> list[Delta]:
    tool_call = ToolCall(index, name)
    ids = range(100 * index + 100, 100 * index + 100 + len(pieces))
    return [
        Delta(
            text=piece,
            tokens=(make_token(piece, i),) if with_tokens else (),
            channel="tool_call",
            tool_call=tool_call,
        )
        for i, piece in zip(ids, pieces, strict=True)
    ]


def said(*pieces: str, channel: Any = "content", first_id: int = 0) -> list[Delta]:
    return [
        Delta(text=piece, tokens=(make_token(piece, i),), channel=channel)
        for i, piece in enumerate(pieces, first_id)
    ]


def end(reason: FinishReason = "tool_calls") -> Delta:
    return Delta(finish_reason=reason)


def calls_of(deltas: Sequence[Delta]) -> list[tuple[str, str]]:
    """The calls as a client puts them together."""
    calls: dict[int, tuple[str, str]] = {}
    for delta in deltas:
        if delta.tool_call is not None:
            _, text = calls.get(delta.tool_call.index, ("", ""))
            calls[delta.tool_call.index] = delta.tool_call.name, text + delta.text
    return [*calls.values()]


def at_word(act: Callable[[Chunk, int], Verdict], word: str = "Bluebird") -> Script:
    """Acts where the word is whole. It holds the beginning of one."""

    def answer(chunk: Chunk) -> Verdict:
        pending = chunk.pending
        if (place := pending.find(word)) >= 0 and not chunk.aborted:
            return act(chunk, place)
        held = max(n for n in range(len(word)) if pending.endswith(word[:n]))
        return emit(pending) if chunk.is_final else hold(held)

    return Script(answer)


ENDS = {
    "terminate": at_word(lambda chunk, place: terminate("bird", after=place)),
    "terminate this output": at_word(lambda chunk, place: terminate("bird", scope="output")),
    "closing text": at_word(lambda chunk, place: terminate("bird", after=place, text="Stopped.")),
}


@given(
    cuts=st.lists(st.integers(1, len(ARGUMENTS)), max_size=6),
    way=st.sampled_from([*ENDS]),
    with_tokens=st.booleans(),
    ends_with_call=st.booleans(),
)
async def test_a_call_that_a_hook_ended_is_no_call(
    cuts: list[int], way: str, with_tokens: bool, ends_with_call: bool
) -> None:  # contract 3.20
    *first, last = call(*pieces_of(ARGUMENTS, cuts), with_tokens=with_tokens)
    if ends_with_call:
        last.finish_reason = "tool_calls"
    script = [*said("So. "), *first, last, *([] if ends_with_call else [end()])]
    for others in ([], [Script(passing)]):
        released = await guard_all(pipeline_of(*others, ENDS[way], *others), script)
        assert calls_of(released) == []
        assert text_of(released) == ("So. Stopped." if way == "closing text" else "So. ")
        last_one = released[-1]
        assert (last_one.finish_reason, last_one.stop_reason) == ("content_filter", "bird")
        assert last_one.is_blocked
        ids = [token.id for delta in released for token in delta.tokens]
        assert ids == [0], "no token of the call"


@given(cuts=st.lists(st.integers(1, len(ARGUMENTS)), max_size=6), in_front=st.booleans())
async def test_a_call_that_a_hook_suppressed_in_part_is_no_call(cuts: list[int], in_front: bool) -> None:
    """Contract 3.20, 2.14: the answer goes on, and there is a content, in which a hook may say so."""
    suppresses = at_word(lambda chunk, place: withhold("bird"), word="rm" if in_front else "Bluebird")
    looks = Script(passing)
    pieces = pieces_of(ARGUMENTS, cuts)
    script = [*call(*pieces), *call("{}", index=1, name="g"), *said("Done.", first_id=9), end()]
    released = await guard_all(pipeline_of(suppresses, looks), script)
    assert calls_of(released) == [("g", "{}")]
    assert text_of(released) == "Done."
    assert [token.id for delta in released for token in delta.tokens] == [200, 9]
    assert released[-1].finish_reason == "tool_calls"
    only = await guard_all(pipeline_of(suppresses, looks), [*call(*pieces), end()])
    assert (calls_of(only), only[-1].finish_reason) == ([], "stop")
    assert looks.finals[-1].channel == "content"


@given(cuts=st.lists(st.integers(1, len(ARGUMENTS)), max_size=6), second=st.sampled_from(["ends", "fails"]))
async def test_a_call_in_front_of_one_that_is_ended_leaves_whole(cuts: list[int], second: str) -> None:
    """Contract 3.20: its hooks have passed all of it."""

    def act(chunk: Chunk, place: int) -> Verdict:
        if second == "fails":
            raise ValueError
        return terminate("bird", after=place)

    first = call(*pieces_of('{"a": "some text"}', cuts), name="f")
    script = [*first, *call(*pieces_of(ARGUMENTS, [*cuts, 3]), index=1), end()]
    released: list[Delta] = []
    async with opened(pipeline_of(at_word(act)), make_request()) as guard:
        with suppress(HookError):
            async with aclosing(vetted(guard, Source(script))) as stream:
                async for delta in stream:
                    released.append(delta)
    assert calls_of(released) == [("f", '{"a": "some text"}')]
    assert len([delta for delta in released if delta.tool_call is not None]) == 1


@pytest.mark.parametrize("piece", ["so Bluebird", "Bluebird"])
@pytest.mark.parametrize("ends_with_text", [False, True])
@pytest.mark.parametrize("channel", ["content", "reasoning"])
async def test_a_whole_call_leaves_before_the_text_after_it(
    piece: str, ends_with_text: bool, channel: Any
) -> None:
    """Contract 3.20: wherever the text after the call is cut, also if a hook ends it."""
    texts = said("Well, ", piece, channel=channel, first_id=1)
    if ends_with_text:
        texts[-1].finish_reason = "stop"
    script = [*call("{}"), *texts, *([] if ends_with_text else [end()])]
    released = await guard_all(pipeline_of(ENDS["terminate"]), script)
    assert calls_of(released) == [("run", "{}")]
    assert released[0].tool_call is not None
    assert released[-1].finish_reason == "content_filter"


@pytest.mark.parametrize("channel", ["content", "reasoning"])
async def test_a_call_that_is_not_whole_is_no_call_if_the_text_after_it_is_ended(channel: Any) -> None:
    """Contract 3.20. An engine may send text in the middle of a call."""
    texts = said("Well, ", "Bluebird", channel=channel, first_id=1)
    released = await guard_all(pipeline_of(ENDS["terminate"]), [*call('{"a"'), *texts, *call(": 1}"), end()])
    assert calls_of(released) == []
    assert released[-1].finish_reason == "content_filter"


async def test_texts_after_a_call_that_is_no_json_do_not_read_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def counted(text: str) -> bool:
        read.append(text)
        return False

    monkeypatch.setattr(stream_module, "is_whole_object", counted)
    texts = said(*["word "] * 50, first_id=1)
    await guard_all(pipeline_of(Script(passing)), [*call('{"b": ', "NaN}"), *texts, end()])
    assert read == ['{"b": NaN}']


async def test_text_before_a_call_that_is_held_until_the_end_stays_before_it() -> None:  # contract 3.20
    holds = Script(lambda chunk: emit(chunk.pending) if chunk.is_final else hold())
    script = [*said("Look: ", first_id=1), *call('{"a": 1}'), end()]
    released = await guard_all(pipeline_of(holds), script)
    assert [(one.channel, one.text) for one in released if one.text] == [
        ("content", "Look: "),
        ("tool_call", '{"a": 1}'),
    ]


async def test_a_call_whose_hook_fails_is_no_call() -> None:  # contract 3.20, 4.1
    for text in ARGUMENTS, "{}":
        fails = Script(lambda chunk: 1 / 0 if chunk.is_final else emit(chunk.pending))
        released: list[Delta] = []
        async with opened(pipeline_of(fails), make_request()) as guard:
            with pytest.raises(HookError):
                async with aclosing(vetted(guard, Source([*call(*text), end()]))) as stream:
                    async for delta in stream:
                        released.append(delta)
        assert released == []


async def test_a_call_is_one_piece_with_its_tokens_in_order() -> None:
    """Contract 3.20, 2.4: text after the call comes after it, and so do later tokens."""
    script = [
        *said("Hm. ", channel="reasoning", first_id=1),
        *call('{"a"', ": 1}"),
        *said("And ", "so.", first_id=2),
        end(),
    ]
    for request in (make_request(), replace(make_request(), sampling=SamplingParams())):
        released = await guard_all(pipeline_of(Script(passing)), script, request)
        texts = [delta.text for delta in released if delta.text]
        assert texts == ["Hm. ", '{"a": 1}', "And ", "so."]
        assert [token.id for delta in released for token in delta.tokens] == [1, 100, 101, 2, 3]


async def test_a_rewritten_call_leaves_whole() -> None:  # contract 3.20
    redacts = at_word(lambda chunk, place: redact([(place, place + 8, "[x]")]))
    released = await guard_all(pipeline_of(redacts), [*call(*ARGUMENTS), end()])
    assert calls_of(released) == [("run", ARGUMENTS.replace("Bluebird", "[x]"))]


@pytest.mark.parametrize("text", ["", ARGUMENTS])
async def test_a_call_that_a_length_cuts_leaves_as_it_is(text: str) -> None:  # contract 3.20
    released = await guard_all(pipeline_of(Script(passing)), [*call(*(text[:-3] or [""])), end("length")])
    assert calls_of(released) == [("run", text[:-3])]
    assert released[-1].finish_reason == "length"


async def test_a_call_without_arguments_is_a_call_unless_it_is_suppressed() -> None:  # contract 3.20, 3.2
    script = [*call("", with_tokens=False), end()]
    assert calls_of(await guard_all(pipeline_of(Script(passing)), script)) == [("run", "")]
    released = await guard_all(pipeline_of(Script(lambda chunk: withhold())), script)
    assert (calls_of(released), released[-1].finish_reason) == ([], "stop")


async def test_pieces_leave_if_a_setting_says_so() -> None:  # contract 3.20
    script = [*call('{"command": "rm', " -rf build/", "Bluebird", '"}'), end()]
    released = await guard_all(pipeline_of(ENDS["closing text"], tool_calls="stream"), script)
    assert [d.text for d in released if d.tool_call] == ['{"command": "rm', " -rf build/"]
    assert text_of(released) == "Stopped."
    passed = await guard_all(pipeline_of(Script(passing), tool_calls="stream"), script)
    assert [d.text for d in passed if d.tool_call] == [d.text for d in script if d.tool_call]


async def test_hooks_in_shadow_mode_keep_no_call() -> None:  # contract 3.15, 3.20
    hook = replace(LoadedHook.of("shadow", ENDS["terminate"]), is_shadow=True)
    script = [*call(*pieces_of(ARGUMENTS, [5, 20])), end()]
    released = await guard_all(Pipeline([hook], options=PipelineOptions()), script)
    assert [delta.text for delta in released if delta.tool_call] == pieces_of(ARGUMENTS, [5, 20])


class Rewinds(Script):
    may_rewind = True


WORDS = (
    "<tool_call>",
    '{"name": "f", "arguments": ',
    '{"a": "',
    "bad",
    '"}',
    "}",
    "</tool_call>",
    " So ",
    "bad",
    "",
)


@pytest.mark.parametrize("tool_calls", ["whole", "stream"])
async def test_a_call_leaves_once_after_rewinds(tool_calls: str) -> None:
    """Contract 8.3, 3.20: in the call, and in the text after it."""

    def tell(words: tuple[str, ...]) -> list[str]:
        word = WORDS[len(words)]
        return ["bad", "good"] if word == "bad" else [word]

    rewinds = Rewinds(at_word(lambda chunk, place: rewind("bad", after=place), word="bad").answer)
    teller = Teller(tell, parsers=Parsers(tool_calls="hermes"))
    request = make_request(tools=({"type": "function", "function": {"name": "f"}},))
    pipeline = pipeline_of(rewinds, tool_calls=tool_calls)
    released = await guard_all(pipeline, teller, request, can_rewind=True)
    assert len(teller.rewinds) == 2
    assert calls_of(released) == [("f", '{"a": "good"}')]
    assert text_of(released) == " So good"
    assert released[-1].finish_reason == "tool_calls"
    assert sum(delta.tool_call is not None for delta in released) == 1 or tool_calls == "stream"


def test_a_played_stream_has_the_calls_that_a_client_would_get() -> None:  # contract 3.20
    ended = play(ENDS["closing text"], stream_of(ARGUMENTS, channel="tool_call"))
    assert (ended.tool_calls, ended.content) == ([], "Stopped.")
    passed = play(passing, stream_of(ARGUMENTS, channel="tool_call", tool_name="run"))
    assert passed.tool_calls == [("run", ARGUMENTS)]
    assert passed.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("reason", "has_call", "told"),
    [("stop", True, "tool_calls"), ("tool_calls", False, "stop"), ("length", True, "length")],
)
async def test_the_finish_reason_says_whether_there_is_a_call(
    reason: FinishReason, has_call: bool, told: str
) -> None:
    calls = call("{}") if has_call else []
    released = await guard_all(pipeline_of(Script(passing)), [*said("So."), *calls, end(reason)])
    assert released[-1].finish_reason == told


async def test_a_guards_end_stays_a_stop_with_a_call() -> None:  # contract 3.3
    script = [*call("{}"), *call(ARGUMENTS, index=1), end()]
    released = await guard_all(pipeline_of(ENDS["terminate"], terminate_finish_reason="stop"), script)
    assert calls_of(released) == [("run", "{}")]
    assert (released[-1].finish_reason, released[-1].is_blocked) == ("stop", True)


@pytest.mark.parametrize("guard", ["phrases", "patterns"])
@given(cuts=st.lists(st.integers(1, len(ARGUMENTS)), max_size=6))
async def test_a_call_with_what_a_guard_suppresses_is_no_call(guard: str, cuts: list[int]) -> None:
    """Contract 3.20: without the match, it would be another command."""
    make = {"phrases": Phrases, "patterns": Patterns}[guard]
    looks = Script(passing)
    script = [*call(*pieces_of(ARGUMENTS, cuts)), *call("{}", index=1, name="g"), *said("Done."), end()]
    released = await guard_all(pipeline_of(make(["Bluebird"], action="suppress"), looks), script)
    assert calls_of(released) == [("g", "{}")]
    assert (text_of(released), released[-1].finish_reason) == ("Done.", "tool_calls")


@given(cuts=st.lists(st.integers(1, len(ARGUMENTS)), max_size=6))
async def test_what_stands_before_a_suppressed_text_can_leave(cuts: list[int]) -> None:  # contract 3.2
    suppresses = at_word(lambda chunk, place: withhold("bird", after=place))
    released = await guard_all(pipeline_of(suppresses), [*said("A rm Bluebird!"), end()])
    assert text_of(released) == "A rm "
    script = [*call(*pieces_of(ARGUMENTS, cuts)), end()]
    assert calls_of(await guard_all(pipeline_of(suppresses), script)) == []
