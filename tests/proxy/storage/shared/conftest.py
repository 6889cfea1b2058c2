"""Places for shared state: SQLite, and real servers where their programs are."""

import os
import pwd
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.settings.storage import StateOptions
from proxy.storage.connect import make_state
from proxy.storage.shared.protocol import State
from tests.helpers import options_with
from tests.processes import WAIT_LIMIT, killed_at_end

TABLES = "facts", "responses", "items", "shelves", "processes", "under_way", "slots", "reports"


class Place:
    """A place for state. `wipe` empties it."""

    def __init__(self, url: str) -> None:
        self.url = url

    @asynccontextmanager
    async def connect(self, *, state_timeout: float = 600.0, **options: Any) -> AsyncIterator[State]:
        """A process's own connection, as a service has it."""
        options["state_timeout"] = state_timeout
        state = make_state(options_with(StateOptions, state=SecretStr(self.url), **options))
        await state.start()
        try:
            yield state
        finally:
            await state.aclose()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It answers nobody."""
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as database:
            database.execute("BEGIN IMMEDIATE")
            yield

    async def wipe(self) -> None:
        file = Path(self.url.removeprefix("sqlite:///"))
        for one in (file, file.with_name(file.name + "-wal"), file.with_name(file.name + "-shm")):
            one.unlink(missing_ok=True)


class ServerPlace(Place):
    def __init__(self, url: str, process: "subprocess.Popen[bytes]") -> None:
        super().__init__(url)
        self._process = process

    @contextmanager
    def hanging(self) -> Iterator[None]:
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pids = [pid, *map(int, children)]
        for one in pids:
            os.kill(one, signal.SIGSTOP)
        try:
            yield
        finally:
            for one in pids:
                os.kill(one, signal.SIGCONT)


class RedisPlace(ServerPlace):
    async def wipe(self) -> None:
        from redis.asyncio import Redis

        client = Redis.from_url(self.url)
        await client.flushall()
        await client.aclose()


class PostgresPlace(ServerPlace):
    async def wipe(self) -> None:
        import asyncpg

        client = await asyncpg.connect(self.url)
        await client.execute("DROP TABLE IF EXISTS " + ", ".join(f"weir_{table}" for table in TABLES))
        await client.close()


@pytest.fixture(scope="session", params=["sqlite", "redis", "postgresql"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture(scope="session")
def sqlite_place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(f"sqlite:///{tmp_path_factory.mktemp('state')}/state.sqlite")


@pytest.fixture(scope="session")
def redis_place() -> Iterator[Place]:
    pytest.importorskip("redis")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    with listening([program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""], port) as process:
        yield RedisPlace(f"redis://127.0.0.1:{port}", process)


@pytest.fixture(scope="session")
def postgresql_place() -> Iterator[Place]:
    pytest.importorskip("asyncpg")
    found = [shutil.which("postgres"), *Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    programs = [Path(one).resolve().parent for one in found if one]
    if not programs:
        pytest.skip("PostgreSQL is not installed")
    # The server refuses to run as root.
    user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as folder:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        account: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid} if user else {}
        make = [str(programs[0] / "initdb"), "-D", folder, "-A", "trust", "-U", "weir", "--no-sync"]
        subprocess.run(make, check=True, capture_output=True, cwd="/", **account)
        port = free_port()
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": folder, "fsync": "off"}
        flags = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with listening(
            [programs[0] / "postgres", "-D", folder, "-p", str(port), *flags], port, **account
        ) as process:
            asks = [str(programs[0] / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
            while subprocess.run(asks, check=False).returncode:  # it accepts connections before it is ready
                time.sleep(0.05)
            yield PostgresPlace(f"postgresql://weir@127.0.0.1:{port}/postgres", process)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@contextmanager
def listening(command: list[Any], port: int, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A server, once it accepts connections."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with killed_at_end(subprocess.Popen(command, cwd="/", **quiet, **options)) as process:
        try:
            while not accepts(port):
                assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
                time.sleep(0.02)
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_LIMIT)


def accepts(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
