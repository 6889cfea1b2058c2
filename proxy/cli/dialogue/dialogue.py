"""The dialogue: reads a message, asks for the answer, shows it, and keeps both in the history."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing

from proxy.cli.dialogue.client import ChatClient, ChatError, ChatEvent, Ended, LostError, NotOperatorError
from proxy.cli.dialogue.commands import Commands, Leave
from proxy.cli.dialogue.conversation import Answer, Conversation
from proxy.cli.dialogue.lines import Lines
from proxy.cli.dialogue.screen import Screen
from proxy.cli.dialogue.terminal import harmless

RETRY_DELAY = 1.0
"""Seconds before a lost server is asked again. They double each time."""
MAX_RETRY_DELAY = 8.0


class Dialogue:
    """`is_interactive`: a person waits. Then a lost server is asked again until the person gives up."""

    def __init__(
        self, client: ChatClient, screen: Screen, conversation: Conversation, *, is_interactive: bool
    ) -> None:
        self._client = client
        self._screen = screen
        self._conversation = conversation
        self._is_interactive = is_interactive

    async def run(self, lines: Lines) -> None:
        """Until the input ends, or two Ctrl-C follow each other."""
        commands = Commands(self._conversation, self._client, self._screen.note)
        was_interrupted = False
        while True:
            try:
                text = await lines.read(self._prompt() if lines.is_interactive else "")
            except EOFError:
                return
            except KeyboardInterrupt:
                if was_interrupted:
                    return
                was_interrupted = True
                self._screen.note("Ctrl-C again leaves")
                continue
            try:
                message = await commands.message(text) if lines.is_interactive else text
            except Leave:
                return
            except ChatError as error:
                self._screen.note(str(error))
                continue
            was_interrupted = await self._interrupted(message) if message and message.strip() else False

    def _prompt(self) -> str:
        calls = self._conversation.open_calls
        return f"result of {harmless(calls[0]['function']['name'])}> " if calls else "> "

    async def _interrupted(self, message: str) -> bool:
        """Get the answer to the message. Returns whether Ctrl-C ended it."""
        if not self._is_interactive:
            await self.ask(message)
            return False
        loop = asyncio.get_running_loop()
        asking = loop.create_task(self.ask(message))
        loop.add_signal_handler(signal.SIGINT, asking.cancel)
        try:
            await asking
        except asyncio.CancelledError:
            if not asking.cancelled():  # the dialogue is cancelled itself
                raise
            self._screen.note("stopped")
            return True
        finally:
            asking.cancel()
            loop.remove_signal_handler(signal.SIGINT)
        return False

    async def ask(self, message: str) -> bool:
        """Add the message, and the answer to it. Returns whether there is one.

        A message without an answer leaves the history, as does one whose answer a guard ended: with it in the
        prompt, the guard would end the next answer as well.
        """
        self._conversation.add(message)
        if self._conversation.open_calls:
            return True
        answer, is_kept = Answer(), False
        try:
            async with aclosing(self._events()) as events:
                async for event in events:
                    self._screen.show(event)
                    answer.add(event)
                    is_kept = isinstance(event, Ended) and event.finish_reason != "content_filter"
        except asyncio.CancelledError:
            self._keep(answer, is_whole=False)
            raise
        except ChatError as error:
            self._screen.note(str(error))
            self._leave()
            return False
        if is_kept:
            self._keep(answer, is_whole=True)
        else:
            self._leave()
        return True

    def _keep(self, answer: Answer, *, is_whole: bool) -> None:
        if kept := answer.message(is_whole=is_whole):
            self._conversation.answer(kept)
        else:
            self._conversation.undo()

    def _leave(self) -> None:
        self._conversation.undo()
        if self._is_interactive:
            self._screen.note("the message leaves the history; /retry sends it again")

    async def _events(self) -> AsyncGenerator[ChatEvent, None]:
        """The answer's events. Raises `ChatError`."""
        delay, has_begun = RETRY_DELAY, False
        while True:
            try:
                await choose_model(self._client, self._conversation)
                async with aclosing(self._client.ask(self._conversation.body())) as events:
                    async for event in events:
                        has_begun = True
                        yield event
                return
            except NotOperatorError as error:
                self._screen.note(f"{error}; they are not shown")
                self._client.shows_decisions = False
            except LostError as error:
                if has_begun or not self._is_interactive:
                    raise
                self._screen.note(f"{error}; another attempt in {delay:g} s (Ctrl-C: none)")
                await asyncio.sleep(delay)
                delay = min(2 * delay, MAX_RETRY_DELAY)


async def choose_model(client: ChatClient, conversation: Conversation) -> None:
    """Take the server's first model if none is chosen. Raises `ChatError`."""
    if conversation.model is None:
        models = await client.models()
        if not models:
            raise ChatError("the server names no models; give one with --model")
        conversation.model = models[0]
