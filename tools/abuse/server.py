"""`weir serve` as a user runs it, in a process of its own, and what the operating system says of it."""

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

ROOT = Path(__file__).parents[2]

GOOD_KEY = "the-key-of-a-well-behaved-client"
BAD_KEY = "the-key-of-an-attacker"
KEYS = {"WEIR_API_KEY": f"{GOOD_KEY},{BAD_KEY}"}
"""The environment of a server that both callers have a key of."""


class Process(Protocol):
    """The part of `subprocess.Popen` that this module needs."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def wait(self) -> int: ...


@dataclass(frozen=True)
class Served:
    """A running server."""

    url: str
    process: Process
    log: Path
    """The server's standard error."""
    operator_url: str
    """The base URL of the operator's port, where `/metrics` needs no key."""

    @property
    def num_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def memory(self) -> int:
        """Resident memory of the service's process, in bytes."""
        return _memory_of(self.process.pid)

    @property
    def peak_memory(self) -> int:
        """The most resident memory so far, in bytes."""
        return _memory_of(self.process.pid, "VmHWM")

    @property
    def children(self) -> list[int]:
        """The process ids of its hook workers, and of other processes that it started."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    @property
    def family_memory(self) -> int:
        """Resident memory of the service and of the processes that it started, in bytes."""
        return self.memory + sum(_memory_of(pid) for pid in self.children)

    @property
    def log_size(self) -> int:
        return self.log.stat().st_size

    def limit_file_size(self, num_bytes: int) -> None:
        """No file grows beyond `num_bytes`: as if the disk were full. A negative number lifts the limit."""
        for pid in (self.process.pid, *self.children):
            hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
            soft = num_bytes if num_bytes >= 0 else resource.RLIM_INFINITY
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def _memory_of(pid: int, field: str = "VmRSS") -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # the process has just ended
        return 0
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines.get(field, "0 kB").split()[0]) * 1024


def environment_of(pid: int) -> str:
    """The environment that a process was started with."""
    return Path(f"/proc/{pid}/environ").read_bytes().decode()


def start_weir(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    stdout: IO[str],
    stderr: IO[str],
    num_files: int | None,
) -> Process:
    """A process that leads a session of its own, with the hook workers that it starts."""
    limited = ("sh", "-c", f'ulimit -n {num_files}; exec "$@"', "weir") if num_files else ()
    return subprocess.Popen(
        [*limited, sys.executable, "-m", "proxy", *arguments],
        cwd=ROOT,
        env=env,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


@contextmanager
def served(
    *options: str, folder: Path, env: dict[str, str] | None = None, num_files: int | None = None
) -> Iterator[Served]:
    """A server with these options. `folder` gets its log. The process is killed at the end.

    `num_files`: files that it may have open at once (`ulimit -n`).
    """
    log = folder / f"weir-{os.urandom(4).hex()}.log"
    with socket.create_server(("127.0.0.1", 0)) as free:
        admin_port = free.getsockname()[1]
    arguments = ("serve", "--port", "0", "--admin-port", str(admin_port), *options)
    environment = {**os.environ, **(env or {})}
    reader, writer = os.pipe()
    with open(reader) as said:
        with open(writer, "w") as stdout, log.open("w") as errors:
            process = start_weir(
                arguments, env=environment, stdout=stdout, stderr=errors, num_files=num_files
            )
        try:
            line = said.readline()
            if " at " not in line:
                raise RuntimeError(f"the server does not start: {log.read_text()[-2000:]}")
            url = line.split(" at ")[1].split("/v1")[0]
            yield Served(url, process, log, f"http://127.0.0.1:{admin_port}")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
