"""`weir usage`: requests, tokens and money, from a server or from its store."""

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from proxy.cli.leaving import leaving
from proxy.cli.report_source import ReportError, Rows, add_source_arguments, rows_of
from proxy.storage.operator import usage
from proxy.storage.records import Account, day_of
from proxy.wire.usage_csv import csv_of


def add_usage_arguments(parser: argparse.ArgumentParser) -> None:
    """report requests, tokens and money, by day and by who asked"""
    add_source_arguments(parser)
    parser.add_argument(
        "--by",
        type=_fields,
        default=usage.BY,
        metavar="FIELDS",
        help=f"some of {','.join(usage.BY)}, with commas (default: all)",
    )
    for name in Account._fields:
        parser.add_argument(f"--{name}", help=f"only this {name}'s")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print CSV")
    form.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=report_usage)


def report_usage(options: argparse.Namespace) -> None:
    """Exits with 1 if there is no report. A store alone knows no prices: a server's report has money."""
    equal = {name: value for name in Account._fields if (value := getattr(options, name)) is not None}
    since = None if options.since is None else day_of(options.since)
    with leaving("weir usage", ReportError, status=1):
        steps = usage.report(options.by, equal, since)
        rows = rows_of(options, "/admin/usage", {**equal, "by": ",".join(options.by)}, steps)
    names = list(rows[0]) if rows else [*options.by, *usage.COUNTS]
    if options.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif options.csv:
        print(csv_of(names, rows), end="")
    else:
        print("\n".join(_table(names, rows)) if rows else "No request was counted.")


def _fields(text: str) -> Sequence[str]:
    names = tuple(dict.fromkeys(text.split(",")))
    if unknown := [name for name in names if name not in usage.BY]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(usage.BY)}")
    return names


def _table(names: Sequence[str], rows: Rows) -> Iterator[str]:
    """Texts are aligned on the left, and numbers on the right."""
    cells = [list(names), *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = (
            cell.ljust(width) if name in usage.BY else cell.rjust(width)
            for name, cell, width in zip(names, line, widths, strict=True)
        )
        yield "  ".join(padded).rstrip()


def _cell(value: Any) -> str:
    """A name as the terminal shows it; money with cents."""
    if isinstance(value, float):
        return f"{value:.2f}"
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in str(value))
