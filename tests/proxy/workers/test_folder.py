"""The folder that workers share."""

import os
import tempfile
from pathlib import Path

import pytest

from proxy.workers.folder import PREFIX, own_folder


def test_a_folder_is_removed_at_the_end_and_by_the_next_process_if_that_did_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / "state.sqlite").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path)
    os.mkfifo(tmp_path / f"{PREFIX}pipe")
    (tmp_path / "another").mkdir()
    with own_folder() as used:
        assert used.stat().st_mode & 0o777 == 0o700
        (used / "state.sqlite").touch()
        with own_folder() as own:
            assert {used, own} == {*tmp_path.glob(f"{PREFIX}weir-*")}
        assert (used / "state.sqlite").exists()
    assert {file.name for file in tmp_path.iterdir()} == {f"{PREFIX}link", f"{PREFIX}pipe", "another"}
