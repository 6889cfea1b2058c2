"""`weir hooks fuzz`: what its process (`hooks.fuzz_process`) is told, and what it says at the end."""

from dataclasses import dataclass

from hooks.watched import Task, watched


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
    report = await watched("hooks.fuzz_process", task)
    if isinstance(report, Exception):
        raise report
    assert isinstance(report, FuzzReport)
    return report
