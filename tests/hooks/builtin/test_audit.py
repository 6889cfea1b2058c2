"""The audit: whole records, wherever they come from and whatever becomes of the disk."""

import errno
import json
import os
import re
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from hooks import Decision, emit, redact, suppress
from hooks.builtin.audit import FIELDS, Audit
from hooks.builtin.audit_log import journal, sinks
from hooks.builtin.audit_log.sinks import LineFile
from hooks.builtin.phrases import Phrases
from hooks.decisions.failure import HookError
from tests.helpers import Script, guard_all, make_deltas, make_request, opened, pipeline_of, text_of, until
from tests.processes import WAIT_LIMIT
from tests.weir import FORK_SERVER


@pytest.fixture(autouse=True)
def mode() -> str:
    """In the service's process; tests/serve has it in workers."""
    return "in-process"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for the last record, however slow this machine is."""
    monkeypatch.setattr(journal, "CLOSING", 600.0)


def lines_of(*paths: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def rows_of(path: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        found = [dict(row) for row in connection.execute("SELECT * FROM decisions ORDER BY rowid")]
    connection.close()
    return found


def decision(number: int = 0, **fields: Any) -> Decision:
    given = {"request_id": f"r{number}", "user": None, "model": "m", "endpoint": "chat", "hook": "h"}
    return Decision(**{**given, "action": "redact", **fields})


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_a_record_says_who_what_why_and_where_and_not_the_text(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "audit"
    audit = Audit(path, format=kind)
    pipeline = pipeline_of(Phrases(["hunter2"]), audit)
    request = make_request(user="ann")
    assert text_of(await guard_all(pipeline, make_deltas(["say hun", "ter2!"]), request)) == "say [phrase]!"
    await pipeline.aclose()
    (record,) = lines_of(path) if kind == "jsonl" else rows_of(path)
    assert "hunter2" not in str(record)
    assert record.pop("held_seconds") > 0
    assert record.pop("time").endswith("+00:00")
    assert record.pop("text", None) is None
    assert {record.pop(name, None) for name in ("num_judged", "num_unjudged", "max_unjudged")} == {None}
    assert record == {
        "request_id": "r1",
        "user": "ann",
        "model": "m",
        "endpoint": "chat",
        "hook": "hook0",
        "action": "redact",
        "reason": "phrase",
        "mode": "enforce",
        "output_index": 0,
        "channel": "content",
        "tool_name": None,
        "offset": 4,
        "num_withheld": 7,
    }
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_the_withheld_text_is_kept_if_asked_for(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "audit"
    audit = Audit(path, format=kind, include_text=True)
    texts = ["hunter2 é😀\n\"'", "half \ud83d a pair"]
    for text in texts:
        audit.on_decision(decision(withheld=text, num_withheld=len(text)))
    audit.close()
    kept = [record["text"] for record in (lines_of(path) if kind == "jsonl" else rows_of(path))]
    assert kept[0] == texts[0]
    assert kept[1] in (texts[1], r"half \ud83d a pair")


def test_a_tools_name_is_kept_if_the_caller_gave_it_or_texts_are(tmp_path: Path) -> None:
    for include_text, is_own, kept in ((False, True, None), (False, False, "send"), (True, True, "send")):
        path = tmp_path / f"{include_text}{is_own}.jsonl"
        audit = Audit(path, include_text=include_text)
        audit.on_decision(decision(tool_name="send", is_own_tool=is_own))
        audit.close()
        assert [record["tool_name"] for record in lines_of(path)] == [kept]


def test_only_long_holds_are_recorded(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl", min_held=2.0)
    audit.on_decision(decision(0, action="hold", held_seconds=1.9))
    audit.on_decision(decision(1, action="hold", held_seconds=2.0))
    audit.on_decision(decision(2, action="hold", held_seconds=0.1, num_withheld=3, reason="aborted"))
    audit.close()
    assert [record["request_id"] for record in lines_of(tmp_path / "audit.jsonl")] == ["r1", "r2"]


def test_what_callers_name_is_kept_short(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    audit.on_decision(decision(user="u" * 10_000, tool_name="t" * 10_000))
    audit.close()
    (record,) = lines_of(tmp_path / "audit.jsonl")
    assert (len(record["user"]), len(record["tool_name"])) == (256, 256)


def test_a_full_file_is_turned_over_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, max_size=1000, keep=2)
    for i in range(40):
        audit.on_decision(decision(i))
        audit.close()
    files = [tmp_path / f"audit.jsonl{end}" for end in (".2", ".1", "")]
    assert sorted(os.listdir(tmp_path)) == [
        "audit.jsonl",
        "audit.jsonl.1",
        "audit.jsonl.2",
        "audit.jsonl.lock",
    ]
    kept = [record["request_id"] for record in lines_of(*files)]
    assert kept == [f"r{i}" for i in range(40 - len(kept), 40)]
    assert all(500 < file.stat().st_size <= 1000 for file in files[:2])
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_a_file_that_somebody_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)
    audit.on_decision(decision(0))
    audit.close()
    path.rename(tmp_path / "moved")
    audit.on_decision(decision(1))
    audit.close()
    assert [r["request_id"] for r in lines_of(tmp_path / "moved", path)] == ["r0", "r1"]


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"request_id": "r')
    audit = Audit(path)
    audit.on_decision(decision(1))
    audit.close()
    torn, whole = path.read_text().splitlines()
    assert torn == '{"request_id": "r'
    assert json.loads(whole)["request_id"] == "r1"


def _write(path: Path, kind: Any, first: int, count: int) -> None:
    sizes: dict[str, Any] = {"max_size": 4000, "keep": 1000} if kind == "jsonl" else {}
    audit = Audit(path, format=kind, **sizes)
    for i in range(first, first + count):
        audit.on_decision(decision(i))
    audit.close()


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_several_processes_write_whole_records_and_lose_none(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "audit"
    writers = [
        FORK_SERVER.Process(target=_write, args=(path, kind, 1000 * i, 300), daemon=True) for i in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(WAIT_LIMIT)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    if kind == "sqlite":
        records = rows_of(path)
    else:
        files = [path, *(file for file in tmp_path.iterdir() if file.suffix[1:].isdecimal())]
        assert len(files) > 30
        records = lines_of(*files)
    assert sorted(r["request_id"] for r in records) == sorted(
        f"r{1000 * i + j}" for i in range(3) for j in range(300)
    )


def _make_many(folder: Path, barrier: Any) -> None:
    try:
        for i in range(20):
            barrier.wait()
            Audit(folder / f"audit{i}", format="sqlite").close()
    except Exception:
        barrier.abort()  # so that the others do not wait for this one
        raise


def test_several_processes_make_the_same_database_at_once(tmp_path: Path) -> None:
    """SQLite refuses at once where two connections ask for the write-ahead mode together."""
    barrier = FORK_SERVER.Barrier(4, timeout=WAIT_LIMIT)
    makers = [FORK_SERVER.Process(target=_make_many, args=(tmp_path, barrier)) for _ in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(WAIT_LIMIT)
    assert [maker.exitcode for maker in makers] == [0, 0, 0, 0]


class Disk:
    """Stands in for `os.write`: as much as there is room for."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.tried = threading.Event()

    def write(self, file: int, data: bytes) -> int:
        if self.room == 0:
            self.tried.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = os.write(file, data[: self.room])
        self.room = self.room and self.room - written
        return written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()

    class Os:
        def __getattr__(self, name: str) -> Any:
            return disk.write if name == "write" else getattr(os, name)

    monkeypatch.setattr(sinks, "os", Os())
    monkeypatch.setattr(journal, "RETRY", 0.01)
    return disk


