"""The task of `weir hooks fuzz`, and the watched process that does it."""

import asyncio
import logging
from dataclasses import dataclass

from engine.streams.recording import Recording
from hooks.loading.alarm import interrupting
from hooks.loading.loader import HookLoadError, load_hook
from hooks.testing.play import Released, opened, play_once, started
from hooks.testing.run_modes import Places
from hooks.testing.streams import cut, scored
from hooks.testing.ways import Missed, Report, attempts_in, described, missed_ways
from hooks.workers.messages import Connection
from hooks.workers.process import inherited
from hooks.workers.watched import Ended, Task, watched


@dataclass(frozen=True, kw_only=True)
class FuzzTask(Task):
    secrets: tuple[str, ...]
    texts: tuple[str, ...] = ()
    """Texts to try. A secret is also hidden in many ways in the first of these texts that contains it."""
    seconds: float
    seed: int


@dataclass(frozen=True)
class FuzzReport:
    num_texts: int
    finding: str | None = None
    """The finding in words; None if nothing is wrong."""
    seed: int | None = None
    """With this seed, the fuzzer draws the finding's text first. None: the finding depends on no seed."""


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

    if missed := runner.run(_missed(task, report, connection)):
        return FuzzReport(0, "\n".join(map(str, missed)))
    fuzzer = Fuzzer(
        task.spec,
        secrets=task.secrets,
        texts=task.texts,
        options=task.options,
        report=report,
        beat=connection.beat,
    )
    finding = fuzzer.run(task.seconds, task.seed, runner)
    if finding is None:
        return FuzzReport(fuzzer.num_texts)
    return FuzzReport(fuzzer.num_texts, str(finding), finding.seed)


async def _missed(task: FuzzTask, report: Report, connection: Connection) -> list[Missed]:
    """The ways in which a secret leaves. Raises `HookLoadError`."""
    if not task.secrets:
        return []
    options = task.options
    hooks = [load_hook(task.spec, options.hook_load_timeout).wrapped(interrupting(options.hook_timeout))]
    async with started(hooks), opened(hooks, options=options) as opener:

        async def play(stream: Recording, places: Places) -> Released:
            report(f"it saw {described(stream, places)}")
            return await play_once(opener, cut(scored(stream, hooks), places), beat=connection.beat)

        return await missed_ways(play, attempts_in(task.secrets, task.texts), hooks)


async def _leave(connection: Connection, ended: Ended) -> None:
    connection.send(ended)
    await connection.close()
