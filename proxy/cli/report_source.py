"""The sources of an operator's report: a server that runs, or its store."""

import argparse
import asyncio
import os
import re
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
from pydantic import SecretStr, ValidationError

from engine.upstream.certificate import certificate_fault
from proxy.cli.argument_types import server_url
from proxy.http.access.operator import HEADER
from proxy.settings.storage import StoreOptions
from proxy.storage.operator.store import Store
from proxy.storage.query import StateError, Steps

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Rows = list[dict[str, Any]]


class ReportError(Exception):
    """There is no report. The message says why."""


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--url",
        type=server_url,
        default="http://127.0.0.1:8000",
        help="the server, or its --admin-port (%(default)s)",
    )
    source.add_argument("--store", help="the server's --store instead: sqlite:///FILE or postgresql://...")
    # The default is not in the parser: its help would show it.
    parser.add_argument("--admin-key", help="the operator's key (default: WEIR_ADMIN_KEY)")
    parser.add_argument("--since", type=_ago, metavar="AGE", help="only what is newer: 30m, 24h or 7d")


def rows_of(options: argparse.Namespace, path: str, query: Mapping[str, str], steps: Steps[Rows]) -> Rows:
    """The report at `path` of the server, by `query`, or the result of `steps` in the store. `since` is added
    to the query. Raises `ReportError`."""
    if options.store:
        _check_file(options.store)
        return asyncio.run(_from_store(options.store, steps))
    return asyncio.run(_from_server(options, path, query))


def _check_file(url: str) -> None:
    """A store that does not exist would be made."""
    file = url.removeprefix("sqlite:///")
    if file != url and not os.path.exists(os.path.expanduser(file)):
        raise ReportError(f"there is no store {file}")


async def _from_server(options: argparse.Namespace, path: str, query: Mapping[str, str]) -> Rows:
    url = options.url.rstrip("/").removesuffix("/v1") + path
    keys = os.environ.get("WEIR_ADMIN_KEY", "").partition(",")[0]  # it may be the server's, with several
    key = options.admin_key or keys
    since = {} if options.since is None else {"since": str(options.since)}
    try:
        async with aiohttp.ClientSession(headers={HEADER: key} if key else {}) as session:
            async with session.get(url, params={**query, **since}) as response:
                body = await response.json(content_type=None)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        fault = certificate_fault(error) or f"does not answer ({type(error).__name__})"
        raise ReportError(f"{url} {fault}") from error
    try:
        if response.status != 200:
            raise ReportError(f"{url}: {body['error']['message']}")
        rows: Rows = body["data"]
    except (TypeError, LookupError) as error:
        raise ReportError(f"{url} answers with status {response.status}, and is not a Weir server") from error
    if not body["kept"]:
        raise ReportError("this server keeps no decisions and no usage: it needs --admin-key or --store")
    return rows


async def _from_store(url: str, steps: Steps[Rows]) -> Rows:
    try:
        store = Store(StoreOptions(store=SecretStr(url)), has_admin_key=True)
        try:
            await store.start()
            return await store.run(steps, alone=False)
        finally:
            await store.aclose()
    except ValidationError as error:
        raise ReportError(f"--store: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
    except (StateError, ValueError, ImportError) as error:
        raise ReportError(str(error)) from error


def _ago(text: str) -> float:
    """The time before now that an age names, in seconds since 1970."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age such as 30m, 24h or 7d")
    return max(0.0, time.time() - int(found[1]) * _UNITS[found[2]])
