"""`weir hooks fuzz`: looks for a text that a hook is wrong on."""

import argparse
import asyncio
import random
import sys
from importlib.util import find_spec
from typing import NoReturn

from hooks.loading.loader import HookLoadError
from hooks.testing.fuzzing.task import FuzzReport, FuzzTask, fuzz
from hooks.workers.watched import CheckError
from proxy.commands.hook_arguments import add_hook_arguments, options_of, spec_of
from weir_bench.argument_types import number, some_text


def add_fuzz_arguments(parser: argparse.ArgumentParser) -> None:
    add_hook_arguments(parser)
    parser.add_argument("--seconds", type=number, default=60.0, help="seconds to look (%(default)g)")
    parser.add_argument("--seed", type=int, help="draw the texts of this seed again (default: a fresh seed)")
    parser.add_argument(
        "--secret",
        type=some_text,
        action="append",
        default=[],
        help="a text that must never be released; repeat",
    )
    parser.set_defaults(run=fuzz_hook)


def fuzz_hook(options: argparse.Namespace) -> None:
    """Exits with 1 if a text was found, and with 2 if the hook cannot be fuzzed."""
    if find_spec("hypothesis") is None:  # only this command depends on it
        _leave("Hypothesis is missing: install the extra 'testing' of weir-proxy")
    seed = random.getrandbits(32) if options.seed is None else options.seed
    task = FuzzTask(
        spec=spec_of(options),
        options=options_of(options),
        secrets=tuple(options.secret),
        seconds=options.seconds,
        seed=seed,
    )
    try:
        report = asyncio.run(_fuzz(task))
    except HookLoadError as error:
        _leave(str(error))
    except CheckError as error:
        print(error)
        raise SystemExit(1) from error
    print(f"{report.num_texts:,} texts")
    print(f"{report.finding}\n  again   --seed {report.seed}" if report.finding else "nothing found")
    raise SystemExit(1 if report.finding else 0)


async def _fuzz(task: FuzzTask) -> FuzzReport:
    print(f"fuzzing {task.spec.path} for {task.seconds:g} s, seed {task.seed}", flush=True)
    return await fuzz(task)


def _leave(reason: str) -> NoReturn:
    print(f"weir hooks fuzz: {reason}", file=sys.stderr)
    raise SystemExit(2)
