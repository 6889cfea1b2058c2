"""An engine's deltas are written down as they come. A failure to write reaches no client."""

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.protocol import (
    Delta,
    Deltas,
    EngineError,
    GenerationRequest,
    RequestError,
    Rewind,
    SamplingParams,
)
from engine.protocol.flow import Flow
from engine.streams import recorder as recorder_module
from engine.streams.feeding import feed_given
from engine.streams.flow import StagedFlow
from engine.streams.recorder import RecordingEngine, RecordingFile, RecordingFolder
from engine.streams.recording import Failure, Recording, TimedDelta
from engine.upstream.echo import EchoEngine
from engine.upstream.replay import ReplayEngine
from tests.engine.streams.stages import Answer, Passing, Waiting
from tests.helpers import ScriptedEngine, make_deltas, until

StartRecorder = Callable[..., Any]


def asked(text: str = "one two three", request_id: str = "r", **fields: Any) -> GenerationRequest:
    messages = ({"role": "user", "content": text},)
    return GenerationRequest(request_id=request_id, model="m", endpoint="chat", messages=messages, **fields)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartRecorder]:
    """Starts a recorder in front of an engine, closed after the test."""
    async with AsyncExitStack() as stack:

        async def start(
            engine: Any = None, *, max_bytes: int = 10**9, max_age: float | None = None
        ) -> RecordingEngine:
            engine = engine or EchoEngine()
            recorder = RecordingEngine(engine, tmp_path / "kept", max_bytes=max_bytes, max_age=max_age)
            stack.push_async_callback(recorder.aclose)
            await recorder.start()
            return recorder

        yield start


async def collect(engine: Any, request: GenerationRequest) -> list[Delta]:
    async with aclosing(engine.generate(request)) as deltas:
        return [delta async for delta in deltas]


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "kept").iterdir())


def deltas_of(path: Path) -> list[Delta]:
    return [timed.delta for timed in Recording.load(path).deltas]


async def test_a_recording_holds_the_request_and_all_that_was_said(
    start: StartRecorder, tmp_path: Path
) -> None:
    recorder = await start()
    request = asked(
        given=frozenset({"n", "messages"}), sampling=SamplingParams(logprobs=1, logit_bias={3: -1.0})
    )
    said = await collect(recorder, request)
    await recorder.aclose()
    (path,) = kept(tmp_path)
    recording = Recording.load(path)
    assert recording.request == request
    assert deltas_of(path) == said
    times = [timed.t for timed in recording.deltas]
    assert times == sorted(times)
    assert recording.failure is None
    assert await collect(ReplayEngine([recording]), request) == said


@pytest.mark.parametrize("iterates", [True, False])
async def test_deltas_are_recorded_as_they_come_however_long_their_flow_waits(
    start: StartRecorder, tmp_path: Path, iterates: bool
) -> None:
    """An engine that feeds by itself does not wait for the flow. Its deltas are kept, and joined."""

    class Feeding(ScriptedEngine):
        async def feed(self, request: GenerationRequest, flow: Flow) -> None:
            await feed_given(make_deltas(["a", "b", "c", "d"]), flow)

    kind = ScriptedEngine if iterates else Feeding
    recorder = await start(kind(lambda _: make_deltas(["a", "b", "c", "d"])))
    answer, waiting = Answer(), Waiting("b")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(StagedFlow(partial(recorder.feed, asked()), guard=[waiting]).run(answer))
        await until(lambda: "b" in waiting.seen)
        waiting.go_on.set()
    await recorder.aclose()
    assert answer.texts == (["a", "b", "c", "d", ""] if iterates else ["a", "b", "cd"])
    assert deltas_of(kept(tmp_path)[0]) == make_deltas(["a", "b", "c", "d"])


async def test_what_comes_after_the_flow_has_ended_is_not_recorded(
    start: StartRecorder, tmp_path: Path
) -> None:
    """A hook has ended the answer. The engine goes on until it is cancelled."""
    recorder = await start(ScriptedEngine(lambda _: make_deltas(["a", "b", "c"])))
    ending = Passing(lambda stage, delta: stage.flow.finish() if delta.text == "b" else None)
    await StagedFlow(partial(recorder.feed, asked()), guard=[ending]).run(Answer())
    await recorder.aclose()
    assert [delta.text for delta in deltas_of(kept(tmp_path)[0])] == ["a", "b"]


