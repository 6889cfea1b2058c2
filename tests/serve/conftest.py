"""`weir serve` as a user runs it: a process of its own, with the model that ships."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@contextmanager
def serving(*options: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "proxy", "serve", "--port", "0", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert " at " in line, process.communicate()[1]
        yield line.split(" at ")[1].split("/v1")[0]
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode == 0


@pytest.fixture(scope="session")
def weir_serve() -> Iterator[Callable[..., str]]:
    """`weir_serve("--hook", ...)`: the base URL of a server with these options, started once."""
    running: dict[tuple[str, ...], str] = {}
    with ExitStack() as stack:

        def start(*options: str) -> str:
            if options not in running:
                running[options] = stack.enter_context(serving(*options))
            return running[options]

        yield start
