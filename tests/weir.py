"""The `weir` command in a process of its own, without the seconds that an interpreter takes for its imports.

A fork server imports Weir, torch and transformers once. Each command is a fork of that process, with its own
working folder, environment, standard streams, signals and exit status. Tests of how a process is started and
replaced start an interpreter instead.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from tests.processes import WAIT_LIMIT, killed_at_end

ROOT = Path(__file__).parents[1]
FORK_SERVER = multiprocessing.get_context("forkserver")
FORK_SERVER.set_forkserver_preload(
    [
        *("proxy.cli.cli", "proxy.cli.serve", "proxy.cli.hooks", "proxy.cli.replays.command"),
        *("proxy.cli.evaluation.command", "hooks.testing", "engine.local.engine", "tests.fork_server"),
    ]
)


def run_weir(
    *arguments: str | Path, cwd: Path = ROOT, given: str = "", env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """As `subprocess.run(["weir", ...], input=given, capture_output=True, text=True)`."""
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
        files[0].write(given)
        files[0].seek(0)
        with killed_at_end(ForkedWeir(arguments, *files, cwd=cwd, env=env)) as process:
            returncode = process.wait(WAIT_LIMIT)
        for file in files:
            file.seek(0)
        return subprocess.CompletedProcess(arguments, returncode, files[1].read(), files[2].read())


class ForkedWeir:
    """A process that runs `weir` with these arguments and streams. Its methods are those of `Popen`."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        stdin: IO[str],
        stdout: IO[str],
        stderr: IO[str],
        *,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        before: Callable[[], object] | None = None,
    ) -> None:
        """`before`: a function that the process calls first. It is pickled."""
        # Pickling hands a connection's descriptor over to the process.
        streams = [Connection(os.dup(stream.fileno())) for stream in (stdin, stdout, stderr)]
        environment = dict(os.environ if env is None else env)
        self._process = FORK_SERVER.Process(
            target=_run, args=([*map(str, arguments)], str(cwd), environment, streams, before)
        )
        self._process.start()
        for stream in streams:
            stream.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def __enter__(self) -> "ForkedWeir":
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.join()

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float = WAIT_LIMIT) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("weir", timeout)
        return self._process.exitcode


def _run(
    arguments: list[str],
    cwd: str,
    env: dict[str, str],
    streams: list[Connection],
    before: Callable[[], object] | None,
) -> None:
    if before is not None:
        before()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv = ["weir", *arguments]
    from proxy.cli.cli import main

    main()