async def test_a_rewind_is_recorded_and_reaches_the_engine(start: StartRecorder, tmp_path: Path) -> None:
    sent: list[object] = []

    class Rewinding(ScriptedEngine):
        async def generate(self, request: GenerationRequest) -> Deltas:
            sent.append((yield Delta(text="a")))
            yield Delta(text="b", finish_reason="stop")

    recorder = await start(Rewinding(lambda _: ()))
    rewinding = Passing(lambda stage, delta: delta.text == "a" and stage.rewind(Rewind(0, 0)))
    await StagedFlow(partial(recorder.feed, asked()), [rewinding]).run(Answer())
    await recorder.aclose()
    assert sent == [Rewind(0, 0)]
    (path,) = kept(tmp_path)
    assert b'"rewind":{"index":0,"num_tokens":0}' in path.read_bytes()
    assert [delta.text for delta in deltas_of(path)] == ["b"]


async def test_only_its_owner_may_read_it(start: StartRecorder, tmp_path: Path) -> None:
    recorder = await start()
    await collect(recorder, asked())
    await recorder.aclose()
    (path,) = kept(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_folder_that_was_there_keeps_its_mode(start: StartRecorder, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir(mode=0o750)
    await start()
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o750


async def test_it_is_written_while_it_streams(start: StartRecorder, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    recorder = await start(ScriptedEngine(lambda _: [Delta(text="a"), go_on, Delta(finish_reason="stop")]))
    async with aclosing(recorder.generate(asked())) as deltas:
        await anext(deltas)
        await until(lambda: any(path.stat().st_size for path in kept(tmp_path)))
        assert deltas_of(kept(tmp_path)[0]) == [Delta(text="a")]
        go_on.set()
        await anext(deltas)
    await recorder.aclose()
    assert len(deltas_of(kept(tmp_path)[0])) == 2


async def test_an_answer_that_is_closed_early_is_kept_so_far(start: StartRecorder, tmp_path: Path) -> None:
    recorder = await start()
    async with aclosing(recorder.generate(asked())) as deltas:
        said = [await anext(deltas), await anext(deltas)]
    await recorder.aclose()
    (path,) = kept(tmp_path)
    assert deltas_of(path) == said
    assert all(delta.finish_reason is None for delta in said)


async def test_an_engine_that_fails_is_kept_with_its_failure(start: StartRecorder, tmp_path: Path) -> None:
    recorder = await start(ScriptedEngine(lambda _: [Delta(text="a"), EngineError("broke", status=502)]))
    with pytest.raises(EngineError, match="broke"):
        await collect(recorder, asked())
    await recorder.aclose()
    failure = Recording.load(kept(tmp_path)[0]).failure
    assert failure is not None
    assert replace(failure, t=0.0) == Failure(0.0, "broke", 502)


async def test_what_is_said_while_it_closes_is_kept(start: StartRecorder, tmp_path: Path) -> None:
    go_on = asyncio.Event()
    recorder = await start(ScriptedEngine(lambda _: [Delta(text="a"), go_on]))
    async with aclosing(recorder.generate(asked())) as deltas:
        await anext(deltas)
        await recorder.aclose()
        with pytest.raises(EngineError, match="stopped"):
            await anext(deltas)
    failure = Recording.load(kept(tmp_path)[0]).failure
    assert failure is not None
    assert failure.status == 503


@pytest.mark.parametrize("refusal", [RequestError("no"), EngineError("full", status=429)])
async def test_a_request_that_is_refused_leaves_nothing(
    start: StartRecorder, tmp_path: Path, refusal: Exception
) -> None:
    recorder = await start(ScriptedEngine(lambda _: [refusal]))
    with pytest.raises(type(refusal)):
        await collect(recorder, asked())
    await recorder.aclose()
    assert kept(tmp_path) == []


async def test_a_request_id_cannot_name_another_folder(start: StartRecorder, tmp_path: Path) -> None:
    recorder = await start()
    await collect(recorder, asked(request_id="../../é/x" + "y" * 300))
    await recorder.aclose()
    assert [path.suffix for path in kept(tmp_path)] == [".jsonl"]


async def test_the_oldest_are_removed_and_nobody_elses_files(start: StartRecorder, tmp_path: Path) -> None:
    recorder = await start()
    for name in ("a", "b", "c"):
        await collect(recorder, asked(request_id=name))
    await recorder.aclose()
    (tmp_path / "kept" / "notes.jsonl").write_text("mine")
    sizes = {path: path.stat().st_size for path in kept(tmp_path) if path.name != "notes.jsonl"}
    # Times make one file a little longer than another.
    again = await start(max_bytes=sum(sizes.values()) + min(sizes.values()) // 2)
    await collect(again, asked(request_id="d"))
    await again.aclose()
    names = [path.stem.partition("-")[2] for path in kept(tmp_path) if path.name != "notes.jsonl"]
    assert names == ["b", "c", "d"]
    assert (tmp_path / "kept" / "notes.jsonl").read_text() == "mine"


async def test_one_that_is_larger_than_all_may_be_is_removed_while_it_streams(
    start: StartRecorder, tmp_path: Path
) -> None:
    recorder = await start(max_bytes=100)
    assert len(await collect(recorder, asked())) == 4
    await recorder.aclose()
    assert kept(tmp_path) == []


async def test_old_recordings_are_removed_while_nothing_is_recorded(
    start: StartRecorder, tmp_path: Path
) -> None:
    (tmp_path / "kept").mkdir()
    yesterday = datetime.now(UTC) - timedelta(days=1.01)
    for began in (yesterday, datetime.now(UTC)):
        (tmp_path / "kept" / f"{began:%Y%m%dT%H%M%S%f}-r.jsonl").write_bytes(b"{}")
    (tmp_path / "kept" / "20000101T000000000000-notes.txt").write_text("not a recording")
    _, _, young = kept(tmp_path)
    recorder = await start(max_age=1)
    await until(lambda: len(kept(tmp_path)) == 2)
    assert young in kept(tmp_path)
    await collect(recorder, asked())
    await recorder.aclose()
    assert len(kept(tmp_path)) == 3


async def test_it_refuses_to_start_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in ("file", "file/below"):
        recorder = RecordingEngine(EchoEngine(), tmp_path / folder, max_bytes=10)
        with pytest.raises(ValueError, match=f"nothing can be recorded in .*{folder}: "):
            await recorder.start()
        await recorder.aclose()


async def test_it_warns_at_the_start(start: StartRecorder, caplog: pytest.LogCaptureFixture) -> None:
    await start()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "before any hook sees it" in caplog.text


async def test_a_folder_that_is_gone_is_told_of_once_and_serving_goes_on(
    start: StartRecorder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = await start()
    (tmp_path / "kept").rmdir()
    caplog.clear()
    for _ in range(3):
        assert len(await collect(recorder, asked())) == 4
    await recorder.aclose()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "recordings are cut short or missing" in caplog.text


async def test_what_json_cannot_say_is_left_out(start: StartRecorder, tmp_path: Path) -> None:
    recorder = await start(ScriptedEngine(lambda request: [Delta(text=request.user or "a")]))
    await collect(recorder, asked("half a pair: \ud83d"))
    await collect(recorder, asked(user="\ud83d"))
    await collect(recorder, asked(request_id="next"))
    await recorder.aclose()
    assert [path.stem.partition("-")[2] for path in kept(tmp_path)] == ["next"]


async def test_more_than_can_be_written_is_cut_short(
    start: StartRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_module, "MAX_UNWRITTEN", 10)
    recorder = await start()
    said = await collect(recorder, asked("word " * 100))
    await recorder.aclose()
    assert deltas_of(kept(tmp_path)[0]) == said[:9]
    assert "lines come faster than they can be written" in caplog.text


async def test_many_answers_at_once_are_kept_apart(start: StartRecorder, tmp_path: Path) -> None:
    recorder = await start(EchoEngine(delay=0.001))
    async with asyncio.TaskGroup() as group:
        for i in range(8):
            group.create_task(collect(recorder, asked(f"this is answer {i} of eight", request_id=f"r{i}")))
    await recorder.aclose()
    texts = {path.stem[-2:]: "".join(d.text for d in deltas_of(path)) for path in kept(tmp_path)}
    assert texts == {f"r{i}": f"this is answer {i} of eight" for i in range(8)}
    assert isinstance(Recording.load(kept(tmp_path)[0]).deltas[0], TimedDelta)


def test_a_line_that_the_disk_does_not_take_whole_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk gets full: one write takes a part of the line, and the next write fails."""
    file = RecordingFile(tmp_path / "x.jsonl")
    file.append(b"one\n")
    write = os.write

    def stammer(descriptor: int, data: bytes) -> int:
        if data.startswith(b"ll"):
            raise OSError("full")
        return write(descriptor, data[:2])

    monkeypatch.setattr(os, "write", stammer)
    file.append(b"two\n")
    with pytest.raises(OSError, match="full"):
        file.append(b"well\n")
    assert file.path.read_bytes() == b"one\ntwo\n"


async def test_it_closes_where_a_write_ended_a_moment_before(tmp_path: Path) -> None:
    """The write's future is done, and the event loop has not called what was to be called then."""
    folder = RecordingFolder(tmp_path, max_bytes=10**6)
    folder.start()
    folder.open(GenerationRequest(request_id="r", model="m", endpoint="chat"))
    folder._flush()
    folder._thread.submit(lambda: None).result()  # the event loop does nothing else until all is written
    await asyncio.sleep(0)
    assert folder._writing is not None
    assert folder._writing.done()
    await folder.aclose()
    assert len(os.listdir(tmp_path)) == 1
