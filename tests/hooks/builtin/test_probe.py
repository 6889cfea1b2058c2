"""The guard that reads a probe's scores: what it ends, where, and that nothing passes without a score."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Calibration, Channel, Delta, ProbeInfo, PromptScores, Scores, Token, ToolCall
from engine.streams.recording import Recording, TimedDelta
from hooks import Chunk, emit, hold
from hooks.builtin.probe import MissingScoresError, Probe, ProbedStream
from hooks.builtin.probe_scores.smoothing import running_score
from hooks.detect.acting_guard import Action
from hooks.loading.loader import HookLoadError, HookSpec, load_hook
from hooks.testing import play
from hooks.testing.streams import cut, num_places, request_for, stream_of
from tests.helpers import Script, guard_all, pipeline_of, text_of

HARM = ProbeInfo(name="harm", kind="linear", labels=("harm",))
CALIBRATED = replace(HARM, calibration=Calibration(threshold=2.0, smoothing="rolling_mean", span=2))


def scored(
    *pieces: tuple[str, float | Scores],
    probes: tuple[ProbeInfo, ...] = (HARM,),
    prompt: Sequence[float] = (0.0,),
    channel: Channel = "content",
) -> Recording:
    """A stream of one token for each text, with its score."""
    call = ToolCall(0, "f") if channel == "tool_call" else None
    deltas = [
        Delta(
            text=text,
            tokens=(Token(i, text, text.encode(), scores=score if isinstance(score, tuple) else (score,)),),
            channel=channel,
            tool_call=call,
            prompt_scores=None if i else PromptScores(probes, tuple((one,) for one in prompt)),
        )
        for i, (text, score) in enumerate(pieces)
    ]
    deltas.append(Delta(finish_reason="stop", channel=channel, tool_call=call))
    return Recording(request_for(), tuple(TimedDelta(0.0, delta) for delta in deltas))


MEAN = scored(("I ", 0.0), ("hate ", 1.0), ("you ", 5.0), ("all", 6.0))


def test_the_answer_ends_before_the_token_that_reaches_the_threshold() -> None:
    released = play(Probe(threshold=5.0), MEAN)
    assert (released.content, released.finish_reason, released.stop_reason) == (
        "I hate ",
        "content_filter",
        "harm",
    )
    assert play(Probe(threshold=6.5), MEAN).content == "I hate you all"


def test_no_text_waits_for_a_verdict() -> None:
    released = play(Probe(threshold=9.0), MEAN)
    assert [delta.text for delta in released.deltas if delta.text] == ["I ", "hate ", "you ", "all"]


def test_threshold_and_smoothing_are_those_of_the_calibration_unless_they_are_given() -> None:
    stream = scored(("a", 0.0), ("b", 3.0), ("c", 3.0), ("d", 0.0), probes=(CALIBRATED,))
    assert play(Probe(), stream).content == "ab"  # means of two: 0, 1.5, 3
    assert play(Probe(span=1), stream).content == "a"
    assert play(Probe(threshold=1.5), stream).content == "a"
    assert play(Probe(smoothing="max_of_means", span=4), stream).content == "abcd"


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("redact", "I hate [harm][harm]"),
        ("suppress", "I hate "),
        ("terminate", "I hate "),
        ("rewind", "I hate "),
        ("suspect", "I hate you all"),
    ],
)
def test_every_action_acts_on_the_tokens_that_are_found(action: Any, text: str) -> None:
    assert play(Probe(threshold=5.0, action=action), MEAN).content == text


def test_arguments_stay_json_if_a_chunk_has_several_tokens() -> None:
    pieces = (
        ('{"', 0.0),
        ("to", 0.0),
        ('": "', 0.0),
        ("Zo\\u00eb", 9.0),
        ('", "', 0.0),
        ("on", 9.0),
        ('": 1}', 0.0),
    )
    stream = scored(*pieces, channel="tool_call")
    wanted = '{"to": "[harm]", "[harm]": 1}'
    for places in ((), (2,), range(1, num_places(stream))):
        assert play(Probe(threshold=5.0, action="redact"), cut(stream, places)).text("tool_call") == wanted


async def test_a_suspicion_is_told_to_the_next_hook() -> None:
    told: list[tuple[str, str | None]] = []

    def judge(chunk: Chunk) -> Any:
        told.append((chunk.text_diff, chunk.suspicion))
        return emit(chunk.pending)

    deltas = [timed.delta for timed in MEAN.deltas]
    released = await guard_all(pipeline_of(Probe(threshold=5.0, action="suspect"), Script(judge)), deltas)
    assert text_of(released) == "I hate you all"
    assert told == [("I ", None), ("hate ", None), ("you ", "harm"), ("all", "harm"), ("", "harm")]


def test_a_probe_is_chosen_by_name_and_labels_among_several() -> None:
    two = replace(HARM, name="two", labels=("spam", "lies"))
    stream = scored(
        ("a", (9.0, 0.0, 0.0)), ("b", (0.0, 5.0, 0.0)), ("c", (0.0, 0.0, 5.0)), probes=(HARM, two)
    )
    assert play(Probe("harm", threshold=5.0), stream).stop_reason == "harm"
    assert play(Probe("two", threshold=5.0), stream).stop_reason == "spam"
    released = play(Probe("two", threshold=5.0, labels=["lies"]), stream)
    assert (released.content, released.stop_reason) == ("ab", "lies")


def test_an_attention_probe_weighs_the_tokens_itself() -> None:
    attention = replace(HARM, kind="attention")
    stream = scored(("a", (0.0, 8.0)), ("b", (0.0, 0.0)), ("c", (5.0, 0.0)), probes=(attention,))
    assert play(Probe(threshold=8.0), stream).content == ""
    calm = scored(("a", (0.0, 0.0)), ("b", (0.0, 8.0)), ("c", (5.0, 8.0)), probes=(attention,))
    assert play(Probe(threshold=5.0), calm).content == "ab"  # 0, 4, then nearly 8
    with pytest.raises(ValueError, match="probe harm is an attention probe"):
        play(Probe(threshold=5.0, span=4), stream)


def test_a_prompt_is_read_if_the_guard_says_so() -> None:
    stream = scored(("Sure", 0.0), (", ...", 0.0), prompt=(0.0, 7.0, 0.0))
    assert play(Probe(threshold=5.0), stream).content == "Sure, ..."
    released = play(Probe(threshold=5.0, prompt="refuse", text="No."), stream)
    assert (released.content, released.stop_reason) == ("No.", "harm")
    assert play(Probe(threshold=5.0, prompt="refuse", action="suspect"), stream).content == "Sure, ..."


@pytest.mark.parametrize("action", ["terminate", "rewind", "redact", "suppress"])
def test_a_prompt_that_is_found_ends_the_answer_whatever_the_action_does_to_replies(action: Action) -> None:
    stream = scored(("Sure", 0.0), (", ...", 0.0), prompt=(0.0, 7.0, 0.0))
    released = play(Probe(threshold=5.0, prompt="refuse", action=action), stream)
    assert (released.content, released.finish_reason, released.stop_reason) == ("", "content_filter", "harm")


def test_the_end_of_an_answer_counts_too() -> None:
    """The score of the end of sequence, and the mean of a stream that is shorter than a window."""
    end = Delta(tokens=(Token(9, "", b"</s>", scores=(7.0,)),), finish_reason="stop")
    stream = scored(("a", 0.0), ("b", 0.0))
    stream = replace(stream, deltas=(*stream.deltas[:-1], TimedDelta(0.0, end)))
    assert play(Probe(threshold=5.0), stream).finish_reason == "content_filter"
    only = replace(end, prompt_scores=PromptScores((HARM,), ((0.0,),)))
    alone = Recording(request_for(), (TimedDelta(0.0, only),))
    assert play(Probe(threshold=5.0), alone).finish_reason == "content_filter"
    short = scored(("a", 6.0), ("b", 6.0))
    released = play(Probe(threshold=5.0, smoothing="max_of_means", span=8), short)
    assert released.finish_reason == "content_filter"


@given(
    st.lists(
        st.tuples(st.sampled_from(["a ", "bc", "def", "é", "\\u0041", '"']), st.floats(-3, 3)), max_size=12
    ),
    st.sampled_from(["ema", "rolling_mean", "max_of_means"]),
    st.integers(1, 5),
    st.sampled_from(["terminate", "redact", "suppress"]),
    st.sampled_from(["content", "tool_call"]),
    st.data(),
)
def test_a_result_does_not_depend_on_where_the_stream_is_cut(
    pieces: list[tuple[str, float]], smoothing: Any, span: int, action: Any, channel: Any, data: st.DataObject
) -> None:
    if channel == "tool_call":
        pieces = [('{"a": "', 0.0), *((text.replace('"', "q"), score) for text, score in pieces), ('"}', 0.0)]
    pieces = pieces or [("x", 0.0)]
    stream = scored(*pieces, channel=channel)
    guard = Probe(threshold=1.0, smoothing=smoothing, span=span, action=action)
    places = data.draw(st.sets(st.integers(1, max(1, num_places(stream)))))
    wanted = play(guard, stream).outcome
    assert play(guard, cut(stream, places)).outcome == wanted
    assert play(guard, cut(stream, ())).outcome == wanted
    running = running_score(smoothing, span)
    values = [running.add(score) for _, score in pieces]
    found = [value is not None and value >= 1.0 for value in (*values, running.end())]
    if channel == "content" and action == "terminate" and any(found):
        assert wanted.finishes[0] == ("content_filter", "harm")
        first = found.index(True)
        was_judged = any(value is not None for value in values[:first])
        kept = "".join(text for text, _ in pieces[:first]) if was_judged else ""
        assert "".join(wanted.texts.values()) == kept


@given(
    scores=st.lists(st.sampled_from([0.0, 1.0, 3.0, 9.0]), min_size=3, max_size=9),
    places=st.sets(st.integers(1, 18)),
    action=st.sampled_from(["terminate", "redact", "suppress", "suspect"]),
    smoothing=st.sampled_from(["ema", "max_of_means"]),
)
def test_chunks_that_pass_the_short_way_are_judged_as_others(
    scores: list[float], places: set[int], action: Any, smoothing: Any
) -> None:
    whole = scored(*[(f"{i} ", score) for i, score in enumerate(scores)])
    stream = cut(whole, sorted(at for at in places if at < num_places(whole)))
    probe = Probe(threshold=3.0, smoothing=smoothing, span=2, action=action)
    short = play(probe, stream)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProbedStream, "passes", lambda stream, chunk: False)
        long = play(probe, stream)
    assert short.deltas == long.deltas


def missing(**fields: Any) -> Iterable[Recording]:
    whole = scored(("a", 0.0), ("b", 0.0), **fields)
    (first, second, end) = whole.deltas
    bare = replace(second, delta=replace(second.delta, tokens=(Token(1, "b", b"b"),)))
    return whole, replace(whole, deltas=(first, bare, end))


def test_a_token_without_scores_fails_the_request() -> None:
    _, stream = missing()
    with pytest.raises(MissingScoresError, match="a token without scores"):
        play(Probe(threshold=5.0), stream)


@pytest.mark.parametrize(
    ("arguments", "stream", "reason"),
    [
        ({}, stream_of("Hello"), "the model has no probes"),
        ({"probe": "spam"}, MEAN, "the model has no probe spam; it has harm"),
        ({"labels": ["spam"]}, MEAN, "probe harm has no spam; it has harm"),
        ({"threshold": None}, MEAN, "probe harm is not calibrated, so a threshold must be given"),
        ({}, scored(("a", (0.0, 0.0)), probes=(HARM, replace(HARM, name="b"))), "several probes: harm, b"),
    ],
)
def test_a_model_without_the_probe_fails_the_request(arguments: Any, stream: Recording, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):  # contract 1.10
        play(Probe(**{"threshold": 5.0, **arguments}), stream)


def test_scores_that_are_no_numbers_count_as_found() -> None:
    assert play(Probe(threshold=5.0), scored(("a", 0.0), ("b", float("nan")))).content == "a"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"threshold": float("inf")}, "threshold: Input should be a finite number"),
        ({"span": 0}, "span: Input should be greater than or equal to 1"),
        ({"smoothing": "median"}, "smoothing: Input should be 'ema', 'rolling_mean' or 'max_of_means'"),
        ({"prompt": "redact"}, "prompt: Input should be 'refuse'"),
        ({"mode": "release"}, "mode"),
    ],
)
def test_an_argument_that_is_wrong_is_named(arguments: Any, says: str) -> None:
    with pytest.raises(HookLoadError, match=says):
        load_hook(HookSpec("probe", arguments))


@pytest.mark.parametrize("arguments", [{}, {"probe": "a", "threshold": 1.0, "labels": ["x", "y"], "span": 3}])
async def test_its_self_test_has_scores(arguments: dict[str, Any]) -> None:
    await pipeline_of(Probe(**arguments)).start()  # contract 1.10


@pytest.mark.parametrize("num_held", range(1, 8))
async def test_no_part_of_a_token_leaves_before_its_score(num_held: int) -> None:
    """The hook before the guard releases a token's text in parts."""

    def holding(chunk: Chunk) -> Any:
        return emit(chunk.pending) if chunk.is_final else hold(min(num_held, len(chunk.pending)))

    deltas = [timed.delta for timed in MEAN.deltas]
    released = await guard_all(pipeline_of(Script(holding), Probe(threshold=5.0)), deltas)
    assert text_of(released) == "I hate "


async def test_text_of_another_hook_needs_no_score() -> None:
    def shout(chunk: Chunk) -> Any:
        return emit(chunk.pending.upper())

    deltas = [timed.delta for timed in MEAN.deltas]
    released = await guard_all(pipeline_of(Script(shout), Probe(threshold=5.0)), deltas)
    assert text_of(released) == "I HATE YOU ALL"
