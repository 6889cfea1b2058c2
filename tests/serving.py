"""`weir serve` as a user runs it: a process of its own, with the model that ships."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]


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
