"""`weir serve` as a user runs it: a process of its own, with the model that ships."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]


WEIR = (sys.executable, "-m", "proxy")


@contextmanager
def serving(
    *options: str, weir: Sequence[str] = WEIR, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> Iterator[str]:
    process = subprocess.Popen(
        [*weir, "serve", "--port", "0", *options],
        cwd=cwd,
        env=env,
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
