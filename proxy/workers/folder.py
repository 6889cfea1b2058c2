"""The folder that workers share: for metrics, and for the state if no other place is named."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "weir-workers-"


@contextmanager
def own_folder() -> Iterator[Path]:
    """A new folder, which only this user reads. It is removed at the end.

    A process that is killed leaves its folder behind, with texts of callers. The next process removes it.
    """
    _remove_abandoned()
    new = Path(tempfile.mkdtemp(prefix="weir-"))
    lock = os.open(new, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel unlocks it when the process is gone
    folder = new.rename(new.with_name(PREFIX + new.name))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # it is another user's, or somebody has locked or removed it
            _remove_unlocked(folder)


def _remove_unlocked(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)  # a pipe would block
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_uid == os.geteuid():
            shutil.rmtree(folder)
    finally:
        os.close(lock)
