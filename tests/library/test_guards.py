"""Guards in a program of one's own: built once, for prompts, streams and whole texts."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import weir
from weir import Chunk, Delta, GenerationRequest, Verdict, emit, hold, refuse, terminate

PHRASE = "project bluebird"
PHRASES = weir.HookSpec("phrases", {"phrases": [PHRASE]})
ENDS = weir.HookSpec("phrases", {"phrases": [PHRASE], "action": "terminate", "text": "No."})


class Watched:
    """A source that says whether it was closed, and what was asked of it."""

    def __init__(self, *pieces: Any) -> None:
        self.pieces = pieces
        self.given = 0
        self.closings = 0

    def plain(self) -> Iterator[Any]:
        try:
            for piece in self.pieces:
                self.given += 1
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            self.closings += 1

    async def later(self) -> AsyncIterator[Any]:
        for piece in self.plain():
            await asyncio.sleep(0)
            yield piece


class Calls:
    """A hook that holds all text to the end, and keeps its chunks."""

    def __init__(self) -> None:
        self.chunks: list[tuple[str, bool, bool]] = []
        self.num_closed = 0

    def __call__(self, chunk: Chunk) -> Verdict:
        self.chunks.append((chunk.text_diff, chunk.is_final, chunk.aborted))
        return emit(chunk.pending) if chunk.is_final else hold()

    def close(self) -> None:
        self.num_closed += 1


class Breaks:
    def __call__(self, chunk: Chunk) -> Verdict:
        if "now" in chunk.pending:
            raise ValueError(chunk.pending)
        return emit(chunk.pending)


class Slow:
    """An async hook that waits in an event loop, always in the same one."""

    def __init__(self) -> None:
        self.loops: set[asyncio.AbstractEventLoop] = set()
        self.has_closed = False

    async def __call__(self, chunk: Chunk) -> Verdict:
        await asyncio.sleep(0)
        self.loops.add(asyncio.get_running_loop())
        return emit(chunk.pending.upper())

    async def on_request(self, request: GenerationRequest) -> Any:
        await asyncio.sleep(0)
        return refuse("loud", "HUSH") if "!" in str(request.prompts) else request

    async def close(self) -> None:
        self.has_closed = True


async def both(guards: weir.Guards, source: Watched) -> list[str]:
    """The released pieces, the same with and without an event loop."""
    sync = list(guards.stream(source.plain()))
    assert [piece async for piece in guards.stream(source.later())] == sync
    return sync


async def test_a_stream_of_strings_is_guarded_with_and_without_an_event_loop() -> None:
    guards, source = weir.Guards(PHRASES), Watched("This is Project Blue", "bird", ", and more")
    assert "".join(await both(guards, source)) == "This is [phrase], and more"
    assert source.closings == 2


async def test_the_end_releases_what_is_no_match() -> None:
    assert (
        "".join(await both(weir.Guards(PHRASES), Watched("This is Project Blue"))) == "This is Project Blue"
    )


async def test_where_the_answer_may_be_cut_a_beginning_of_a_match_is_withheld() -> None:  # contract 2.9, 3.12
    guards, source = weir.Guards(PHRASES), Watched("This is Project Blue")
    assert "".join(guards.stream(source.plain(), may_be_cut=True)) == "This is "
    assert "".join([p async for p in guards.stream(source.later(), may_be_cut=True)]) == "This is "
    assert guards.text("This is Project Blue", may_be_cut=True).text == "This is "
    cut = Delta(text="Project Blue", finish_reason="length", is_cut=True)
    assert list(guards.stream(["This is ", cut])) == ["This is "]


async def test_a_hook_that_ends_the_answer_closes_the_source() -> None:  # contract 3.3
    guards, source = weir.Guards(ENDS), Watched("This is ", "Project Bluebird", ", and more", "!")
    stream, again = guards.stream(source.plain()), guards.stream(source.later())
    assert list(stream) == [piece async for piece in again] == ["This is ", "No."]
    assert source.given == 6  # the third piece shows that the phrase has ended
    assert source.closings == 2
    assert stream.stop_reason == again.stop_reason == "phrase"
    assert [(one.hook, one.action, one.withheld) for one in stream.decisions] == [
        ("phrases", "terminate", "Project Bluebird, and more")
    ]


async def test_a_hook_that_fails_ends_its_answer_closed_and_no_other() -> None:  # contract 4.1
    guards, source = weir.Guards(Breaks), Watched("one ", "two now", "three")
    released: list[str] = []
    with pytest.raises(weir.HookError) as caught:
        released.extend(guards.stream(source.plain()))
    with pytest.raises(weir.HookError):
        async for piece in guards.stream(source.later()):
            released.append(piece)
    assert released == ["one ", "one "]
    assert source.closings == 2
    assert "now" not in str(caught.value)
    assert guards.text("three").text == "three"


async def test_an_answer_whose_source_fails_releases_nothing_that_is_held() -> None:
    calls = Calls()
    guards, source = weir.Guards(calls), Watched("one", KeyError("two"))
    released: list[str] = []
    with pytest.raises(KeyError):
        released.extend(guards.stream(source.plain()))
    with pytest.raises(KeyError):
        async for piece in guards.stream(source.later()):
            released.append(piece)
    assert released == []
    assert calls.chunks[-4:] == [("one", False, False), ("", True, True)] * 2  # contract 2.6


async def test_a_stream_that_is_left_closes_its_source_and_gives_each_hook_one_last_call() -> None:
    calls, source = Calls(), Watched("one", "two")
    guards, never = weir.Guards([calls, PHRASES]), asyncio.Event()
    tested = len(calls.chunks)

    async def stuck() -> AsyncIterator[str]:
        for piece in source.plain():
            yield piece
            await never.wait()

    stream = guards.stream(stuck())
    reading = asyncio.get_running_loop().create_task(anext(stream))
    while not source.given:
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await stream.aclose()
    with guards.stream(iter(["two", "three"])) as plain:
        plain.answer.feed("two")
    assert source.closings == 1
    assert calls.chunks[tested:] == [
        ("one", False, False),
        ("", True, True),
        ("two", False, False),
        ("", True, True),
    ]


async def test_a_stream_that_was_never_read_closes_its_source() -> None:
    class Source:
        closed = 0

        def __iter__(self) -> Iterator[str]:
            return iter(())

        async def __anext__(self) -> str:
            raise StopAsyncIteration

        def close(self) -> None:
            self.closed += 1

    source = Source()
    weir.guard(source, PHRASES).close()
    assert source.closed == 1

    class Later(Source):
        def __aiter__(self) -> AsyncIterator[str]:
            raise AssertionError

    async with weir.guard(Later(), PHRASES) as stream:
        later: Any = stream._source
    assert later.closed == 1


@pytest.mark.parametrize("piece", [None, b"one", 1])
def test_a_piece_that_is_no_text_ends_the_answer(piece: Any) -> None:
    source = Watched("zero", piece)
    with pytest.raises(TypeError, match="a str or a Delta"):
        list(weir.Guards(PHRASES).stream(source.plain()))
    assert source.closings == 1


@pytest.mark.parametrize(
    "piece",
    [
        "\ud83d",
        "é\udfff",
        Delta(text="\ud800", channel="reasoning"),
        Delta(text="{}", channel="tool_call", tool_call=weir.ToolCall(0, "\ud800")),
    ],
)
def test_half_a_surrogate_pair_is_the_sources_fault_and_not_the_hooks(piece: Any) -> None:
    source, calls = Watched("zero", piece), Calls()
    with pytest.raises(ValueError, match="the source yields half a surrogate pair"):
        list(weir.Guards(calls).deltas(source.plain()))
    assert (source.closings, calls.chunks[-2:]) == (1, [("zero", False, False), ("", True, True)])


def test_a_string_is_no_stream() -> None:
    with pytest.raises(TypeError, match="text"):
        weir.guard("Project Bluebird", PHRASES)


def test_guards_without_hooks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one hook"):
        weir.Guards([])


def test_hooks_are_named_made_or_given() -> None:
    own = Calls()
    hooks: list[Any] = ["pii", PHRASES, "examples/upper_case.py:UpperCase", Calls, own]
    guards = weir.Guards(hooks)
    assert guards.text("Project Bluebird of ann@millrace.initech.com").text == "[PHRASE] OF [EMAIL_ADDRESS]"
    guards.close()
    guards.close()
    assert own.num_closed == 0  # its owner may still use it
    with pytest.raises(RuntimeError, match="closed"):
        guards.text("more")


def test_a_hook_that_cannot_be_built_closes_those_that_were() -> None:  # contract 1.7
    closed = []

    class Closes(Calls):
        def close(self) -> None:
            closed.append("plain")

    class ClosesLater(Slow):
        async def close(self) -> None:
            closed.append("async")

    with pytest.raises(weir.HookLoadError, match="phrases"):
        weir.Guards([Closes, ClosesLater, weir.HookSpec("phrases", {"phrases": "no list"})])
    assert closed == ["plain", "async"]


def test_a_hook_that_fails_its_self_test_guards_nothing() -> None:  # contract 1.4
    class Nonsense:
        def __call__(self, chunk: Chunk) -> Any:
            return None

    with pytest.raises(weir.HookLoadError, match="self-test"):
        weir.Guards(Nonsense)


RESTORES = weir.HookSpec("pii", {"action": "redact", "prompt": "redact", "restore": True})


async def test_values_of_the_prompt_come_back_in_the_answer() -> None:  # contract 9.2
    guards = weir.Guards(RESTORES)
    answer = guards.messages([{"role": "user", "content": "I am ann@millrace.initech.com."}])
    (message,) = answer.messages
    placeholder = message["content"].removeprefix("I am ").removesuffix(".")
    assert placeholder.startswith("[EMAIL_ADDRESS_")
    said = ["Hello ", placeholder[:7], placeholder[7:], ", not bob@millrace.initech.com"]
    assert "".join(answer.stream(said)) == "Hello ann@millrace.initech.com, not [EMAIL_ADDRESS]"
    assert {one.action for one in answer.decisions} == {"rewrite_prompt", "restore", "redact"}
    other = await guards.aprompt("ann@millrace.initech.com", caller="another")
    assert other.prompt != placeholder
    assert (
        await other.atext(f"{other.prompt} {placeholder}")
    ).text == f"ann@millrace.initech.com {placeholder}"


def test_a_refused_prompt_is_an_error_so_that_no_model_is_asked() -> None:
    guards = weir.Guards(weir.HookSpec("phrases", {"phrases": [PHRASE], "prompt": "refuse"}))
    with pytest.raises(weir.RefusedError) as caught:
        guards.messages([{"role": "user", "content": "Hi"}, {"role": "user", "content": "Project Bluebird?"}])
    assert caught.value.reason == "phrase"
    assert caught.value.place == "messages[1].content"
    assert caught.value.text is None
    assert [one.action for one in caught.value.decisions] == ["refuse"]


async def test_a_refusal_may_have_an_answer_which_later_hooks_see() -> None:
    guards = weir.Guards([Slow, PHRASES])
    with pytest.raises(weir.RefusedError) as caught:
        await guards.aprompt("Hi!")
    assert (caught.value.reason, caught.value.text) == ("loud", "HUSH")
    await guards.aclose()


async def test_async_hooks_run_in_the_loop_of_the_program() -> None:
    hook = Slow()
    async with weir.Guards([PHRASES, hook]) as guards:
        stream = guards.stream(Watched("one ", "two").later())
        assert [piece async for piece in stream] == ["ONE ", "TWO"]
        assert (await guards.atext("three")).text == "THREE"
        assert hook.loops == {asyncio.get_running_loop()}
        with pytest.raises(TypeError, match="async form"):
            guards.text("four")
    assert not hook.has_closed  # its owner may still use it


async def test_an_async_hook_that_was_built_here_is_closed() -> None:  # contract 1.7
    closed = []

    class Closes(Slow):
        async def close(self) -> None:
            closed.append(await asyncio.sleep(0, "closed"))

    async with weir.Guards(Closes) as guards:
        assert (await guards.atext("one")).text == "ONE"
    assert closed == ["closed"]


def test_async_hooks_run_without_an_event_loop_in_a_thread_of_their_own() -> None:
    hook = Slow()
    with weir.Guards([PHRASES, hook]) as guards:
        assert list(guards.stream(["one ", "two"])) == ["ONE ", "TWO"]
        assert guards.text("three").text == "THREE"
        assert guards.prompt("four").prompt == "four"
        assert len(hook.loops) == 1
        with pytest.raises(RuntimeError, match="another event loop"):
            asyncio.run(guards.atext("four"))
    assert "weir-guards" not in {thread.name for thread in threading.enumerate()}


def test_several_threads_share_plain_guards() -> None:  # contract 8.12
    class One:
        """It notices two calls at the same time."""

        busy = False

        def __call__(self, chunk: Chunk) -> Verdict:
            assert not self.busy
            self.busy = True
            for _ in range(100):
                pass
            self.busy = False
            return emit(chunk.pending)

    guards, made = weir.Guards([One, PHRASES]), []

    def run(number: int) -> None:
        pieces = [f"{number} ", "project ", "blue", "bird", " end"] * 50
        made.append("".join(guards.stream(pieces)) == f"{number} [phrase] end" * 50)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [True] * 8


def test_all_channels_are_guarded_and_a_call_leaves_whole() -> None:  # contract 3.20, 5.3
    call = weir.ToolCall(0, "send")
    source = [
        Delta(text="I think of project ", channel="reasoning"),
        Delta(text="bluebird", channel="reasoning"),
        Delta(text='{"text": "project', channel="tool_call", tool_call=call),
        Delta(text=' bluebird"}', channel="tool_call", tool_call=call, finish_reason="tool_calls"),
    ]
    released = list(weir.Guards(PHRASES).deltas(source))
    texts = {
        channel: "".join(one.text for one in released if one.channel == channel)
        for channel in ("reasoning", "tool_call")
    }
    assert texts == {"reasoning": "I think of [phrase]", "tool_call": '{"text": "[phrase]"}'}
    assert released[-1].finish_reason == "tool_calls"


def test_every_decision_is_reported_before_what_follows_from_it() -> None:  # contract 8.14
    events: list[str] = []
    guards = weir.Guards(PHRASES, on_decision=lambda decision: events.append(decision.action))
    for piece in guards.stream(["one ", "project bluebird", "."]):
        events += [piece]
    assert events == ["one ", "redact", "[phrase]."]


def test_an_ended_answer_takes_no_more() -> None:
    class Ends:
        def __call__(self, chunk: Chunk) -> Verdict:
            return terminate("enough")

    answer = weir.Guards(Ends).prompt("Hi")
    assert [one.finish_reason for one in answer.feed("one")] == ["content_filter"]
    assert answer.is_over
    with pytest.raises(RuntimeError, match="ended"):
        answer.feed("two")
    assert answer.end() == []
    answer.close()
