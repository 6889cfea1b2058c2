"""A file to which one process adds receipts. Each has the hash of the line before it.

A folder has `receipts-1.jsonl` for the first process that writes there, `receipts-2.jsonl` for the second,
and so on. A process that starts again goes on with the chain that it finds. Beside the file is its head, the
number and the hash of the last receipt, so that a removed end is noticed.
"""

import fcntl
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from proxy.storage.receipts.form import FormError, Sign, digest, read_line, signed_line, unsigned
from proxy.storage.receipts.keys import write_whole

logger = logging.getLogger("weir.receipts")

_MODE = 0o600
_BLOCK = 64 * 1024
"""Bytes that are read at a time, from the file's end."""


class Head(NamedTuple):
    """The last receipt of a chain."""

    chain: str
    number: int
    hash: str
    """The SHA-256 of its line, without the line's end."""


def head_file(file: Path) -> Path:
    return file.with_suffix(".head")


class Chain:
    """One file, from the moment it is opened. No other process writes to it meanwhile."""

    def __init__(self, folder: Path, sign: Sign) -> None:
        """Take the first file of the folder that nobody writes to. Raises `OSError`."""
        self._sign = sign
        self._file = -1
        for number in count(1):
            self.path = folder / f"receipts-{number}.jsonl"
            self._lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, _MODE)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._lock)
                continue
            except BaseException:
                os.close(self._lock)
                raise
            break
        self._torn: dict[str, Any] | None = None
        """The torn line at which the next receipt is written."""
        self._size = 0
        try:
            self._open()
            self.head = self._found_head()
        except BaseException:
            self.close()
            raise

    def append(self, receipts: Sequence[dict[str, Any]]) -> None:
        """Add the receipts, with one signature. Raises `OSError`: then none was added."""
        if not self._is_current():
            self._open()  # somebody has renamed the file, and this chain goes on in a new one
        lines, head, torn = [], self.head, self._torn
        for left, receipt in zip(reversed(range(len(receipts))), receipts, strict=True):
            place: dict[str, Any] = {"chain": head.chain, "number": head.number + 1, "previous": head.hash}
            if torn is not None:
                place["torn"], torn = torn, None
            sign = unsigned if left else self._sign  # a signature costs more than all the rest
            line = signed_line("receipt", {**receipt, **place}, sign)
            head = Head(head.chain, head.number + 1, digest(line))
            lines.append(line + b"\n")
        begin = b"\n" if self._torn is not None and self._size else b""
        self._write(begin + b"".join(lines))
        self.head, self._torn = head, None

    def sync(self) -> None:
        """Have the receipts on the disk, and write beside the file where it ends. Raises `OSError`."""
        os.fdatasync(self._file)
        file = head_file(self.path)
        new = file.with_suffix(".head.new")
        write_whole(new, signed_line("head", self.head._asdict(), self._sign) + b"\n")
        new.replace(file)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        os.close(self._lock)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        opened = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, _MODE)
        if self._file >= 0:
            os.close(self._file)
        self._file = opened
        self._size = os.fstat(opened).st_size

    def _found_head(self) -> Head:
        """The end of the chain that the file has, or its head if the file has less. A new chain if there is
        none."""
        line, torn = self._last_lines()
        if torn:
            logger.error(
                "%s ends in a torn line of %d bytes: the next receipt names it", self.path, len(torn)
            )
            self._torn = {"bytes": len(torn), "sha256": digest(torn)}
        last, known = None, self._known_head()
        if line:
            try:
                read, _ = read_line("receipt", line)
                last = Head(read["chain"], read["number"], digest(line))
            except (FormError, KeyError) as error:
                logger.error("the last line of %s is no receipt: %s", self.path, error)
        if known is not None and (last is None or (known.chain, last.number) == (last.chain, known.number)):
            return known
        if known is not None and last is not None and known.number > last.number:
            logger.error(
                "%s ends at receipt %d, and its head names %d: the next receipt follows the head",
                *(self.path, last.number, known.number),
            )
            return known
        return last or Head(os.urandom(8).hex(), 0, "")

    def _known_head(self) -> Head | None:
        try:
            content = head_file(self.path).read_bytes()
        except FileNotFoundError:
            return None
        try:
            return Head(**read_line("head", content.removesuffix(b"\n"))[0])
        except (FormError, TypeError) as error:
            logger.error("%s cannot be read: %s", head_file(self.path), error)
            return None

    def _last_lines(self) -> tuple[bytes, bytes]:
        """The last whole line, without its end, and what follows it."""
        found, place = b"", self._size
        while place and found.count(b"\n") < 2:
            length = min(_BLOCK, place)
            place -= length
            found = os.pread(self._file, length, place) + found
        whole, end, torn = found.rpartition(b"\n")
        if not end:
            return b"", found
        return whole.rpartition(b"\n")[2], torn
