"""Makes the trials of kernels once in a process of the tests, and once for all servers that it forks.

The times of a trial that other programs disturb are not kept. The next start of an engine repeats the trial.
Tests that run beside each other disturb every trial.
"""

from pathlib import Path

from engine.device.trials import TrialRecord

_open = TrialRecord.open
_records: dict[Path, TrialRecord] = {}


def open_once() -> TrialRecord:
    record = _open()
    return record if record._path is None else _records.setdefault(record._path, record)


TrialRecord.open = open_once  # type: ignore[method-assign]
