"""`weir hooks`: list the guards that ship, check a hook over recordings, fuzz it, or trace one stream.

`check` prints a table of the results. `fuzz` looks for a text that the hook is wrong on. `trace` shows each
call.
"""

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.util import find_spec

from engine.protocol.parts import how_to_install
from hooks.loading.describe import Argument, common_arguments, guards
from hooks.loading.loader import HookLoadError, HookSpec
from hooks.loading.options import PipelineOptions
from hooks.testing.check import LIMIT, RECORDINGS, Result, check
from hooks.testing.fuzzing.task import FuzzReport, FuzzTask, fuzz
from hooks.testing.ways import not_tried
from hooks.workers.watched import CheckError
from proxy.cli.argument_types import json_object, number, some_text
from proxy.cli.leaving import leave
from proxy.cli.trace import add_trace_arguments

_HEADER = ("recording", "runs", "same", "leaked", "held", "for calls", "µs a call")
_WIDTHS = (max(map(len, RECORDINGS)), 4, 7, 6, 4, 9, 9)

_CLEAR = "\r\x1b[K"
"""Clears a terminal's line."""


def add_hooks_arguments(parser: argparse.ArgumentParser) -> None:
    """list, check, fuzz or trace hooks: weir hooks check path/to/file.py:Class"""
    commands = parser.add_subparsers(required=True, metavar="{check,fuzz,trace,list}")
    check_help = "run a hook over built-in recordings, cut at every place, and say what differs"
    checks = commands.add_parser("check", help=check_help)
    _add_hook(checks)
    checks.add_argument(
        "--limit", type=number, default=LIMIT, help="seconds that the whole check may take (%(default)g)"
    )
    checks.set_defaults(run=check_hook)
    fuzz_help = "run a hook on adversarial texts, and show the smallest that it is wrong on"
    _add_fuzz_arguments(commands.add_parser("fuzz", help=fuzz_help))
    trace_help = "show what hooks do with one text or recording, call by call"
    add_trace_arguments(commands.add_parser("trace", help=trace_help))
    lists = commands.add_parser("list", help="list the guards that ship, with their arguments")
    lists.add_argument("--json", action="store_true", help="print JSON")
    lists.set_defaults(run=list_hooks)


def _add_hook(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="pkg.module.Class, pkg.module:Class or path/to/file.py:Class")
    parser.add_argument(
        "--args", type=json_object, default={}, help="JSON object with arguments for its __init__"
    )
    for flag, help_text in (
        ("--secret", "a text that must never be released, in whatever way it is written; repeat"),
        ("--text", "a text to show to the hook; a secret is tried in the first that contains it; repeat"),
    ):
        parser.add_argument(flag, type=some_text, action="append", default=[], help=help_text)
    limits = PipelineOptions()
    for flag, default, help_text in (
        ("--hook-timeout", limits.hook_timeout, "seconds that one call may take (%(default)g)"),
        ("--hook-load-timeout", limits.hook_load_timeout, "seconds that its loading may take (%(default)g)"),
    ):
        parser.add_argument(flag, type=number, default=default, help=help_text)


def _add_fuzz_arguments(parser: argparse.ArgumentParser) -> None:
    _add_hook(parser)
    parser.add_argument("--seconds", type=number, default=60.0, help="seconds to look (%(default)g)")
    parser.add_argument("--seed", type=int, help="draw the texts of this seed again (default: a fresh seed)")
    parser.set_defaults(run=fuzz_hook)


def _spec(options: argparse.Namespace) -> HookSpec:
    return HookSpec(options.path, options.args)


def _limits(options: argparse.Namespace) -> PipelineOptions:
    return PipelineOptions(hook_timeout=options.hook_timeout, hook_load_timeout=options.hook_load_timeout)


def check_hook(options: argparse.Namespace) -> None:
    """Exits with 1 if the hook cannot be checked, or if a result depends on where a stream is cut. A terminal
    shows each step while it lasts."""
    print(_row(_HEADER), flush=True)
    try:
        results = asyncio.run(
            check(
                _spec(options),
                _limits(options),
                _print_result,
                texts=options.text,
                secrets=options.secret,
                limit=options.limit,
                announce=_show_step,
            )
        )
    except CheckError as error:
        _show_step("")
        raise SystemExit(f"weir hooks check: {error}") from error
    for line in (*_problems(results), *_warnings(results, options.secret)):
        print(line)
    raise SystemExit(0 if all(result.is_good for result in results) else 1)


