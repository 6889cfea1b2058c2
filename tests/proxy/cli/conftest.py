"""The `weir` command as a process of its own."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest

from tests.processes import killed_at_end
from tests.weir import PipedWeir


def weir(*arguments: str, before: str = "", **environment: str) -> AbstractContextManager[PipedWeir]:
    """`before`: Python code that runs first in the process."""
    environment = {**os.environ, **environment}
    return killed_at_end(PipedWeir(*arguments, env=environment, before=partial(exec, before, {})))


@pytest.fixture
def echo() -> Iterator[tuple[PipedWeir, str]]:
    options = ("--engine", "echo", "--port", "0", "--hook", "examples/upper_case.py:UpperCase")
    with weir("serve", *options) as process:
        assert process.stdout
        line = process.stdout.readline()
        yield process, line.split(" at ")[1].split("/v1")[0]
