"""The trial of one exchange: flags, delays, leaks, refusals, failures and held time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hooks import Chunk, GenerationRequest, Refusal, Verdict, emit, hold, refuse, suspect, terminate
from hooks.loading.given import load
from hooks.pipeline.pipeline import Pipeline
from hooks.testing import Judgement
from hooks.testing.probe import Probe
from hooks.testing.streams import cut, stream_of
from proxy.cli.evaluation.report import ALL, Report
from proxy.cli.evaluation.trial import Trial, play_exchange
from proxy.cli.labelled.exchange import Exchange
from proxy.cli.labelled.share import Share

REPLY = "It is my secret word, you know it."
"""Its tokens: `It`, ` is`, ` my`, ` secret`, ` word`, `,`, ..."""


class After:
    """Ends a stream when it has been shown `length` characters; a stream of fewer ones passes."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, chunk: Chunk) -> Verdict:
        return terminate("late") if len(chunk.text) >= self.length else emit(chunk.pending)


def play(hooks: Any, *, speed: float = 0.0, in_chunks_of: int | None = None, **labels: Any) -> Trial:
    judgements: list[Judgement] = []
    pipeline = Pipeline(Probe(hook, judgements).hook for hook in load(hooks))
    exchange = Exchange("x", stream_of(REPLY, prompt="Hello?"), **labels)
    places = range(in_chunks_of, len(REPLY), in_chunks_of) if in_chunks_of else None
    stream = cut(exchange.stream, places)
    return asyncio.run(play_exchange(pipeline, judgements, exchange, stream=stream, speed=speed))


@pytest.mark.parametrize(
    ("length", "delay"),
    [(1, -2), (len("It is my"), 0), (len("It is my s"), 1), (len("It is my secret"), 1), (len(REPLY), 7)],
)
def test_the_delay_is_the_tokens_from_the_offence_to_the_flag(length: int, delay: int) -> None:
    trial = play(After(length), is_unsafe=True, unsafe_from=REPLY.index(" secret"))
    assert trial.num_tokens == 10
    assert trial.delay == delay


def test_without_a_place_the_delay_counts_from_the_beginning() -> None:
    assert play(After(len("It is my")), is_unsafe=True).delay == 3


def test_the_chunks_change_no_token_counts() -> None:
    trial = play(After(len("It is my secret")), in_chunks_of=1, is_unsafe=True, unsafe_from=9)
    assert (trial.num_tokens, trial.delay) == (10, 1)


def test_a_reply_that_passes_has_no_flag() -> None:
    trial = play(After(1000), is_unsafe=False)
    assert (trial.flag, trial.delay, trial.failed) == (None, None, None)
    assert trial.num_calls == {"After": 11}


def test_characters_of_the_offence_that_left_are_counted() -> None:
    start = REPLY.index("secret")
    assert play(After(start + 3), is_unsafe=True, unsafe_from=start).num_leaked == 0
    assert play(After(len(REPLY)), is_unsafe=True, unsafe_from=start).num_leaked == len(
        "secret word, you know it"
    )


class Suspicious:
    def __call__(self, chunk: Chunk) -> Verdict:
        return suspect("words") if "word" in chunk.text else emit(chunk.pending)


def test_a_suspicion_is_the_flag_of_its_hook_and_of_no_other() -> None:
    trial = play([Suspicious(), After(len(REPLY))], is_unsafe=True)
    assert trial.flags["Suspicious"].num_tokens == 5
    assert trial.flag is not None
    assert trial.flag.hook == "After"


class Refusing(After):
    def on_request(self, request: GenerationRequest) -> Refusal:
        return refuse("no", self.text)

    text: str | None = None


class RefusingInWords(Refusing):
    text = "No."


@pytest.mark.parametrize("kind", [Refusing, RefusingInWords])
def test_a_refused_prompt_is_no_flag_of_the_reply(kind: Callable[[int], Any]) -> None:
    trial = play(kind(99), is_unsafe=True, is_prompt_unsafe=True)
    assert trial.is_refused
    assert trial.flag is None


def broken(chunk: Chunk) -> Verdict:
    raise RuntimeError


def test_a_hook_that_fails_is_named() -> None:
    assert play(broken).failed == "broken"


class Holding:
    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending) if chunk.is_final else hold()


def test_held_time_is_that_of_the_first_character_that_leaves() -> None:
    (held,) = play(Holding(), speed=100.0).held_seconds
    assert held >= 0.08
    assert len(play(After(99), speed=100.0).held_seconds) == 10


def test_a_report_counts_streams_by_their_labels() -> None:
    trials = [
        *(play(After(9), is_unsafe=True, unsafe_from=6) for _ in range(3)),
        play(After(99), is_unsafe=True),
        play(After(9), is_unsafe=False),
        *(play(After(99), is_unsafe=False) for _ in range(4)),
        play(After(9)),
        play(broken, is_unsafe=True),
        play(Refusing(99), is_prompt_unsafe=True),
        play(Refusing(99), is_prompt_unsafe=False),
    ]
    report = Report(trials, computed_tokens=7)
    row = report.rows[0]
    assert (row.name, row.detected, row.false_positives) == (ALL, Share(3, 4), Share(1, 5))
    assert (report.num_failed, report.refused, report.wrongly_refused) == (1, Share(1, 1), Share(1, 1))
    assert report.as_json()["cost"]["computed_tokens"] == 7
    text = "\n".join(report.lines())
    assert "0.750 (0.301-0.954)" in text
    assert "4 unsafe and 5 safe replies; 1 failed closed" in text


def test_intervals_are_wilson_s() -> None:
    # Newcombe (1998), table I: 81 of 263, and 0 of 20.
    low, high = Share(81, 263).interval or (0, 0)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    low, high = Share(0, 20).interval or (0, 0)
    assert (round(low, 4), round(high, 4)) == (0.0, 0.1611)
    assert Share(0, 0).interval is None
