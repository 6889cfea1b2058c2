"""The lines of the log have their form, and a slow reader of the log holds nobody up."""

import io
import logging
import os
import pickle
import sys
import threading
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.telemetry import logs
from proxy.telemetry.logs import REQUEST_ID, JSONFormatter, LineWriter, TextFormatter, log_fields
from tests.helpers import examples
from tests.processes import WAIT_LIMIT


def record(message: str, *args: Any, **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord("weir.proxy", logging.WARNING, "", 0, message, args, None)
    made.fields = fields
    return made


def test_a_json_line_has_the_message_its_fields_and_the_process() -> None:
    line = JSONFormatter("worker 2").format(record("%d hooks", 3, status=200, model="m"))
    read = orjson.loads(line)
    assert read.pop("time").endswith("Z")
    assert read == {
        "level": "warning",
        "process": "worker 2",
        "logger": "weir.proxy",
        "message": "3 hooks",
        "status": 200,
        "model": "m",
    }


def test_a_text_line_has_its_fields_behind_the_message() -> None:
    line = TextFormatter("worker 2").format(record("answered", status=200, model="a b", key=None))
    assert line.split(" ", 2)[2] == 'WARNING worker 2 weir.proxy: answered status=200 model="a b"'


@given(st.text(max_size=20))
@example("a\u2028b\u2029c\x85d")
@examples(50)
def test_any_field_stays_on_its_line(text: str) -> None:
    for formatter in (TextFormatter(), JSONFormatter()):
        assert len(formatter.format(record("answered", path=text)).splitlines()) == 1


def test_half_a_character_can_be_logged() -> None:
    assert "\\ud800" in JSONFormatter().format(record("a", path="\ud800"))


@pytest.mark.parametrize("formatter", [TextFormatter(), JSONFormatter()])
def test_lines_of_a_request_have_its_id(formatter: logging.Formatter) -> None:
    before = REQUEST_ID.set("req_1")
    try:
        assert "req_1" in formatter.format(record("a hook failed"))
    finally:
        REQUEST_ID.reset(before)
    assert "req_1" not in formatter.format(record("a hook failed"))


@pytest.mark.parametrize("formatter", [TextFormatter(), JSONFormatter()])
def test_an_exception_is_a_part_of_its_line(formatter: logging.Formatter) -> None:
    failed = record("internal error")
    try:
        raise ValueError("oops")
    except ValueError:
        failed.exc_info = sys.exc_info()
    assert "ValueError: oops" in formatter.format(failed)


def test_a_formatter_can_be_sent_to_another_process() -> None:
    for formatter in (TextFormatter("worker 1"), JSONFormatter("worker 1")):
        again = pickle.loads(pickle.dumps(formatter))
        assert "worker 1" in again.format(record("a"))


def written_by(stream: Any, *messages: str) -> LineWriter:
    writer = LineWriter(stream)
    writer.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.Logger("weir.test")
    logger.addHandler(writer)
    for message in messages:
        log_fields(logger, message, {})
    return writer


def test_lines_are_written_in_order() -> None:
    stream = io.StringIO()
    written_by(stream, *map(str, range(100))).flush()
    assert stream.getvalue().splitlines() == [*map(str, range(100))]


def test_a_log_that_nobody_reads_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are lost then, and once somebody reads again, it is said how many."""
    monkeypatch.setattr(logs, "MAX_LINES", 50)
    monkeypatch.setattr(logs, "FLUSH_SECONDS", 0.05)
    read, write = os.pipe()
    with open(read, encoding="ascii") as reader, open(write, "w", encoding="ascii", buffering=1) as stream:
        writer = written_by(stream, *["x" * 10_000] * 100)
        writer.flush()  # returns, though the pipe is full
        lines: list[str] = []
        done = threading.Thread(target=lambda: lines.extend(reader))
        done.start()
        monkeypatch.setattr(logs, "FLUSH_SECONDS", 30)
        writer.flush()
        stream.close()
        done.join(WAIT_LIMIT)
    told = [int(line.split()[0]) for line in lines if "lost" in line]
    assert sum(told) == 100 - sum(line.startswith("x") for line in lines) > 0
