"""The commands that are typed to the program and not to the model: /help lists them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from engine.protocol.did_you_mean import did_you_mean
from proxy.cli.dialogue.client import ChatClient, ChatError
from proxy.cli.dialogue.conversation import Conversation

NOTHING = "-"
"""Stands for no value."""

HELP = {
    "help": "list these commands",
    "model": "NAME   ask this model; alone: list the server's",
    "system": "TEXT   set the system prompt; -: none; alone: show it",
    "hooks": "A,B   name hooks to run in addition to the server's own; -: none; alone: show them",
    "set": "NAME VALUE   set a field of the requests, such as max_tokens 100; -: unset it; alone: show them",
    "retry": "send the latest message again",
    "undo": "take the latest message and its answer out of the history",
    "clear": "empty the history",
    "save": "FILE   write the messages to a new file, as JSON",
    "exit": "leave, as Ctrl-D does",
}


class Leave(Exception):
    """The dialogue is over."""


class Commands:
    """Obeys commands. `say` shows a line."""

    def __init__(self, conversation: Conversation, client: ChatClient, say: Callable[[str], None]) -> None:
        self._conversation = conversation
        self._client = client
        self._say = say

    async def message(self, text: str) -> str | None:
        """The message to send; None: the text was a command. `//` begins a message that begins with `/`.

        Raises `Leave`, and `ChatError` if the server is asked in vain.
        """
        if not text.startswith("/"):
            return text
        if text.startswith("//"):
            return text[1:]
        name, _, rest = text[1:].partition(" ")
        rest = rest.strip()
        match name:
            case "help":
                for command, help_text in HELP.items():
                    self._say(f"/{command} {help_text}")
                self._say("Alt-Enter begins a line; // begins a message with /; Ctrl-C ends an answer")
            case "model":
                await self._model(rest)
            case "system":
                self._system(rest)
            case "hooks":
                self._hooks(rest)
            case "set":
                self._set(*rest.split(maxsplit=1))
            case "retry":
                last = self._conversation.take_last()
                if last is None:
                    self._say("there is nothing to send again")
                return last
            case "undo":
                self._say("nothing to undo" if self._conversation.undo() is None else "undone")
            case "clear":
                self._conversation.clear()
                self._say("the history is empty")
            case "save":
                self._save(rest)
            case "exit" | "quit":
                raise Leave
            case _:
                self._say(f"there is no command /{name}{did_you_mean(name, HELP) or '; /help lists them'}")
        return None

    async def _model(self, name: str) -> None:
        chosen = self._conversation.model
        if not name:
            for model in await self._client.models():
                self._say(f"{'*' if model == chosen else ' '} {model}")
            return
        self._conversation.model = name

    def _system(self, text: str) -> None:
        if text:
            self._conversation.system = None if text == NOTHING else text
        else:
            self._say(self._conversation.system or "there is no system prompt")

    def _hooks(self, names: str) -> None:
        if names:
            hooks = [] if names == NOTHING else names.replace(",", " ").split()
            self._conversation.hooks = hooks
        else:
            self._say(", ".join(self._conversation.hooks) or "no hooks are named")

    def _set(self, name: str = "", value: str = "") -> None:
        fields = self._conversation.fields
        if value == NOTHING:
            fields.pop(name, None)
        elif value:
            fields[name] = field_value(value)
        else:
            for known in [name] if name else fields:
                self._say(f"{known} {json.dumps(fields.get(known))}")

    def _save(self, file: str) -> None:
        body = self._conversation.body()
        try:
            with Path(file).expanduser().open("xb") as saved:
                saved.write(orjson.dumps(body, option=orjson.OPT_INDENT_2))
        except OSError as error:
            raise ChatError(f"{file or 'no file'}: {error.strerror}") from error
        self._say(f"saved {len(body['messages'])} messages")


def field_value(text: str) -> Any:
    """A value as JSON, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
