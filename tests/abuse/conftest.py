"""Servers under attack: `weir serve` in a process of its own, with the hook that counts what it holds."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tools.abuse.measure import PROBE
from tools.abuse.server import KEYS, Served, served


@pytest.fixture(scope="module")
def server_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """`server_of(*options)`: a server with these options and the keys of both callers. A module shares it."""
    folder: Path = tmp_path_factory.mktemp("logs")
    with ExitStack() as stack:

        @cache
        def start(*options: str, num_files: int | None = None) -> Served:
            return stack.enter_context(
                served("--allowed-hook", PROBE, *options, folder=folder, env=KEYS, num_files=num_files)
            )

        yield start
