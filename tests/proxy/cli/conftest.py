"""The `weir` command as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.processes import killed_at_end

ROOT = Path(__file__).parents[3]


def weir(
    *arguments: str, before: str = "", **environment: str
) -> "AbstractContextManager[subprocess.Popen[str]]":
    """`before`: Python code that runs first in the process."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{before}\nimport proxy.__main__", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return killed_at_end(process)


@pytest.fixture
def echo() -> Iterator[tuple["subprocess.Popen[str]", str]]:
    options = ("--engine", "echo", "--port", "0", "--hook", "examples/upper_case.py:UpperCase")
    with weir("serve", *options) as process:
        assert process.stdout
        line = process.stdout.readline()
        yield process, line.split(" at ")[1].split("/v1")[0]
