"""A hook that runs in a watched process: whatever the hook does, this process continues.

The watched process says, in words, each thing that the hook is about to do, and at its end the result.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hooks.loading.async_call import GRACE
from hooks.loading.loader import HookSpec
from hooks.loading.options import PipelineOptions
from hooks.workers.messages import Alive
from hooks.workers.process import Child


class CheckError(RuntimeError):
    """The run did not come to its end. The message says what the hook did, and when."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The first message to the watched process."""

    spec: HookSpec
    options: PipelineOptions


@dataclass(frozen=True)
class Ended:
    """The last message of the watched process."""

    result: Any = None
    error: Exception | None = None
    """Set if the task failed. `watched` raises it."""


async def watched(
    module: str,
    task: Task,
    report: Callable[[Any], None] = lambda _: None,
    announce: Callable[[str], None] = lambda _: None,
) -> Any:
    """Run `module` in a watched process. Returns its result. `announce` gets what the hook is about to do, in
    words, and `report` all other messages.

    Raises the error of `Ended`, and `CheckError` if the hook ends the process or a step takes too long.
    """
    child = Child()
    await child.spawn(module)
    try:
        ended = await _ended(child, task, report, announce)
    except asyncio.CancelledError:
        child.kill()  # the process may be too busy to notice
        raise
    finally:
        await child.stop()
    if ended.error is not None:
        raise ended.error
    return ended.result


async def _ended(
    child: Child, task: Task, report: Callable[[Any], None], announce: Callable[[str], None]
) -> Ended:
    hook, doing = f"hook {task.spec.path!r}", "it was loaded"
    limit = max(task.options.hook_load_timeout, task.options.hook_timeout) + GRACE
    child.connection.send(task)
    try:
        while True:
            async with asyncio.timeout(limit):
                messages = await child.connection.receive()
            for message in messages:
                match message:
                    case Ended():
                        return message
                    case str():
                        doing = message
                        announce(doing)
                    case Alive():
                        pass
                    case _:
                        report(message)
    except EOFError as error:
        raise CheckError(f"{hook} ended its process while {doing}") from error
    except TimeoutError as error:
        child.kill()
        raise CheckError(f"{hook} did not end while {doing}, and could not be interrupted") from error
