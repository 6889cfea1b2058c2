"""The `weir` command as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def weir(*arguments: str, before: str = "", **environment: str) -> "subprocess.Popen[str]":
    """`before`: Python code that runs first in the process."""
    return subprocess.Popen(
        [sys.executable, "-c", f"{before}\nimport proxy.__main__", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def echo() -> Iterator[tuple["subprocess.Popen[str]", str]]:
    process = weir("serve", "--engine", "echo", "--port", "0", "--hook", "examples/upper_case.py:UpperCase")
    assert process.stdout
    line = process.stdout.readline()
    url = line.split(" at ")[1].split("/v1")[0]
    yield process, url
    process.kill()
    process.communicate()
