"""The task of `weir hooks fuzz`, which runs in a watched process (`hooks.testing.fuzzing.process`)."""

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
    finding: str | None = None
    """The finding in words; None if nothing is wrong."""
    seed: int | None = None
    """The seed that draws the finding's text at once."""


async def fuzz(task: FuzzTask) -> FuzzReport:
    """Fuzz one hook. Raises `HookLoadError`, and `CheckError` if the hook ends the process or does not
    end."""
    report = await watched("hooks.testing.fuzzing.process", task)
    if isinstance(report, Exception):
        raise report
    assert isinstance(report, FuzzReport)
    return report