async def test_while_the_disk_is_full_requests_fail_closed(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    pipeline = pipeline_of(
        Script(lambda c: suppress("no b") if "b" in c.text_diff else emit(c.pending)), audit
    )
    assert text_of(await guard_all(pipeline, make_deltas(["a", "b"]))) == "a"
    audit.close()
    disk.room = 30  # of a line
    await guard_all(pipeline, make_deltas(["a", "b"]))
    await until(lambda: "No space left on device" in caplog.text)
    with pytest.raises(HookError):
        await guard_all(pipeline, make_deltas(["a"]))
    assert "no b" not in caplog.text
    disk.room = None
    audit.close()
    assert text_of(await guard_all(pipeline, make_deltas(["a"]))) == "a"
    assert "can be written again" in caplog.text
    assert [(r["hook"], r["action"]) for r in lines_of(tmp_path / "audit.jsonl")] == [
        ("hook0", "suppress"),
        ("hook0", "suppress"),
        ("hook1", "error"),
    ]


async def test_one_that_is_not_required_counts_what_it_loses(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LIMIT", 3)
    audit = Audit(tmp_path / "audit.jsonl", required=False)
    disk.room = 0
    pipeline = pipeline_of(Script(lambda c: redact([(0, 1, "x")]) if c.text_diff else emit("")), audit)
    assert text_of(await guard_all(pipeline, make_deltas("abcde"))) == "xxxxx"
    assert disk.tried.wait(300)
    disk.room = None
    audit.close()
    records = lines_of(tmp_path / "audit.jsonl")
    assert [(r["action"], r["reason"]) for r in records] == [*[("redact", None)] * 3, ("lost", "2 records")]


async def test_one_that_is_required_lets_nothing_out_that_it_has_no_room_for(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LIMIT", 3)
    audit = Audit(tmp_path / "audit.jsonl")
    disk.room = 0
    pipeline = pipeline_of(Script(lambda c: redact([(0, 1, "x")])), audit)
    released = []
    async with opened(pipeline, make_request()) as guard:
        with pytest.raises(HookError):
            for delta in make_deltas("abcde"):
                released += (await guard.feed(delta)).released
        await guard.close()
    assert len(released) <= 3


def test_what_cannot_be_written_at_the_end_is_told(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    disk.room = 0
    audit.on_decision(decision())
    audit.close()
    assert "1 records could not be written" in caplog.text


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_one_that_cannot_be_written_keeps_the_server_from_starting(tmp_path: Path, kind: Any) -> None:
    with pytest.raises((OSError, sqlite3.Error)):
        Audit(tmp_path / "nowhere" / "audit", format=kind)
    (tmp_path / "audit").write_text("no database, and long enough not to be taken for an empty one " * 20)
    if kind == "sqlite":
        with pytest.raises(sqlite3.Error):
            Audit(tmp_path / "audit", format=kind)


def test_a_table_of_another_making_keeps_it_from_starting(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "audit") as connection:
        connection.execute("CREATE TABLE decisions (time, hook)")
    connection.close()
    with pytest.raises(sqlite3.Error):
        Audit(tmp_path / "audit", format="sqlite")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"format": "csv"}, "format: Input should be 'jsonl' or 'sqlite'"),
        ({"format": "sqlite", "keep": 3}, "max_size and keep are of files of lines"),
        ({"max_size": 0}, "max_size: Input should be greater than or equal to 1"),
        ({"keep": -1}, "keep: Input should be greater than or equal to 0"),
        ({"min_held": -1}, "min_held: Input should be greater than or equal to 0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(tmp_path: Path, args: Any, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        Audit(tmp_path / "audit", **args)


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_what_cannot_be_written_is_named_as_it_was_given(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "nowhere" / "audit"
    with pytest.raises(OSError, match=re.escape(f"path: {path} cannot be written: No such file")):
        Audit(path, format=kind)


def test_old_files_need_not_be_kept(tmp_path: Path) -> None:
    lines = LineFile(tmp_path / "lines", max_size=10, keep=0)
    for i in range(3):
        assert lines.write([{"n": i}]) == 1
    lines.close()
    assert (tmp_path / "lines").read_text() == '{"n": 2}\n'
    assert sorted(os.listdir(tmp_path)) == ["lines", "lines.lock"]


def test_every_field_is_there_in_this_order(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl", include_text=True)
    audit.on_decision(decision(action="judged"))
    audit.close()
    assert tuple(lines_of(tmp_path / "audit.jsonl")[0]) == FIELDS


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_a_record_says_how_much_of_a_stream_was_judged(tmp_path: Path, kind: Any) -> None:
    audit = Audit(tmp_path / "audit", format=kind)
    audit.on_decision(decision(action="judged", num_judged=9, num_unjudged=2, max_unjudged=4))
    audit.close()
    (record,) = lines_of(tmp_path / "audit") if kind == "jsonl" else rows_of(tmp_path / "audit")
    assert [record[name] for name in ("num_judged", "num_unjudged", "max_unjudged")] == [9, 2, 4]


def test_a_table_of_an_earlier_version_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    earlier = [name for name in FIELDS if not name.endswith("judged")]
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE decisions ({', '.join(earlier)})")
        connection.execute("INSERT INTO decisions (request_id) VALUES ('r0')")
    connection.close()
    audit = Audit(path, format="sqlite")
    audit.on_decision(decision(1, action="judged", num_judged=9))
    audit.close()
    assert [(row["request_id"], row["num_judged"]) for row in rows_of(path)] == [("r0", None), ("r1", 9)]
