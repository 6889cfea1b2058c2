"""The `weir` command."""

import argparse
import asyncio
import gc
import logging
import os
import sys

from engine.protocol import EngineError
from hooks.loading.loader import HookLoadError
from hooks.pipeline.pipeline import Opener, Pipeline
from hooks.pipeline.stage import HookError
from hooks.workers.pool import WorkerPool
from proxy import __version__
from proxy.app import Server
from proxy.commands.chat import add_chat_arguments, chat
from proxy.commands.hooks import add_hooks_arguments
from proxy.commands.replay import add_replay_arguments, replay
from proxy.commands.watermark import add_watermark_arguments
from proxy.config import ServeSettings, load_settings
from proxy.engines import make_engine
from weir_bench.arguments import add_bench_arguments

DESCRIPTION = """\
Weir runs a language model behind guardrail hooks, on an OpenAI-compatible API.

  weir serve                                  the small model that ships, on 127.0.0.1:8000
  weir serve --model Qwen/Qwen3-8B --hook acme.guards.NoSecrets
  weir serve --engine openai --upstream http://127.0.0.1:8001/v1 --hook acme.guards.NoSecrets
  weir chat                                   talk to it
  weir hooks check acme.guards.NoSecrets      is it right at every chunk boundary?
  weir hooks fuzz acme.guards.NoSecrets       and on texts that were made to get round it?
  weir replay FILE --hook acme.guards.NoSecrets
  weir bench --concurrency 1,8,32             how fast is it under load?
  weir watermark detect FILE --key KEY        did a model with this watermark write it?
"""


def main(arguments: list[str] | None = None) -> None:
    """Run a subcommand. Exits with 0, with 1 or 2 and a reason on standard error, or with 130 at Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["serve"]:
        serve(load_settings(arguments[1:]))
        return
    parser = argparse.ArgumentParser(
        prog="weir", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="{serve,chat,hooks,replay,bench,watermark}"
    )
    commands.add_parser("serve", help="serve a model (see weir serve --help)")
    hooks = commands.add_parser(
        "hooks", help="check, fuzz or list hooks: weir hooks check path/to/file.py:Class"
    )
    add_hooks_arguments(hooks)
    replays = commands.add_parser("replay", help="show what hooks let through of recorded answers")
    add_replay_arguments(replays)
    replays.set_defaults(run=replay)
    chats = commands.add_parser("chat", help="talk to a server, and watch the stream as it comes")
    add_chat_arguments(chats)
    chats.set_defaults(run=lambda options: asyncio.run(chat(options)))
    benches = commands.add_parser("bench", help="put load on servers, and measure latency and throughput")
    add_bench_arguments(benches)
    benches.set_defaults(run=_bench)
    watermarks = commands.add_parser("watermark", help="look for the watermark of a key in a text")
    add_watermark_arguments(watermarks)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except KeyboardInterrupt:
        print("weir: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


def _bench(options: argparse.Namespace) -> None:
    from weir_bench.cli import bench  # with what only it needs: serving starts sooner without

    bench(options)


def serve(settings: ServeSettings) -> None:
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for chatty in ("httpx", "filelock", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        asyncio.run(_serve(settings))
    except HookLoadError as error:
        raise SystemExit(f"weir serve: {error}") from error
    except HookError as error:
        raise SystemExit(f"weir serve: hook {error.hook!r} failed its self-test") from error
    except ImportError as error:
        raise SystemExit(
            f"weir serve: {error}. The in-process engine needs the extra 'engine' of weir-proxy"
        ) from error
    except (EngineError, ValueError, OSError) as error:
        raise SystemExit(f"weir serve: {error}") from error


async def _serve(settings: ServeSettings) -> None:
    pipeline = _make_pipeline(settings)
    engine, names = make_engine(settings)
    server = Server(engine, pipeline, settings, names)
    url = await server.start()
    # What is there now stays to the end: a full collection would look through all of it, torch and model
    # included, while every stream waits for a quarter of a second.
    gc.collect()
    gc.freeze()
    try:
        _greet(url, (server.service.names or ["MODEL"])[0], len(settings.hook_specs))
        await server.run_until_signalled()
    finally:
        await server.stop()
        if asyncio.all_tasks() - {asyncio.current_task()}:
            # A hook that will not be cancelled would keep the process for ever.
            logging.getLogger("weir.proxy").warning("a hook does not end; leaving without it")
            os._exit(0)


def _make_pipeline(settings: ServeSettings) -> Opener:
    specs = settings.hook_specs
    allowed = settings.allowed_hooks
    if settings.hook_workers:
        return WorkerPool(settings.hook_workers, specs, allowed, settings.pipeline_options)
    return Pipeline.load(specs, allowed, settings.pipeline_options)


def _greet(url: str, model: str, num_hooks: int) -> None:
    guarded = f"{num_hooks} hook{'s' if num_hooks != 1 else ''}" if num_hooks else "no hooks"
    print(
        f"Weir serves {model} at {url}/v1, with {guarded}. Try:\n\n"
        f"  curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        f'    -d \'{{"model": "{model}", "stream": true, '
        '"messages": [{"role": "user", "content": "Hello!"}]}\'\n',
        flush=True,
    )
