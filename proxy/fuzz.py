"""`weir hooks fuzz`: look for a text that a hook is wrong on."""

import argparse
import logging
import random
import sys
from typing import NoReturn

from hooks.loader import HookLoadError, HookSpec
from hooks.stage import PipelineOptions
from proxy.argument_types import number, some_text


def add_fuzz_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=number, default=60.0, help="how long to look (%(default)g)")
    parser.add_argument("--seed", type=int, help="draws the same texts again (default: a fresh one)")
    parser.add_argument(
        "--secret",
        type=some_text,
        action="append",
        default=[],
        help="a text that must never be released; repeat",
    )


def fuzz_hook(options: argparse.Namespace) -> None:
    """Exits with 1 if something was found, and with 2 if the hook cannot be fuzzed."""
    try:
        from hooks.testing.fuzz import Fuzzer  # Hypothesis is a dependency of this command alone
    except ImportError as error:
        _leave(f"{error}. It needs: pip install 'weir[testing]'", error)
    logging.getLogger("weir.hooks").setLevel(logging.CRITICAL)  # failures are what is looked for
    seed = random.getrandbits(32) if options.seed is None else options.seed
    spec = HookSpec(options.path, options.args)
    limits = PipelineOptions(hook_timeout=options.hook_timeout, hook_load_timeout=options.hook_load_timeout)
    try:
        fuzzer = Fuzzer(spec, secrets=options.secret, options=limits)
    except HookLoadError as error:
        _leave(str(error), error)
    print(f"fuzzing {options.path} for {options.seconds:g} s, seed {seed}", flush=True)
    finding = fuzzer.run(options.seconds, seed)
    print(f"{fuzzer.num_texts:,} texts")
    if finding is None:
        print("nothing found")
        return
    print(f"{finding}\n  again   --seed {finding.seed}")
    raise SystemExit(1)


def _leave(reason: str, error: Exception) -> NoReturn:
    print(f"weir hooks fuzz: {reason}", file=sys.stderr)
    raise SystemExit(2) from error
