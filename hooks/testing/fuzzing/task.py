"""The task of `weir hooks fuzz`, and the watched process that does it."""

import asyncio
import logging
from dataclasses import dataclass

from hooks.loading.loader import HookLoadError
from hooks.workers.messages import Connection
from hooks.workers.process import inherited
from hooks.workers.watched import Ended, Task, watched


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
    """Fuzz one hook. Raises `HookLoadError`, and `CheckError` if the hook ends the process or hangs."""
    report: FuzzReport = await watched("hooks.testing.fuzzing.task", task)
    return report


def main() -> None:
    """The watched process."""
    with asyncio.Runner() as runner:
        connection = runner.run(inherited())
        (task,) = runner.run(connection.receive())
        logging.getLogger("weir.hooks").setLevel(logging.CRITICAL)  # the fuzzer reports failures itself
        try:
            ended = Ended(_fuzz(task, connection, runner))
        except HookLoadError as error:
            ended = Ended(error=HookLoadError(str(error)))
        runner.run(_leave(connection, ended))


def _fuzz(task: FuzzTask, connection: Connection, runner: asyncio.Runner) -> FuzzReport:
    from hooks.testing.fuzzing.fuzz import Fuzzer  # needs Hypothesis

    def report(doing: str) -> None:
        connection.send(doing)
        connection.flush()

    fuzzer = Fuzzer(
        task.spec, secrets=task.secrets, options=task.options, report=report, beat=connection.beat
    )
    finding = fuzzer.run(task.seconds, task.seed, runner)
    if finding is None:
        return FuzzReport(fuzzer.num_texts)
    return FuzzReport(fuzzer.num_texts, str(finding), finding.seed)


async def _leave(connection: Connection, ended: Ended) -> None:
    connection.send(ended)
    await connection.close()
