"""The log: the form of a line, and its way to standard error.

A line may have fields in addition to its message (`log_fields`). A line that is written while a request is
served has the request's id.
"""

import contextlib
import json
import logging
import queue
import re
import sys
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, TextIO

import orjson

from proxy.settings.telemetry import LogFormat

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that is being served."""

MAX_LINES = 10_000
"""Lines that wait for standard error. Further ones are lost, and a line says how many."""
GATHER_SECONDS = 0.01
"""Seconds for which a line waits for others, to be written together."""
FLUSH_SECONDS = 0.5
"""Seconds for which the end of the process waits for the lines before it. A process that is late has one
second for all that is left."""

_PLAIN = re.compile(r"[!#-<>-~]+")
"""Printable ASCII without a space, a quotation mark, and an equals sign."""
_LIBRARIES = ("aiohttp", "filelock", "httpcore", "httpx", "openai", "opentelemetry", "urllib3")
"""They are verbose, and some of them log URLs, headers and texts of other servers."""


def log_fields(
    logger: logging.Logger, message: str, fields: Mapping[str, Any], level: int = logging.INFO
) -> None:
    """Log a line with fields: strings, numbers, booleans and None."""
    logger.log(level, message, extra={"fields": fields})


class TextFormatter(logging.Formatter):
    """Lines for people: time, level, process, logger and message, then `name=value` for each field."""

    def __init__(self, process: str = "") -> None:
        """`process`: is in each line, after its level."""
        super().__init__(f"%(asctime)s %(levelname)s {process and process + ' '}%(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = _fields_of(record).items()
        words = [f"{name}={_quoted(value)}" for name, value in fields if value is not None]
        return " ".join([super().formatMessage(record), *words])


_LINE_BREAKS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}
"""JSON may have these in a string as they are, but some programs end a line there."""


class JSONFormatter(logging.Formatter):
    """One JSON object a line: `time` (RFC 3339, UTC), `level`, `process`, `logger`, `message`, fields,
    `exception`."""

    converter = staticmethod(time.gmtime)

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            **({"process": self._process} if self._process else {}),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str).decode().translate(_LINE_BREAKS)
        except TypeError:  # half a surrogate pair, or a number that is too large
            return json.dumps(line, default=str)


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    request_id = REQUEST_ID.get()
    of_request = {} if request_id is None else {"request_id": request_id}
    return {**getattr(record, "fields", {}), **of_request}


def _quoted(value: Any) -> str:
    """The value as it is in a line of text. In quotes if its end would not be clear."""
    if type(value) is int or type(value) is float:
        return repr(value)
    text = str(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


class LineWriter(logging.Handler):
    """Writes each line on a thread of its own, so that a slow reader of the log holds no request up."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._num_lost = 0
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._lines.qsize() >= MAX_LINES:
            self._num_lost += 1
            return
        try:
            self._lines.put(self.format(record) + "\n")
        except Exception:  # noqa: BLE001 - logging's rule: a line that cannot be made stops nobody
            self.handleError(record)

    def flush(self) -> None:
        """Wait until the lines so far are written, for `FLUSH_SECONDS` at most."""
        written = threading.Event()
        self._lines.put(written)
        written.wait(FLUSH_SECONDS)

    def _write_all(self) -> None:
        while True:
            waiting = [self._lines.get()]
            # To wake this thread takes a quarter of a request. So the lines of a moment wake it once.
            time.sleep(GATHER_SECONDS)
            with contextlib.suppress(queue.Empty):
                while len(waiting) < MAX_LINES:
                    waiting.append(self._lines.get_nowait())
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                self._stream.write("".join(line for line in waiting if isinstance(line, str)))
                if self._num_lost:
                    lost, self._num_lost = self._num_lost, 0
                    self._stream.write(self._lost_line(lost))
                self._stream.flush()
            for line in waiting:
                if isinstance(line, threading.Event):
                    line.set()

    def _lost_line(self, number: int) -> str:
        text = "%d lines are lost: standard error is read too slowly"
        name = "weir.proxy"
        return self.format(logging.LogRecord(name, logging.WARNING, "", 0, text, (number,), None)) + "\n"


def log_to_stderr(level: str, form: LogFormat = "text", process: str = "") -> None:
    """`process`: is in each line."""
    handler = LineWriter(sys.stderr)
    handler.setFormatter(JSONFormatter(process) if form == "json" else TextFormatter(process))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)  # it warns of every attempt


def log_formatter() -> logging.Formatter | None:
    """The form of this process's lines, for a process that it starts. None: it writes lines in another
    way."""
    writers = [handler for handler in logging.getLogger().handlers if isinstance(handler, LineWriter)]
    return writers[0].formatter if writers else None


def flush_log() -> None:
    """Write the lines that wait, before the process ends without its usual end."""
    for handler in logging.getLogger().handlers:
        handler.flush()
