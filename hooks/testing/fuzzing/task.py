"""`weir hooks fuzz`: the task that its process (`hooks.testing.fuzzing.process`) gets, and the result."""

from dataclasses import dataclass

from hooks.workers.watched import Task, watched


@dataclass(frozen=True, kw_only=True)
class FuzzTask(Task):
    secrets: tuple[str, ...]
    seconds: float
    seed: int


@dataclass(frozen=True)
class FuzzReport:
    num_texts: int
    finding: str | None
    """In words; None: nothing was found."""


async def fuzz(task: FuzzTask) -> FuzzReport:
    """Raises `CheckError` if the hook ends the process or comes to no end, and `HookLoadError`."""
    report = await watched("hooks.testing.fuzzing.process", task)
    if isinstance(report, Exception):
        raise report
    assert isinstance(report, FuzzReport)
    return report
