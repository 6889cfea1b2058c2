"""`weir shadow report`: what hooks in shadow mode would have done, from a server or from its store."""

import argparse
import asyncio
import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
from pydantic import SecretStr, ValidationError

from engine.upstream.certificate import certificate_fault
from proxy.cli.argument_types import server_url
from proxy.cli.leaving import leaving
from proxy.http.access.operator import HEADER
from proxy.settings.storage import StoreOptions
from proxy.storage.operator.shadow import Report, report
from proxy.storage.operator.store import Store
from proxy.storage.query import StateError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class ReportError(Exception):
    """There is no report. The message says why."""


def add_shadow_arguments(parser: argparse.ArgumentParser) -> None:
    """report what hooks in shadow mode would have done"""
    commands = parser.add_subparsers(required=True, metavar="{report}")
    reports = commands.add_parser("report", help="say what hooks in shadow mode would have done")
    source = reports.add_mutually_exclusive_group()
    source.add_argument(
        "--url",
        type=server_url,
        default="http://127.0.0.1:8000",
        help="the server, or its --admin-port (%(default)s)",
    )
    source.add_argument("--store", help="the server's --store instead: sqlite:///FILE or postgresql://...")
    # The default is not in the parser: its help would show it.
    reports.add_argument("--admin-key", help="the operator's key (default: WEIR_ADMIN_KEY)")
    reports.add_argument("--since", type=_ago, metavar="AGE", help="only what is newer: 30m, 24h or 7d")
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
        if options.store:
            _check_file(options.store)
        reports = asyncio.run(_from_store(options) if options.store else _from_server(options))
    if not options.examples:
        for one in reports:
            one.pop("examples", None)
    if options.json:
        print(json.dumps(reports, indent=1, ensure_ascii=False))
    elif reports:
        print("\n\n".join("\n".join(_lines(one)) for one in reports))
    else:
        print("No hook ran in shadow mode.")


def _check_file(url: str) -> None:
    """A store that does not exist would be made."""
    file = url.removeprefix("sqlite:///")
    if file != url and not os.path.exists(os.path.expanduser(file)):
        raise ReportError(f"there is no store {file}")


async def _from_server(options: argparse.Namespace) -> list[Report]:
    url = options.url.rstrip("/").removesuffix("/v1") + "/admin/shadow"
    keys = os.environ.get("WEIR_ADMIN_KEY", "").partition(",")[0]  # it may be the server's, with several
    key = options.admin_key or keys
    query = {name: str(value) for name, value in _filters(options).items()}
    if options.since is not None:
        query["since"] = str(options.since)
    try:
        async with aiohttp.ClientSession(headers={HEADER: key} if key else {}) as session:
            async with session.get(url, params=query) as response:
                body = await response.json(content_type=None)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        fault = certificate_fault(error) or f"does not answer ({type(error).__name__})"
        raise ReportError(f"{url} {fault}") from error
    try:
        if response.status != 200:
            raise ReportError(f"{url}: {body['error']['message']}")
        reports: list[Report] = body["data"]
    except (TypeError, LookupError) as error:
        raise ReportError(f"{url} answers with status {response.status}, and is not a Weir server") from error
    if not body["kept"]:
        raise ReportError("this server keeps no decisions: it needs --admin-key or --store")
    return reports


async def _from_store(options: argparse.Namespace) -> list[Report]:
    steps = report(_filters(options), since=options.since, with_examples=options.examples)
    try:
        store = Store(StoreOptions(store=SecretStr(options.store)), has_admin_key=True)
        try:
            await store.start()
            return await store.run(steps, alone=False)
        finally:
            await store.aclose()
    except ValidationError as error:
        raise ReportError(f"--store: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
    except (StateError, ValueError, ImportError) as error:
        raise ReportError(str(error)) from error


def _filters(options: argparse.Namespace) -> dict[str, str]:
    names = "policy", "hook"
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _ago(text: str) -> float:
    """The time before now that an age names, in seconds since 1970."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age such as 30m, 24h or 7d")
    return max(0.0, time.time() - int(found[1]) * _UNITS[found[2]])


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
