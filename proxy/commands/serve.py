"""`weir serve`: start the service, greet whoever started it, and serve until a signal."""

import asyncio
import gc
import logging
import os

from engine.prompt_threads import PromptThreads
from engine.protocol import EngineError
from hooks.loading.async_call import open_calls
from hooks.loading.loader import HookLoadError
from hooks.pipeline.failure import HookError
from hooks.pipeline.options import PipelineOptions
from hooks.pipeline.pipeline import GuardFactory, Pipeline
from hooks.workers.pool import WorkerPool
from proxy.app import Server
from proxy.commands.signals import Signals, leave_within
from proxy.config import ServeSettings
from proxy.engines import make_engine

logger = logging.getLogger("weir.proxy")

PROMPT_THREADS = 1
"""Threads on which hooks read long prompts, and as many for short ones. They hold the interpreter's lock most
of the time, so that more threads would make no prompt faster."""


def serve(settings: ServeSettings) -> None:
    """Serve until SIGTERM or SIGINT. Exits with 1 and a reason if the service cannot start."""
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # They are verbose, and some of them log URLs, headers and what another server said.
    for library in ("aiohttp", "filelock", "httpcore", "httpx", "openai", "urllib3"):
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        asyncio.run(_serve(settings))
    except HookError as error:
        raise SystemExit(f"weir serve: hook {error.hook!r} failed its self-test") from error
    except ImportError as error:
        needed = "The in-process engine needs the extra 'engine' of weir-proxy"
        raise SystemExit(f"weir serve: {error}. {needed}") from error
    except (EngineError, HookLoadError, ValueError, OSError) as error:
        raise SystemExit(f"weir serve: {error}") from error


async def _serve(settings: ServeSettings) -> None:
    signals = Signals()
    pipeline = _make_pipeline(settings)
    engine, names = make_engine(settings)
    server = Server(engine, pipeline, settings, names)
    url = await server.start()
    # The objects that exist now live to the end. A full collection would look through all of them, torch and
    # the model included, and every stream would wait for a quarter of a second.
    gc.collect()
    gc.freeze()
    signalled = signals.obey(server.ending.leave)
    try:
        _greet(url, (server.service.names or ["MODEL"])[0], len(settings.hook_specs))
        await signalled.wait()
    finally:
        if not signalled.is_set():
            leave_within(server.ending.leave)
        await server.stop()
        if open_calls:
            # A hook that ignores its cancellation would keep the process alive for ever.
            logger.warning("a hook does not end; leaving without it")
            os._exit(0)


def _make_pipeline(settings: ServeSettings) -> GuardFactory:
    hooks = settings.hook_specs, settings.allowed_hooks, settings.options(PipelineOptions)
    if settings.hook_workers:
        return WorkerPool(settings.hook_workers, *hooks)
    return Pipeline.load(*hooks, prompt_threads=PromptThreads(PROMPT_THREADS))


def _greet(url: str, model: str, num_hooks: int) -> None:
    guarded = f"{num_hooks} hook{'s' if num_hooks != 1 else ''}" if num_hooks else "no hooks"
    print(
        f"Weir serves {model} at {url}/v1, with {guarded}. Try:\n\n"
        f"  curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        f'    -d \'{{"model": "{model}", "stream": true, '
        '"messages": [{"role": "user", "content": "Hello!"}]}\'\n',
        flush=True,
    )
