"""`play` shows what a client would have got, and what each hook said."""

from pathlib import Path
from typing import Any, cast

import pytest

from engine.protocol import Delta
from engine.streams.recording import Failure, Recording, TimedDelta
from hooks import Chunk, GenerationRequest, Refusal, Verdict, emit, hold, redact, refuse, suppress, terminate
from hooks.decisions.failure import BadVerdictError
from hooks.loading.loader import HookLoadError
from hooks.testing import HookSpec, Judgement, assert_chunk_invariant, play, stream_of
from hooks.testing.streams import request_for

ROOT = Path(__file__).parents[3]


class Upper:
    def __init__(self, mark: str = "") -> None:
        self.mark = mark

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending.upper() + self.mark)


class AsyncUpper:
    async def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending.upper())


def upper(chunk: Chunk) -> Verdict:
    return emit(chunk.pending.upper())


@pytest.mark.parametrize("in_worker", [False, True])
@pytest.mark.parametrize(
    "hook",
    [
        Upper,
        Upper(),
        AsyncUpper,
        upper,
        f"{ROOT}/examples/upper_case.py:UpperCase",
        HookSpec(f"{ROOT}/examples/upper_case.py:UpperCase"),
        [upper, upper],
    ],
)
def test_a_hook_is_named_in_many_ways(hook: Any, in_worker: bool) -> None:
    assert play(hook, "so it is", in_worker=in_worker).content == "SO IT IS"


async def test_it_works_in_an_async_test() -> None:
    assert play(AsyncUpper, "so it is").content == "SO IT IS"


def test_a_pipeline_runs_in_order() -> None:
    assert play([Upper("1"), Upper("2")], ["x"]).content == "X1212"


def test_a_hook_that_cannot_be_loaded_says_so() -> None:
    with pytest.raises(HookLoadError):
        play("no.such.Hook", "x")


@pytest.mark.parametrize("streaming", [False, True])
def test_a_hook_is_told_whether_the_client_streams(streaming: bool) -> None:
    def tell(chunk: Chunk) -> Verdict:
        return emit(str(chunk.streaming))

    assert play(tell, ["x"], streaming=streaming).content == str(streaming) * 2


def test_channels_are_told_apart() -> None:
    released = play(upper, stream_of("hm", channel="reasoning"))
    assert (released.reasoning, released.content) == ("HM", "")
    released = play(upper, stream_of('{"a": 1}', channel="tool_call", tool_name="f"))
    assert released.tool_calls == [("f", '{"A": 1}')]
    assert (released.tool_calls[0].name, released.tool_calls[0].arguments) == ("f", '{"A": 1}')
    assert released.text("tool_call") == '{"A": 1}'


def test_an_ending_is_told() -> None:
    def end(chunk: Chunk) -> Verdict:
        return terminate("rude", after=2, text=" no")

    released = play(end, ["abcd"])
    assert released.content == "ab no"
    assert (released.finish_reason, released.stop_reason) == ("content_filter", "rude")
    assert released.tokens == ()


def test_a_failing_hook_raises_what_it_raised() -> None:
    def fail(chunk: Chunk) -> Verdict:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        play(fail, "x")
    with pytest.raises(BadVerdictError, match="NoneType"):
        play(cast(Any, lambda chunk: None), "x")


def test_an_engine_that_failed_is_told() -> None:
    made = Recording(request_for(), (TimedDelta(0.0, Delta(text="a")),), Failure(0.0, "broke", 502))
    released = play(upper, made)
    assert released.content == "A"
    assert str(released.failure) == "broke"
    assert released.finish() == (None, None)


def test_what_a_hook_said_is_kept_with_its_place() -> None:
    answers = iter(
        [
            emit("ab"),
            hold(1),
            redact([(1, 2, "*")], hold=1),
            suppress(),
            emit("IJ"),
            terminate("x", after=1, text="bye"),
        ]
    )

    def answer(chunk: Chunk) -> Verdict:
        return next(answers)

    told = play(answer, ["ab", "cd", "ef", "gh", "ij", "kl"]).judgements
    assert [(j.action, j.pending, j.start, j.end, j.num_held) for j in told] == [
        ("emit", "ab", 0, 2, 0),
        ("hold", "cd", 2, 4, 1),
        ("redact", "def", 3, 6, 1),
        ("suppress", "fgh", 5, 8, 0),
        ("rewrite", "ij", 8, 10, 0),
        ("terminate", "kl", 10, 12, 0),
    ]
    assert [j.spans for j in told] == [
        (),
        (),
        ((4, 5, "*"),),
        ((5, 8, ""),),
        ((8, 10, "IJ"),),
        ((11, 12, "bye"),),
    ]
    assert [j.reason for j in told] == [None] * 5 + ["x"]
    assert {(j.hook, j.output_index, j.channel, j.tool_name) for j in told} == {
        ("answer", 0, "content", None)
    }


def test_judgements_of_a_pipeline_are_in_the_order_made() -> None:
    def quiet(chunk: Chunk) -> Verdict:
        return emit(chunk.pending)

    told = play([upper, quiet], ["a", "b"]).judgements
    assert [j.hook for j in told] == ["upper", "quiet"] * 3
    assert isinstance(told[0], Judgement)


class Curt:
    """Answers what has a question mark, and refuses what shouts."""

    def on_request(self, request: GenerationRequest) -> GenerationRequest | Refusal:
        said = str(request.messages[-1]["content"])
        if "!" in said:
            return refuse("shouting", None if "!!" in said else "Calm down.")
        return request

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)


@pytest.mark.parametrize("in_worker", [False, True])
def test_a_prompt_can_be_given_and_what_came_of_it_is_told(in_worker: bool) -> None:
    asked = play(Curt, stream_of("Here.", prompt="Where?"), in_worker=in_worker)
    assert (asked.content, asked.refused) == ("Here.", None)
    assert asked.request is not None
    assert asked.request.messages == ({"role": "user", "content": "Where?"},)
    refused = play(Curt, stream_of("Here.", prompt="Where!!"), in_worker=in_worker)
    assert (refused.content, refused.refused, refused.request) == ("", "shouting", None)
    answered = play(Curt, stream_of("Here.", prompt="Where!"), in_worker=in_worker)
    assert (answered.content, answered.refused, answered.request) == ("Calm down.", "shouting", None)
    assert answered.finish_reason == "content_filter"


def test_a_prompt_is_words_or_messages_or_a_request() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]
    request = request_for(messages)
    for prompt in (messages, request):
        asked = play(Curt, stream_of("Here.", prompt=prompt)).request
        assert asked is not None
        assert asked.messages == tuple(messages)


@pytest.mark.parametrize("in_worker", [False, True])
def test_a_rewind_ends_the_stream_as_terminate_would(in_worker: bool) -> None:
    played = play(f"{ROOT}/examples/say_otherwise.py:SayOtherwise", "I am a computer.", in_worker=in_worker)
    assert (played.content, played.finish_reason, played.stop_reason) == (
        "I am a ",
        "content_filter",
        "say_otherwise",
    )
    assert [judgement.action for judgement in played.judgements][-1] == "rewind"


def test_a_hook_that_rewinds_is_right_at_every_cut() -> None:
    assert_chunk_invariant(f"{ROOT}/examples/say_otherwise.py:SayOtherwise", "I am a computer.")
