"""`weir hooks check`: run one hook over recordings, and print a table of the results."""

import argparse
import asyncio
from collections.abc import Iterator, Sequence

from hooks.testing.checking.check import RECORDINGS, Result, check
from hooks.workers.watched import CheckError
from proxy.commands.hook_arguments import add_hook_arguments, options_of, spec_of

_HEADER = ("recording", "runs", "same", "leaked", "held", "for calls", "µs a call")
_WIDTHS = (max(map(len, RECORDINGS)), 4, 7, 6, 4, 9, 9)


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    add_hook_arguments(parser)
    parser.set_defaults(run=check_hook)


def check_hook(options: argparse.Namespace) -> None:
    """Exits with 1 if the hook cannot be checked, or if a result depends on where a stream is cut."""
    print(_row(_HEADER), flush=True)
    try:
        results = asyncio.run(check(spec_of(options), options_of(options), _print_result))
    except CheckError as error:
        raise SystemExit(f"weir hooks check: {error}") from error
    for problem in _problems(results):
        print(problem)
    raise SystemExit(0 if all(result.is_good for result in results) else 1)


def _print_result(r: Result) -> None:
    same = "fails" if r.failure else "yes" if not r.differing else f"no, {len(r.differing)}"
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
