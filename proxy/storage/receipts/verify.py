"""Verifies files of receipts: the form of each line, its signature, and its place in the chain."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from proxy.storage.receipts.chain import Head, head_file
from proxy.storage.receipts.form import FormError, IsSigned, digest, read_line


class ReceiptFault(Exception):
    """Receipts are not as they were written."""

    def __init__(self, file: Path, line: int | None, reason: str) -> None:
        """`line`: its number, from 1; None: the fault is the file's."""
        super().__init__(f"{file}{'' if line is None else f', line {line}'}: {reason}")
        self.line = line


class Verified(NamedTuple):
    """Receipts without a fault."""

    num_receipts: int
    last: Head | None
    """None: there is no receipt."""
    num_torn: int
    """Torn lines that a later receipt names."""
    has_head: bool
    """Whether the last file has a head, so that its end is known."""


def verify(
    files: Sequence[Path], is_signed: IsSigned, *, after: str = "", anchors: Iterable[str] = ()
) -> Verified:
    """Verify one chain, whose receipts are in these files, the oldest first.

    `after`: the hash of the receipt before the first; empty: the chain begins with the first. `anchors`:
    hashes of receipts that must be there. Raises the first `ReceiptFault`, and `OSError`.
    """
    # The head first: a server that writes meanwhile adds receipts, and then writes their head.
    head = _head_of(files[-1], is_signed) if files else None
    reader, missing = _Reader(is_signed, after, head), set(anchors)
    for file in files:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                reader.read(file, number, line)
                if reader.last is not None:
                    missing.discard(reader.last.hash)
    reader.end(files[-1])
    if missing:
        raise ReceiptFault(files[-1], None, f"no receipt has the hash {min(missing)}")
    return Verified(reader.num_receipts, reader.last, reader.num_torn, head is not None)


class _Reader:
    def __init__(self, is_signed: IsSigned, after: str, head: Head | None) -> None:
        self._is_signed = is_signed
        self._after = after
        self._head = head
        self._invalid: tuple[bytes, ReceiptFault] | None = None
        """A line that is no receipt, and why. The next receipt may name it."""
        self.last: Head | None = None
        self._is_end_signed = True
        self.num_receipts = self.num_torn = 0

    def read(self, file: Path, number: int, line: bytes) -> None:
        bare = line.removesuffix(b"\n")
        try:
            if bare == line:
                raise FormError("is torn: it has no end")
            receipt, self._is_end_signed = read_line("receipt", bare, self._is_signed)
        except FormError as error:
            self._check_all_valid()
            self._invalid = bare, ReceiptFault(file, number, f"the line {error}")
            return
        if (torn := receipt.get("torn")) is None:
            self._check_all_valid()
        elif self._invalid is None or torn != _torn(self._invalid[0]):
            raise ReceiptFault(file, number, "the torn line that it names is not before it")
        else:
            self._invalid = None
            self.num_torn += 1
        if (reason := self._misplaced(receipt)) is not None:
            raise ReceiptFault(file, number, reason)
        self.last = Head(receipt["chain"], receipt["number"], digest(bare))
        self.num_receipts += 1
        if self._head is not None and self._head[:2] == self.last[:2] and self._head != self.last:
            raise ReceiptFault(file, number, "its head names another receipt here")

    def end(self, file: Path) -> None:
        """The head is written after the receipts, so it may name an earlier one than the last."""
        self._check_all_valid()
        num_last = 0 if self.last is None else self.last.number
        if self._head is not None and self.last is not None and self._head.chain != self.last.chain:
            raise ReceiptFault(
                file, None, f"its head is of the chain {self._head.chain}, and the receipts are not"
            )
        if self._head is not None and self._head.number > num_last:
            reason = f"{_numbers(num_last + 1, self._head.number)} missing at the end: its head names them"
            raise ReceiptFault(file, None, reason)
        if not self._is_end_signed:
            raise ReceiptFault(file, None, f"receipt {num_last} is the last, and no signature covers it")

    def _check_all_valid(self) -> None:
        if self._invalid is not None:
            raise self._invalid[1]

    def _misplaced(self, receipt: dict[str, Any]) -> str | None:
        """Why the receipt does not follow the last one."""
        number, chain, last = receipt.get("number"), receipt.get("chain"), self.last
        if type(number) is not int or not isinstance(chain, str):
            return "the receipt has no place in a chain"
        if last is None:
            if receipt.get("previous") == self._after and (number == 1) == (not self._after):
                return None
            if self._after:
                return "the first receipt does not follow the one with that hash"
            return (
                f"the first receipt is number {number}: 1 to {number - 1} are missing, or in an earlier file"
            )
        if chain != last.chain:
            return (
                f"the receipt is of the chain {chain}, and those before it of {last.chain}. "
                "Each process that serves has a chain of its own: verify each alone"
            )
        if number > last.number + 1:
            return f"{_numbers(last.number + 1, number - 1)} missing"
        if number <= last.number:
            return f"receipt {number} comes after receipt {last.number}"
        if receipt.get("previous") != last.hash:
            return f"receipt {number} follows another receipt {last.number} than the one before it"
        return None


def _head_of(file: Path, is_signed: IsSigned) -> Head | None:
    path = head_file(file)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        head, has_signature = read_line("head", content.removesuffix(b"\n"), is_signed)
        if not has_signature:
            raise FormError("has no signature")
        return Head(**head)
    except (FormError, TypeError) as error:
        raise ReceiptFault(path, 1, f"the line {error}") from None


def _torn(line: bytes) -> dict[str, Any]:
    """A torn line, as the next receipt names it."""
    return {"bytes": len(line), "sha256": digest(line)}


def _numbers(first: int, last: int) -> str:
    return f"receipt {first} is" if first == last else f"receipts {first} to {last} are"
