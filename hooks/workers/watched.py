"""A hook that is run in a process beside this one, which watches it: a hook may do anything.

The process says, in words, what the hook is about to do, each time, and at the end what came of it all.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hooks.loading.async_call import GRACE
from hooks.loading.loader import HookSpec
from hooks.pipeline.options import PipelineOptions
from hooks.workers.messages import Alive
from hooks.workers.process import Child


class CheckError(RuntimeError):
    """It could not be brought to its end: what the hook did, and to what."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What to run, for the process that does."""

    spec: HookSpec
    options: PipelineOptions


@dataclass(frozen=True)
class Ended:
    """The last that the process says."""

    result: Any = None
    error: str | None = None
    """Why there is no result."""


async def watched(module: str, task: Task, tell: Callable[[Any], None] = lambda _: None) -> Any:
    """The result of `module`, which runs in a process of its own and tells `tell` of each step. Raises
    `CheckError` if the process says why it has no result, if the hook ends the process, and if it takes
    longer than the options allow."""
    child = Child()
    await child.spawn(module)
    try:
        ended = await _ended(child, task, tell)
    except asyncio.CancelledError:
        child.kill()  # it may be too busy to notice
        raise
    finally:
        await child.stop()
    if ended.error is not None:
        raise CheckError(ended.error)
    return ended.result


async def _ended(child: Child, task: Task, tell: Callable[[Any], None]) -> Ended:
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
                    case Alive():
                        pass
                    case _:
                        tell(message)
    except EOFError as error:
        raise CheckError(f"{hook} ended its process while {doing}") from error
    except TimeoutError as error:
        child.kill()
        reason = f"{hook} came to no end while {doing}, and could not be interrupted"
        raise CheckError(reason) from error
