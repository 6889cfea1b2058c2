"""Hooks behind the protocol of hook workers, in this process, for hooks without an import path."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hooks.loading.loader import HookSpec
from hooks.pipeline.pipeline import Pipeline
from hooks.workers.messages import Connection
from hooks.workers.pool import WorkerPool, WorkerProcess
from hooks.workers.worker import Worker


@asynccontextmanager
async def behind_worker(pipeline: Pipeline) -> AsyncIterator[WorkerPool]:
    """A pool whose one worker runs `pipeline` on this event loop. Their messages go through a real socket."""
    ours, theirs = socket.socketpair()
    specs, allowed = (
        [HookSpec(hook.name, mode="shadow" if hook.is_shadow else "enforce") for hook in hooks]
        for hooks in (pipeline.hooks, pipeline.allowed.values())
    )
    pool = WorkerPool(0, specs, allowed, pipeline.options)
    pool.prompt_readers, pool.rewinders = pipeline.prompt_readers, pipeline.rewinders
    process = WorkerProcess(pool)
    process.attach(Connection(*await asyncio.open_connection(sock=ours)))
    connection = Connection(*await asyncio.open_connection(sock=theirs))
    loop = asyncio.get_running_loop()
    worker = Worker(connection, pipeline)
    serving, running = loop.create_task(worker.serve()), loop.create_task(process.run())
    pool._add(process)
    try:
        yield pool
    finally:
        await process.connection.close()
        await asyncio.gather(serving, running, return_exceptions=True)
        await connection.close()
