"""Lines that a person types, edited with prompt_toolkit or with readline, or lines from a pipe."""

import asyncio
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol


class Lines(Protocol):
    is_interactive: bool
    """Whether a person types."""

    async def read(self, prompt: str) -> str:
        """The next message. Raises `EOFError` at the end, and `KeyboardInterrupt` at Ctrl-C."""


def open_lines(history: str) -> Lines:
    """`history`: the file that keeps what was typed; empty: it is not kept. Raises `OSError`."""
    if not sys.stdin.isatty():
        return PipedLines()
    file = Path(history).expanduser() if history else None
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    return PlainLines(file) if find_spec("prompt_toolkit") is None else _edited(file)


class PipedLines:
    """Each line is a message."""

    is_interactive = False

    async def read(self, prompt: str) -> str:
        line: str = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            raise EOFError
        return line.removesuffix("\n")


class PlainLines:
    """A line that ends in a backslash goes on in the next one."""

    is_interactive = True

    def __init__(self, history: Path | None) -> None:
        import readline

        self._readline, self._history = readline, history
        if history is not None:
            readline.read_history_file(history)

    async def read(self, prompt: str) -> str:
        # Nothing else runs while somebody types. On another thread, Ctrl-C could not end the typing.
        earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            text = input(prompt)  # noqa: ASYNC250
            while text.endswith("\\"):
                text = f"{text[:-1]}\n{input('... ')}"  # noqa: ASYNC250
        finally:
            signal.signal(signal.SIGINT, earlier)
        if self._history is not None:
            self._readline.write_history_file(self._history)
        return text


def _edited(history: Path | None) -> Lines:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        history=None if history is None else FileHistory(str(history)),
        key_bindings=keys,
        multiline=True,  # pasted lines are one message
        prompt_continuation="... ",
    )

    class EditedLines:
        is_interactive = True

        async def read(self, prompt: str) -> str:
            return await session.prompt_async(prompt)

    return EditedLines()
