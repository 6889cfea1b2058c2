"""`weir hooks list`: the guards that ship, with their arguments."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict

from hooks.loading.describe import Argument, GuardDescription, common_arguments, guards


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=list_hooks)


def list_hooks(options: argparse.Namespace) -> None:
    if options.json:
        common = [asdict(argument) for argument in common_arguments()]
        print(json.dumps({"guards": [asdict(g) for g in guards()], "common_arguments": common}, indent=1))
    else:
        print("\n".join(_lines()))


def _lines() -> Iterator[str]:
    for guard in guards():
        yield from (f"{guard.name:<13}{guard.summary}", *_arguments(guard), "")
    yield "Common arguments, which say what to do about a match:"
    yield from map(_line, common_arguments())


def _arguments(guard: GuardDescription) -> Iterator[str]:
    yield from map(_line, guard.arguments)
    if guard.has_common_arguments:
        yield "    and the common arguments (below)"


def _line(argument: Argument) -> str:
    default = "" if argument.is_required else f" = {argument.default!r}"
    return f"    {argument.name}: {argument.type}{default}"
