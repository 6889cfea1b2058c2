"""`weir shadow report`: what hooks in shadow mode would have done, from a server or from its store."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from proxy.cli.leaving import leaving
from proxy.cli.report_source import ReportError, add_source_arguments, rows_of
from proxy.storage.operator.shadow import Report, report


def add_shadow_arguments(parser: argparse.ArgumentParser) -> None:
    """report what hooks in shadow mode would have done"""
    commands = parser.add_subparsers(required=True, metavar="{report}")
    reports = commands.add_parser("report", help="say what hooks in shadow mode would have done")
    add_source_arguments(reports)
    reports.add_argument("--policy", help="only this policy's hooks")
    reports.add_argument("--hook", help="only the hook of this name")
    reports.add_argument(
        "--examples", action="store_true", help="show withheld text too, where the server keeps it"
    )
    reports.add_argument("--json", action="store_true", help="print JSON")
    reports.set_defaults(run=shadow_report)


def shadow_report(options: argparse.Namespace) -> None:
    """Exits with 1 if there is no report."""
    with leaving("weir shadow report", ReportError, status=1):
        filters = _filters(options)
        steps = report(filters, since=options.since, with_examples=options.examples)
        reports = rows_of(options, "/admin/shadow", filters, steps)
    if not options.examples:
        for one in reports:
            one.pop("examples", None)
    if options.json:
        print(json.dumps(reports, indent=1, ensure_ascii=False))
    elif reports:
        print("\n\n".join("\n".join(_lines(one)) for one in reports))
    else:
        print("No hook ran in shadow mode.")


def _filters(options: argparse.Namespace) -> dict[str, str]:
    names = "policy", "hook"
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _lines(found: Report) -> Iterator[str]:
    seen, held, cost = found["seen"], found["held_seconds"], found["seconds_per_1000_characters"]
    yield f"{found['hook']}  (policy {found['policy']}, in shadow mode)"
    sums = ", ".join(f"{seen[name]} {name}" for name in ("requests", "streams", "characters"))
    yield f"  saw           {sums}"
    if not found["would_have"]:
        yield "  would have withheld nothing"
    for one in found["would_have"]:
        what = f"{one['action']} {one['reason'] or ''}".strip()
        yield f"  would have    {what}: {_counts(one)}{_share(one, seen)}"
    for one in found["for"]:
        yield f"  for           tenant {one['tenant']}, key {one['key']}: {_counts(one)}"
    if held["holds"]:
        times = ", ".join(f"{name} {_seconds(held[name])}" for name in ("p50", "p99", "max"))
        yield f"  would hold    {held['holds']} times: {times}"
    if cost is not None:
        yield f"  costs         {1000 * cost:.3g} ms for 1,000 characters"
    for one in found.get("examples", ()):
        yield f"  example       {one['action']} {one['withheld']!r} ({one['request_id']})"


def _counts(one: dict[str, Any]) -> str:
    return f"{one['decisions']} times in {one['requests']} requests, {one['characters']} characters"


def _share(one: dict[str, Any], seen: dict[str, int]) -> str:
    return f" ({one['requests'] / seen['requests']:.2%} of requests)" if seen["requests"] else ""


def _seconds(bound: float | None) -> str:
    return "over 60 s" if bound is None else f"≤ {bound:g} s"
