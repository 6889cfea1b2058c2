"""The `weir` command in a process of its own, without the seconds that an interpreter takes for its imports.

A fork server imports Weir, torch and transformers once. Each command is a fork of that process, with its own
working folder, environment, standard streams, signals and exit status. Tests of how a process is started and
replaced start an interpreter instead.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from tests.processes import WAIT_LIMIT, killed_at_end

ROOT = Path(__file__).parents[1]
FORK_SERVER = multiprocessing.get_context("forkserver")
FORK_SERVER.set_forkserver_preload(
    [
        *("proxy.cli.cli", "proxy.cli.serve", "proxy.cli.hooks", "proxy.cli.replays.command"),
        *("proxy.cli.evaluation.command", "hooks.testing", "hypothesis", "engine.local.engine"),
        "tests.fork_server",
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

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float = WAIT_LIMIT) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("weir", timeout)
        return self._process.exitcode


class PipedWeir(ForkedWeir):
    """The same with pipes to its standard streams, as `Popen` has them. `log`: a file for what it writes to
    stderr. `own_session`: the process leads a session and a group of its own."""

    def __init__(
        self,
        *arguments: str | Path,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        before: Callable[[], object] | None = None,
        log: IO[str] | None = None,
        own_session: bool = False,
    ) -> None:
        with ExitStack() as theirs:

            def pipe(is_read: bool) -> tuple[IO[str], IO[str]]:
                """The end of this process, and that of the other."""
                reader, writer = os.pipe()
                to_read, to_write = os.fdopen(reader), os.fdopen(writer, "w", buffering=1)
                ours, other = (to_read, to_write) if is_read else (to_write, to_read)
                return ours, theirs.enter_context(other)

            self.stdin, stdin = pipe(is_read=False)
            self.stdout, stdout = pipe(is_read=True)
            self.stderr, stderr = (None, log) if log is not None else pipe(is_read=True)
            prepare = partial(_prepare, before, own_session)
            super().__init__(arguments, stdin, stdout, stderr, cwd=cwd, env=env, before=prepare)

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def communicate(self, given: str | None = None, timeout: float = WAIT_LIMIT) -> tuple[str, str]:
        """What the process says until it has ended, after it was given this text."""
        with suppress(BrokenPipeError):
            self.stdin.write(given or "")
            self.stdin.close()
        with ThreadPoolExecutor(2) as readers:
            said = readers.submit(self.stdout.read)
            told = readers.submit(self.stderr.read) if self.stderr is not None else None
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()  # or its streams would not end
                raise
            return said.result(timeout), told.result(timeout) if told is not None else ""


def _prepare(before: Callable[[], object] | None, own_session: bool) -> None:
    if own_session:
        os.setsid()
    if before is not None:
        before()


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
    buffering = 1 if "PYTHONUNBUFFERED" in env else -1
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", buffering, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv = ["weir", *arguments]
    from proxy.cli.cli import main

    main()
