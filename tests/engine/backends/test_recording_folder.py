"""Writing lines to a recording's file: a line is there whole, or not at all."""

import asyncio
import os
from pathlib import Path

import pytest

from engine.backends import recording_folder
from engine.protocol import GenerationRequest


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


async def test_it_closes_where_a_write_ended_a_moment_before(tmp_path: Path) -> None:
    """The write's future is done, and the event loop has not called what was to be called then."""
    folder = recording_folder.RecordingFolder(tmp_path, max_bytes=10**6)
    folder.start()
    folder.open(GenerationRequest(request_id="r", model="m", endpoint="chat"))
    folder._flush()
    folder._thread.submit(lambda: None).result()  # the event loop does nothing else until all is written
    await asyncio.sleep(0)
    assert folder._writing is not None
    assert folder._writing.done()
    await folder.aclose()
    assert len(os.listdir(tmp_path)) == 1
