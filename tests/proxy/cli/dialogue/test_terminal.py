"""`weir chat` on a real terminal: typed keys in, what the terminal is sent out."""

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.cli.dialogue.conftest import WAIT, FakeServer, answer, delta, frame

ROOT = Path(__file__).parents[4]
PATIENCE = 300.0
"""Seconds after which a text is said not to come, however slow the machine is."""
PLAIN = "import sys; sys.modules['prompt_toolkit'] = None; from proxy.cli.cli import main; main()"
"""Runs the command as if prompt_toolkit were not installed."""


EDITED = "\x1b[?2004h"
"""prompt_toolkit sends it before a prompt: what is pasted is to be marked."""


class Terminal:
    """One end of a terminal. A program runs at the other."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._reader = asyncio.StreamReader()
        self.text = ""
        """Everything that the terminal was sent and `until` has not passed."""

    async def start(self) -> None:
        protocol = asyncio.StreamReaderProtocol(self._reader)
        pipe = os.fdopen(os.dup(self._descriptor), "rb", 0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    async def until(self, text: str) -> str:
        """Wait for the text. Returns what came up to its end."""
        while text not in self.text:
            try:
                data = await asyncio.wait_for(self._reader.read(65536), PATIENCE)
            except (OSError, TimeoutError):
                data = b""
            assert data, f"no {text!r} in {self.text!r}"
            self.text += data.decode(errors="replace")
        before, found, self.text = self.text.partition(text)
        return before + found


@asynccontextmanager
async def chat(url: str, *options: str, is_plain: bool = False, **env: str) -> AsyncIterator[Any]:
    ours, theirs = pty.openpty()
    command = [sys.executable, *(["-c", PLAIN] if is_plain else ["-m", "proxy"]), "chat"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--url", url, *options),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env={**os.environ, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", **env},
    )
    os.close(theirs)
    terminal = Terminal(ours)
    terminal.resize(100)
    await terminal.start()
    try:
        yield terminal, process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)


@pytest.mark.parametrize("is_plain", [False, True], ids=["prompt_toolkit", "plain"])
async def test_a_dialogue_on_a_terminal(server: FakeServer, tmp_path: Path, is_plain: bool) -> None:
    """Editing, history, Ctrl-C at an answer and at the prompt, and control characters of the model."""
    prompt = "> " if is_plain else EDITED
    history = tmp_path / "deep" / "history"
    record = {"hook": "pii", "action": "redact", "num_withheld": 3}
    server.scripts = [
        [
            delta(reasoning_content="hm"),
            delta(content="It is \x1b]0;title\x07"),
            frame({"hook": "pii", "num_held": 3}, "weir.held"),
            frame(record, "weir.decision"),
            *answer("中文[x]"),
        ],
        [delta(content="part"), WAIT],
        (400, "The request was refused."),
        answer("last"),
    ]
    options = "--history", str(history), "--show-decisions"
    async with chat(server.url, *options, is_plain=is_plain) as (terminal, process):
        start = await terminal.until(prompt)
        assert ("pip install '.[chat]'" in start) is is_plain
        terminal.type("helo\x1b[Dl\r")  # the left arrow goes before the o
        shown = await terminal.until("中文[x]")
        assert "hm" in shown
        assert "It is \u241b]0;title\u2407" in shown
        assert "[pii holds 3]" in shown
        assert "\x1b[13D\x1b[K" in shown
        assert "[pii: redact 3 characters]" in shown
        await terminal.until(prompt)
        terminal.resize(60)
        terminal.type("go on\r")
        await terminal.until("part")
        terminal.type("\x03")
        await terminal.until("[stopped]")
        await server.left.wait()
        await terminal.until(prompt)
        terminal.type("bad\r")
        await terminal.until("[400: The request was refused.]")
        await terminal.until(prompt)
        terminal.type("\x1b[A\x1b[A\r")  # the message before the latest
        await terminal.until("last")
        await terminal.until(prompt)
        told = asyncio.get_running_loop().create_task(terminal.until("[Ctrl-C again leaves]"))
        while not told.done():  # Python's own line editing misses a signal just before it waits for keys
            terminal.type("\x03")
            await asyncio.wait({told}, timeout=2)
        await told
        await terminal.until(prompt)
        terminal.type("\x04")
        assert await process.wait() == 0
    assert server.requests[0]["messages"] == [{"role": "user", "content": "hello"}]
    assert [content for _, content in server.messages] == [
        "hello",
        "It is \x1b]0;title\x07中文[x]",
        "go on",
        "part",
        "go on",
    ]
    assert history.stat().st_mode & 0o077 == 0
    assert "go on" in history.read_text()


async def test_pasted_lines_are_one_message(server: FakeServer) -> None:
    async with chat(server.url, "--history", "") as (terminal, process):
        await terminal.until(EDITED)
        terminal.type("\x1b[200~one\ntwo\x1b[201~\x1b\rthree\r")
        await terminal.until("ok")
        await terminal.until(EDITED)
        terminal.type("\x04")
        assert await process.wait() == 0
    assert server.messages == [("user", "one\ntwo\nthree")]
