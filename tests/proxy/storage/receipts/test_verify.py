"""Whatever is changed in a file of receipts is found."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.storage.receipts.chain import Chain, head_file
from proxy.storage.receipts.form import IsSigned, canonical, digest
from proxy.storage.receipts.keys import KeyFault, SigningKey, public_key, signed_by, signing_key
from proxy.storage.receipts.verify import ReceiptFault, Verified, verify

Lines = list[bytes]
WRITES = (1, 3, 2, 1)
"""Receipts that are written together. Only the last of each has a signature."""


class Written:
    """Seven receipts of one server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = signing_key(None, folder)
        self.is_signed: IsSigned = signed_by([self.key.public])
        chain = Chain(folder, self.key.sign)
        number = 0
        for size in WRITES:
            receipts = [receipt(number + i) for i in range(size)]
            number += size
            chain.append(receipts)
        chain.sync()
        chain.close()
        self.file = chain.path
        self.whole = self.file.read_bytes()

    def verify(self, **options: Any) -> Verified:
        return verify([self.file], self.is_signed, **options)


def receipt(number: int) -> dict[str, Any]:
    channel = {
        "channel": "content",
        "seen": 90 + number,
        "written": 7,
        "withheld": 14,
        "released": 83 + number,
    }
    outputs = [{"index": 0, "finish_reason": "stop", "channels": [channel]}]
    return {"time": "2026-01-01T00:00:00.000Z", "request_id": f"r{number}", "user": "zoé", "outputs": outputs}


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def test_receipts_are_as_they_were_written(written: Written) -> None:
    found = written.verify()
    assert (found.num_receipts, found.num_torn, found.has_head) == (7, 0, True)
    assert found.last is not None
    assert found.last.number == 7
    assert found.last.hash == digest(written.whole.splitlines()[-1])


def bit_flipped(lines: Lines, draw: random.Random) -> bytes:
    whole = bytearray(b"".join(lines))
    place = draw.randrange(len(whole))
    whole[place] ^= 1 << draw.randrange(8)
    return bytes(whole)


def deleted(lines: Lines, draw: random.Random) -> bytes:
    first = draw.randrange(len(lines))
    return b"".join(lines[:first] + lines[first + draw.randint(1, 3) :])


def repeated(lines: Lines, draw: random.Random) -> bytes:
    lines.insert(draw.randint(0, len(lines)), draw.choice(lines))
    return b"".join(lines)


def reordered(lines: Lines, draw: random.Random) -> bytes:
    first, second = draw.sample(range(len(lines)), 2)
    lines[first], lines[second] = lines[second], lines[first]
    return b"".join(lines)


def cut(lines: Lines, draw: random.Random) -> bytes:
    whole = b"".join(lines)
    return whole[: draw.randrange(len(whole))]


def spliced(lines: Lines, draw: random.Random) -> bytes:
    whole = b"".join(lines)
    first, last = sorted(draw.sample(range(len(whole) + 1), 2))
    return whole[:first] + draw.randbytes(draw.randint(0, 4)) + whole[last:]


def changed(value: Any, draw: random.Random) -> Any:
    """Another value in one place of a receipt."""
    if isinstance(value, dict) and value:
        name = draw.choice(sorted(value))
        if draw.random() < 0.1:
            return {one: value[one] for one in value if one != name}
        return {**value, name: changed(value[name], draw)}
    if isinstance(value, list) and value:
        place = draw.randrange(len(value))
        return [*value[:place], changed(value[place], draw), *value[place + 1 :]]
    return value + draw.randint(1, 9) if isinstance(value, int) else f"{value}x"


def rewritten(lines: Lines, draw: random.Random) -> bytes:
    """A changed receipt in the canonical form, with the signature that it had."""
    place = draw.randrange(len(lines))
    read = orjson.loads(lines[place])
    lines[place] = canonical({**read, "receipt": changed(read["receipt"], draw)}) + b"\n"
    return b"".join(lines)


