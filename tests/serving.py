"""`weir serve` as a user runs it: a process of its own, with the model that ships."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

from tests.processes import WAIT_LIMIT, killed_at_end
from tests.weir import ROOT, ForkedWeir, PipedWeir


def started(
    *options: str, log: IO[str] | None = None, own_session: bool = False
) -> AbstractContextManager[PipedWeir]:
    """The process of a server that is killed at the end. `log`, `own_session`: see `PipedWeir`."""
    return killed_at_end(PipedWeir("serve", "--port", "0", *options, log=log, own_session=own_session))


def url_of(process: PipedWeir) -> str:
    """The base URL that the server's first line names."""
    return process.stdout.readline().split(" at ")[1].split("/v1")[0]


@contextmanager
def serving(
    *options: str, weir: Sequence[str] = (), cwd: Path = ROOT, env: dict[str, str] | None = None
) -> Iterator[str]:
    """The base URL of a server that runs meanwhile. `weir`: a command to start it by, without a fork."""
    arguments = ["serve", "--port", "0", *options]
    reader, writer = os.pipe()
    with open(reader) as said, tempfile.TemporaryFile("w+") as log, open(os.devnull) as nothing:
        with open(writer, "w") as stdout:
            if weir:
                streams = {"stdin": nothing, "stdout": stdout, "stderr": log}
                process = subprocess.Popen([*weir, *arguments], cwd=cwd, env=env, **streams)
            else:
                process = ForkedWeir(arguments, nothing, stdout, log, cwd=cwd, env=env)
        with killed_at_end(process):
            try:
                found = re.search(r" at (https?://[\w.:\[\]]+)", said.readline())
                assert found, _text_of(log)
                yield found[1]
            finally:
                process.terminate()
                returncode = process.wait(WAIT_LIMIT)
        assert returncode == 0, _text_of(log)


def _text_of(log: IO[str]) -> str:
    log.seek(0)
    return log.read()
