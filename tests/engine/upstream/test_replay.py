"""The replay engine: which recording answers a request, and when its deltas come."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.protocol import Delta, EngineError, GenerationRequest, RequestError, SamplingParams
from engine.streams.recording import Failure, Recording, TimedDelta, record
from engine.upstream.echo import EchoEngine
from engine.upstream.replay import ReplayEngine
from tests.engine.streams.test_recording import chat


async def replay(engine: ReplayEngine, request: GenerationRequest) -> list[Delta]:
    return [delta async for delta in engine.generate(request)]


async def test_replays_what_was_recorded() -> None:
    request = chat("one two three")
    recording = await record(EchoEngine(), request)
    assert await replay(ReplayEngine([recording]), request) == [timed.delta for timed in recording.deltas]


async def test_replays_a_failure() -> None:
    engine = ReplayEngine(
        [Recording(chat(), (TimedDelta(0.0, Delta(text="a")),), Failure(0.1, "broke", 502))]
    )
    again = await record(engine, chat())
    assert again.deltas[0].delta == Delta(text="a")
    assert again.failure is not None
    assert (again.failure.message, again.failure.status) == ("broke", 502)
    with pytest.raises(EngineError):
        await replay(engine, chat())
    assert engine.stats().aborted_total == 0


async def test_a_request_for_logprobs_of_the_prompt_gets_a_recording_that_has_them() -> None:
    plain, wanted = chat("one two"), chat("one two", sampling=SamplingParams(prompt_logprobs=1))
    engine = ReplayEngine([await record(EchoEngine(), plain)])
    assert "prompt_logprobs" in engine.fields.honoured
    with pytest.raises(RequestError, match="with the prompt"):
        await replay(engine, wanted)
    engine = ReplayEngine([await record(EchoEngine(), one) for one in (plain, wanted)])
    assert (await replay(engine, wanted))[0].channel == "echo"
    assert (await replay(engine, plain))[0].channel == "content"


async def test_a_text_equals_its_one_part() -> None:
    engine = ReplayEngine([Recording(chat("Hi"), (TimedDelta(0.0, Delta(finish_reason="stop")),))])
    assert await replay(engine, chat([{"type": "text", "text": "Hi"}]))
    assert await replay(engine, chat(messages=({"role": "user", "content": "Hi", "name": None},)))


async def test_a_chat_serves_the_responses_endpoint_too() -> None:
    engine = ReplayEngine([Recording(chat("Hi"), (TimedDelta(0.0, Delta(finish_reason="stop")),))])
    assert await replay(engine, chat("Hi", endpoint="responses"))


@pytest.mark.parametrize(
    "other",
    [
        chat("Ho"),
        chat(sampling=SamplingParams(n=2)),
        chat(endpoint="completions", messages=(), prompts=("Hi",)),
        chat([{"type": "text", "text": "Hi"}, {"type": "text", "text": "Hi"}]),
    ],
)
async def test_finds_nothing_for_another_request(other: GenerationRequest) -> None:
    engine = ReplayEngine([Recording(chat("Hi"), ())])
    with pytest.raises(RequestError, match=r"No recording matches .*n \d, without the prompt") as error:
        await replay(engine, other)
    assert "Ho" not in str(error.value)


async def test_takes_the_likest_and_of_equals_the_first(tmp_path: Path) -> None:
    for name, temperature in (("b", 0.5), ("a", 0.0), ("c", 0.5)):
        sampling = SamplingParams(temperature=temperature)
        Recording(chat(sampling=sampling), (TimedDelta(0.0, Delta(text=name)),)).dump(
            tmp_path / f"{name}.jsonl"
        )
    engine = ReplayEngine(tmp_path)
    await engine.start()

    async def taken(temperature: float) -> str:
        return (await replay(engine, chat(sampling=SamplingParams(temperature=temperature))))[0].text

    assert [await taken(t) for t in (0.5, 0.0, 1.0)] == ["b", "a", "a"]


async def test_refuses_to_start_on_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no recording"):
        await ReplayEngine(tmp_path).start()


@pytest.mark.parametrize("speed", [-1.0, math.nan, math.inf, 1e-320])
def test_refuses_a_speed_that_would_wait_for_ever(speed: float) -> None:
    with pytest.raises(ValueError, match=r"speed must be 0, or from 0\.001 on"):
        ReplayEngine([], speed=speed)


@pytest.mark.parametrize(("speed", "pauses"), [(0, [0, 0]), (1, [0.2, 0.4]), (4, [0.05, 0.1])])
async def test_keeps_the_recorded_times(
    speed: float, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, made = SimpleNamespace(now=0.0), []

    async def pause(seconds: float) -> None:
        made.append(seconds)
        clock.now += seconds

    deltas = (TimedDelta(0.2, Delta(text="a")), TimedDelta(0.6, Delta(finish_reason="stop")))
    engine = ReplayEngine([Recording(chat(), deltas)], speed=speed)
    monkeypatch.setattr("engine.upstream.replay.time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(engine._requests, "pause", pause)
    await replay(engine, chat())
    assert made == pytest.approx(pauses)