def chained_again(lines: Lines, draw: random.Random) -> bytes:
    """A changed or a removed receipt. Later ones have new numbers and hashes, and old signatures, or none."""
    place = draw.randrange(len(lines))
    read = [orjson.loads(line) for line in lines]
    if draw.random() < 0.5:
        read[place]["receipt"] = changed(read[place]["receipt"], draw)
    else:
        del read[place]
    keeps = draw.random() < 0.7
    previous, number = "", 1
    made = []
    for one in read:
        place_of = {"number": number, "previous": previous}
        signature = one["signature"] if keeps else ""
        line = canonical({"receipt": {**one["receipt"], **place_of}, "signature": signature})
        previous, number = digest(line), number + 1
        made.append(line + b"\n")
    return b"".join(made)


CHANGES: list[Callable[[Lines, random.Random], bytes]] = [
    *(bit_flipped, deleted, repeated, reordered, cut, spliced, rewritten, chained_again)
]


@pytest.mark.parametrize("number", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_drawn_change_is_found(written: Written, number: int) -> None:
    draw = random.Random(7)
    num_made = 0
    while num_made < number:
        content = draw.choice(CHANGES)(written.whole.splitlines(keepends=True), draw)
        if content == written.whole:
            continue
        num_made += 1
        written.file.write_bytes(content)
        with pytest.raises(ReceiptFault):
            written.verify()


def test_a_fault_names_its_line_and_what_is_wrong(written: Written) -> None:
    lines = written.whole.splitlines(keepends=True)
    for content, line, reason in (
        ([*lines[:2], *lines[4:]], 3, "receipts 3 to 4 are missing"),
        ([*lines[:3], lines[2], *lines[3:]], 4, "receipt 3 comes after receipt 3"),
        ([lines[1]], 1, "the first receipt is number 2"),
        ([*lines[:3], b"\n", *lines[3:]], 4, "the line is not JSON"),
        ([lines[0].replace(b'"r0"', b'"r9"'), *lines[1:]], 1, "a signature that is not the key's"),
        ([lines[0], lines[1].replace(b'"r1"', b'"r9"'), *lines[2:]], 3, "follows another receipt 2"),
        ([lines[0].replace(b":", b": ", 1), *lines[1:]], 1, "not written in the canonical form"),
        (lines[:4], None, "receipts 5 to 7 are missing at the end"),
    ):
        written.file.write_bytes(b"".join(content))
        with pytest.raises(ReceiptFault, match=reason) as found:
            written.verify()
        assert found.value.line == line


def test_a_removed_end_is_found_by_an_anchor_where_the_head_is_gone(written: Written) -> None:
    head_file(written.file).unlink()
    lines = written.whole.splitlines(keepends=True)
    anchor = digest(lines[-1].removesuffix(b"\n"))
    assert not written.verify(anchors=[anchor]).has_head
    written.file.write_bytes(b"".join(lines[:-1]))
    assert written.verify().num_receipts == 6
    with pytest.raises(ReceiptFault, match="no receipt has the hash"):
        written.verify(anchors=[anchor])


def test_an_end_without_a_signature_is_a_fault(written: Written) -> None:
    head_file(written.file).unlink()
    written.file.write_bytes(b"".join(written.whole.splitlines(keepends=True)[:3]))
    with pytest.raises(ReceiptFault, match="receipt 3 is the last, and no signature covers it"):
        written.verify()


def test_another_key_has_not_signed(written: Written, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ReceiptFault, match="line 1: the line has a signature that is not the key's"):
        verify([written.file], signed_by([signing_key(None, other).public]))


def reopened(written: Written) -> Chain:
    return Chain(written.folder, written.key.sign)


def test_a_chain_goes_on_after_a_torn_line_that_the_next_receipt_names(
    written: Written, caplog: pytest.LogCaptureFixture
) -> None:
    lines = written.whole.splitlines(keepends=True)
    with written.file.open("ab") as file:
        file.write(lines[-1][:40])
    with pytest.raises(ReceiptFault, match="line 8: the line is torn"):
        written.verify()
    chain = reopened(written)
    assert "ends in a torn line of 40 bytes" in caplog.text
    chain.append([receipt(8), receipt(9)])
    chain.sync()
    chain.close()
    found = written.verify()
    assert (found.num_receipts, found.num_torn) == (9, 1)
    # A torn line is covered as receipts are.
    content = written.file.read_bytes().splitlines(keepends=True)
    written.file.write_bytes(b"".join([*content[:7], content[7][1:], *content[8:]]))
    with pytest.raises(ReceiptFault, match="line 9: the torn line that it names is not before it"):
        written.verify()
    written.file.write_bytes(b"".join([*content[:7], *content[8:]]))
    with pytest.raises(ReceiptFault, match="line 8: the torn line that it names is not before it"):
        written.verify()


def test_a_chain_goes_on_in_a_new_file_once_the_old_one_is_renamed(written: Written) -> None:
    chain, old = reopened(written), written.file.with_suffix(".old")
    written.file.rename(old)
    chain.append([receipt(8)])
    chain.sync()
    chain.close()
    assert verify([old, written.file], written.is_signed).num_receipts == 8
    before = digest(old.read_bytes().splitlines()[-1])
    assert written.verify(after=before).num_receipts == 1
    with pytest.raises(ReceiptFault, match="the first receipt is number 8"):
        written.verify()
    # So it does where it is renamed while no server runs.
    newer = written.file.with_suffix(".newer")
    written.file.rename(newer)
    chain = reopened(written)
    chain.append([receipt(9)])
    chain.close()
    assert verify([old, newer, written.file], written.is_signed).num_receipts == 9


def test_a_lost_end_stays_a_fault_when_the_chain_goes_on(
    written: Written, caplog: pytest.LogCaptureFixture
) -> None:
    written.file.write_bytes(b"".join(written.whole.splitlines(keepends=True)[:4]))
    chain = reopened(written)
    assert "ends at receipt 4, and its head names 7" in caplog.text
    chain.append([receipt(8)])
    chain.close()
    with pytest.raises(ReceiptFault, match="line 5: receipts 5 to 7 are missing"):
        written.verify()


def test_each_process_has_a_file_of_its_own(written: Written) -> None:
    first, second = reopened(written), reopened(written)
    assert [chain.path.name for chain in (first, second)] == ["receipts-1.jsonl", "receipts-2.jsonl"]
    first.close()
    third = reopened(written)
    assert third.path.name == "receipts-1.jsonl"
    second.close()
    third.close()


def test_a_write_that_a_full_disk_cuts_short_leaves_nothing(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    chain, write = reopened(written), os.write

    def fails(file: int, data: Any) -> int:
        monkeypatch.setattr("os.write", raises)
        return write(file, data[:10])

    def raises(file: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", fails)
    with pytest.raises(OSError, match="No space"):
        chain.append([receipt(8)])
    monkeypatch.setattr("os.write", write)
    assert written.file.read_bytes() == written.whole
    chain.append([receipt(8)])
    chain.close()
    assert written.verify().num_receipts == 8


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    first, second = signing_key(None, tmp_path), signing_key(None, tmp_path)
    assert first.fingerprint == second.fingerprint
    assert [one.name for one in tmp_path.iterdir()] == ["receipts.key"]
    assert (tmp_path / "receipts.key").stat().st_mode & 0o777 == 0o600
    assert first.revision_secret == second.revision_secret


@pytest.mark.parametrize("read", [lambda file: signing_key(file, file.parent), public_key])
def test_a_file_that_is_no_key_is_named(tmp_path: Path, read: Callable[[Path], SigningKey]) -> None:
    file = tmp_path / "key.pem"
    file.write_text("no key")
    with pytest.raises(KeyFault, match=r"key\.pem is no (private|public) key in PEM"):
        read(file)


@pytest.fixture
def of_two_processes(tmp_path: Path) -> tuple[Written, Path]:
    """Receipts of one process, and the file of another that served at the same time."""
    key = signing_key(None, tmp_path)
    running = Chain(tmp_path, key.sign)
    other = Chain(tmp_path, key.sign)
    other.append([receipt(number) for number in range(3)])
    other.sync()
    other.close()
    running.close()
    return Written(tmp_path), other.path


def test_a_chain_of_another_process_is_to_be_verified_alone(of_two_processes: tuple[Written, Path]) -> None:
    written, other = of_two_processes
    with pytest.raises(ReceiptFault, match=r"receipts-2\.jsonl, line 1: .* verify each alone") as found:
        verify([written.file, other], written.is_signed)
    assert found.value.line == 1
    assert verify([other], written.is_signed).num_receipts == 3


def test_the_head_of_another_chain_is_a_fault(of_two_processes: tuple[Written, Path]) -> None:
    written, other = of_two_processes
    head_file(written.file).write_bytes(head_file(other).read_bytes())
    with pytest.raises(ReceiptFault, match="its head is of the chain"):
        written.verify()
