"""Servers under attack: `weir serve` in a process of its own, with the hook that counts what it holds."""

import os
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import IO

import pytest

from tests.weir import ForkedWeir
from tools.abuse import server
from tools.abuse.measure import PROBE
from tools.abuse.server import KEYS, Served, served


@pytest.fixture(autouse=True, scope="session")
def _forks() -> Iterator[None]:
    """Servers are forked, as in the other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "start_weir", _fork_weir)
        yield


def _fork_weir(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    stdout: IO[str],
    stderr: IO[str],
    num_files: int | None,
) -> ForkedWeir:
    with open(os.devnull) as nothing:
        before = partial(_lead_a_session, num_files)
        return ForkedWeir(arguments, nothing, stdout, stderr, env=env, before=before)


def _lead_a_session(num_files: int | None) -> None:
    os.setsid()
    if num_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (num_files, num_files))


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
