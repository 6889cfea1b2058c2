"""Times of trials: measured in turns, kept in a file, and measured again if the file is of no use."""

import json
from pathlib import Path

import pytest

from engine.device import trials
from engine.device.kernels.cpu import native_library
from engine.device.trials import ROUNDS, Times, TrialRecord, least_seconds

TIMES: Times = {"a": {1: 2.0, 8: 3.0}, "b": {1: 1.5, 8: 4.0}}


def times_of(record: TrialRecord, names: str = "ab", rows: tuple[int, ...] = (1, 8)) -> tuple[Times, bool]:
    """The times, and whether they were measured."""
    measured = []

    def measure() -> Times:
        measured.append(True)
        return {name: dict(TIMES["a"]) for name in names} if names != "ab" else TIMES

    return record.times("m", names, rows, measure), bool(measured)


def test_the_next_start_does_not_measure_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "trials.json"
    assert times_of(TrialRecord(path)) == (TIMES, True)
    assert times_of(TrialRecord(path)) == (TIMES, False)
    assert [file.name for file in path.parent.iterdir()] == ["trials.json"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "\0", '{"m": 3}', '{"m": {"a": {"1": "x"}, "b": {}}}', '{"m": {"a": {"1": -1, "8": 1}}}'],
)
def test_a_broken_file_is_measured_anew(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    path.write_text(text)
    assert times_of(TrialRecord(path)) == (TIMES, True)
    assert times_of(TrialRecord(path)) == (TIMES, False)


def test_other_ways_or_rows_are_measured_anew(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    times_of(TrialRecord(path))
    assert times_of(TrialRecord(path), names="ac")[1]
    assert times_of(TrialRecord(path), names="ab")[1]
    path.write_text(json.dumps({"m": {"a": {"1": 1.0}, "b": {"1": 1.0}}}))
    assert times_of(TrialRecord(path))[1]


def test_times_that_cannot_be_kept_are_still_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert times_of(TrialRecord(tmp_path / "file" / "trials.json")) == (TIMES, True)
    assert times_of(TrialRecord(None)) == (TIMES, True)


def test_a_trial_that_other_programs_disturb_serves_this_start_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counts = iter([0, 10_000])
    monkeypatch.setattr(trials, "_num_preemptions", lambda: next(counts))
    record = TrialRecord(tmp_path / "trials.json")
    assert times_of(record) == (TIMES, True)
    assert times_of(record) == (TIMES, False), "not again for the next matrix of this shape"
    monkeypatch.setattr(trials, "_num_preemptions", lambda: 0)
    assert times_of(TrialRecord(tmp_path / "trials.json")) == (TIMES, True)
    assert times_of(TrialRecord(tmp_path / "trials.json")) == (TIMES, False)


def test_a_user_without_a_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_folder() -> Path:
        raise OSError("there is no folder")

    monkeypatch.setattr(trials, "cache_folder", no_folder)
    assert times_of(TrialRecord.open()) == (TIMES, True)


def test_a_record_holds_for_one_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    times_of(TrialRecord.open())
    assert not times_of(TrialRecord.open())[1]
    monkeypatch.setattr(native_library, "processor", lambda: b"another")
    assert times_of(TrialRecord.open())[1]


def test_ways_take_turns() -> None:
    called: list[str] = []
    ways = {name: lambda name=name: called.append(name) for name in "ab"}
    assert set(least_seconds(ways)) == {"a", "b"}
    assert "".join(called[:4]) == "abab"
    assert len(called) <= 2 * (1 + ROUNDS)


def test_a_way_whose_times_differ_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([9.0, 3.0, 8.0, 2.0, 7.0, 1.0, 1.01, 0.5])
    monkeypatch.setattr(trials, "_seconds", lambda run: next(taken))
    assert least_seconds({"a": lambda: None}) == {"a": 1.0}


def test_a_record_holds_for_one_set_of_instructions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "cc")
    times_of(TrialRecord.open())
    monkeypatch.setenv("CC", "cc -mno-avx512f")
    assert times_of(TrialRecord.open())[1]
