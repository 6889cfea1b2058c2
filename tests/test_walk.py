"""docs/operations.md, followed by a shell: its commands run in order, in one folder, beside its servers."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.processes import WAIT_LIMIT, killed_at_end
from tests.serving import ROOT
from tests.test_docs import OPERATIONS, Block, assert_shows, blocks

PORTS = ("8000", "8001", "9000", "8443", "9443", "8444", "9444")
_COMMANDS = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


class Terminal:
    """Types what a page says. Each `weir serve` runs until the end."""

    def __init__(self, folder: Path) -> None:
        tools = folder / "bin"
        tools.mkdir()
        weir = tools / "weir"
        weir.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m proxy "$@"\n')
        weir.chmod(0o755)
        self._folder = folder
        self._environment = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(folder), "COLUMNS": "200"}
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._servers: list[subprocess.Popen[str]] = []
        self._stack = ExitStack()

    def follow(self, block: Block) -> None:
        text = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda port: str(self._ports[port[1]]), block.text)
        if block.language == "yaml":
            name = re.match(r"# (\w+\.yaml)", text)
            assert name, block.place
            (self._folder / name[1]).write_text(text)
        elif block.language == "console":
            for command, shown in _COMMANDS.findall(text.replace("\\\n", "")):
                assert_shows(self._type(command), shown, f"{block.place}: {command}")

    def _type(self, command: str) -> str:
        if command.startswith("weir serve "):
            return self._serve(command)
        # The variables that a command exports are there for the next one.
        script = f"set -e; {command}\nenv -0 > environment"
        ended = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}"
        variables = (self._folder / "environment").read_text().split("\0")
        self._environment = dict(one.split("=", 1) for one in variables if one)
        return ended.stdout

    def _serve(self, command: str) -> str:
        server = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._servers.append(self._stack.enter_context(killed_at_end(server)))
        assert server.stdout
        line = server.stdout.readline()
        assert " at " in line, server.communicate(timeout=WAIT_LIMIT)[1]
        return line

    def close(self) -> None:
        with self._stack:
            for server in self._servers:
                server.terminate()
            for server in self._servers:
                _, log = server.communicate(timeout=WAIT_LIMIT)
                assert server.returncode == 0, log


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


@pytest.mark.slow
def test_a_new_user_gets_a_guarded_upstream(terminal: Terminal) -> None:
    for block in blocks(OPERATIONS):
        if block.reason is None:
            terminal.follow(block)
