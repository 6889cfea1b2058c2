"""Writing lines to a recording's file: a line is there whole, or not at all."""

import os
from pathlib import Path

import pytest

from engine.backends import recording_folder


def test_a_line_that_the_disk_does_not_take_whole_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk gets full: one write takes a part of the line, and the next write fails."""
    file = recording_folder.RecordingFile(tmp_path / "x.jsonl")
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
