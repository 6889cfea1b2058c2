"""The watched process of `hooks.testing.fuzzing.task`: fuzzes one hook, and sends the report."""

import asyncio
import logging

from hooks.loading.loader import HookLoadError
from hooks.testing.fuzzing.fuzz import Fuzzer
from hooks.testing.fuzzing.task import FuzzReport, FuzzTask
from hooks.workers.messages import Connection
from hooks.workers.process import inherited
from hooks.workers.watched import Ended


def main() -> None:
    with asyncio.Runner() as runner:
        connection = runner.run(inherited())
        (task,) = runner.run(connection.receive())
        logging.getLogger("weir.hooks").setLevel(logging.CRITICAL)  # the fuzzer reports failures itself
        try:
            ended = Ended(_fuzz(task, connection, runner))
        except HookLoadError as error:
            ended = Ended(HookLoadError(str(error)))
        runner.run(_leave(connection, ended))


def _fuzz(task: FuzzTask, connection: Connection, runner: asyncio.Runner) -> FuzzReport:
    def tell(doing: str) -> None:
        connection.send(doing)
        connection.flush()

    fuzzer = Fuzzer(task.spec, secrets=task.secrets, options=task.options, tell=tell, beat=connection.beat)
    finding = fuzzer.run(task.seconds, task.seed, runner)
    if finding is None:
        return FuzzReport(fuzzer.num_texts)
    return FuzzReport(fuzzer.num_texts, str(finding), finding.seed)


async def _leave(connection: Connection, ended: Ended) -> None:
    connection.send(ended)
    await connection.close()


if __name__ == "__main__":
    main()