def _show_step(step: str) -> None:
    if sys.stderr.isatty():
        print(_CLEAR + step, end="", file=sys.stderr, flush=True)


def _print_result(r: Result) -> None:
    _show_step("")
    same = f"no, {len(r.differing)}" if r.differing else "yes"
    same = "fails" if r.failure else "leaks" if r.missed else same
    costs = r.num_held, r.num_calls_held, f"{r.microseconds:.1f}"
    print(_row((r.name, r.num_runs, same, r.num_leaked, *costs)), flush=True)


def _row(cells: Sequence[object]) -> str:
    """A row of the table: the name at the left, numbers aligned to the right."""
    name, *rest = map(str, cells)
    return "  ".join([name.ljust(_WIDTHS[0]), *map(str.rjust, rest, _WIDTHS[1:])])


def _problems(results: list[Result]) -> Iterator[str]:
    for r in results:
        if r.failure:
            yield f"{r.name}: the hook {r.failure}"
        elif r.differing:
            yield f"{r.name}: not as in one chunk when {', '.join(r.differing[:3])}"
        yield from (f"{r.name}: {missed}" for missed in r.missed)


def _warnings(results: list[Result], secrets: Sequence[str]) -> Iterator[str]:
    """Sentences about what good results leave open."""
    if not any(r.is_changed or r.failure for r in results):
        yield "this hook changed none of the texts; this shows nothing about what it finds (--text, --secret)"
    if all(r.holds_all for r in results if r.name in RECORDINGS):
        yield "this hook holds every text to its end: a client that streams waits for the whole answer"
    yield f"not tried: {'; '.join(not_tried(secrets))}"


def fuzz_hook(options: argparse.Namespace) -> None:
    """Exits with 1 if a text was found, and with 2 if the hook cannot be fuzzed."""
    if find_spec("hypothesis") is None:  # only this command depends on it
        leave("weir hooks fuzz", f"Hypothesis is missing: {how_to_install('testing')}")
    seed = random.getrandbits(32) if options.seed is None else options.seed
    task = FuzzTask(
        spec=_spec(options),
        options=_limits(options),
        secrets=tuple(options.secret),
        texts=tuple(options.text),
        seconds=options.seconds,
        seed=seed,
    )
    try:
        report = asyncio.run(_fuzz(task))
    except HookLoadError as error:
        leave("weir hooks fuzz", error)
    except CheckError as error:
        print(error)
        raise SystemExit(1) from error
    if report.num_texts:
        print(f"{report.num_texts:,} texts")
    if report.finding is None:
        print(f"not tried: {'; '.join(not_tried(options.secret))}\nnothing found")
        raise SystemExit(0)
    print(report.finding)
    if report.seed is not None:
        print(f"  again   --seed {report.seed}")
    raise SystemExit(1)


async def _fuzz(task: FuzzTask) -> FuzzReport:
    print(f"fuzzing {task.spec.path} for {task.seconds:g} s, seed {task.seed}", flush=True)
    return await fuzz(task)


def list_hooks(options: argparse.Namespace) -> None:
    if options.json:
        common = [asdict(argument) for argument in common_arguments()]
        print(json.dumps({"guards": [asdict(g) for g in guards()], "common_arguments": common}, indent=1))
    else:
        print("\n".join(_list_lines()))


def _list_lines() -> Iterator[str]:
    for guard in guards():
        yield f"{guard.name:<13}{guard.summary}"
        yield from map(_argument_line, guard.arguments)
        if guard.has_common_arguments:
            yield "    and the common arguments (below)"
        yield ""
    yield "Common arguments, which say what to do about a match:"
    yield from map(_argument_line, common_arguments())


def _argument_line(argument: Argument) -> str:
    default = "" if argument.is_required else f" = {argument.default!r}"
    return f"    {argument.name}: {argument.type}{default}"
