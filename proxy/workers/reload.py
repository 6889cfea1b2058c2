"""A new configuration for all workers: all prepare it, and all of them take it or none.

A worker asks the supervisor for a reload (`reload_all`). The supervisor asks all workers, that one included,
and each answers for its own process (`ReloadAnswers`).
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from proxy.service.peers import Answerer, Ask
from proxy.service.reload import ReloadError, ReloadingError, Reloads
from proxy.settings.serve import ServeSettings

RELOAD_SECONDS = 300.0
"""Seconds in which all workers must have prepared another configuration."""


@dataclass(frozen=True, slots=True)
class PrepareReload:
    """A question to all workers: prepare this configuration. The answer says what is wrong, or is empty."""

    settings: ServeSettings


@dataclass(frozen=True, slots=True)
class FinishReload:
    """A question to all workers: take the prepared configuration, or drop it. The answer is empty."""

    takes: bool


@dataclass(frozen=True, slots=True)
class ReloadAll:
    """A question to the supervisor: reload all workers. The answer is a `Reloaded`."""


@dataclass(frozen=True, slots=True)
class ReloadBySignal:
    """A question to one worker: reload all workers, as a signal asks for. The answer is empty."""


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The end of a reload of all workers."""

    reason: str = ""
    """The reason why the new configuration cannot be used. Empty: it is used."""
    is_busy: bool = False
    """Another reload runs."""


class ReloadAnswers:
    """One worker's answers to the supervisor's questions."""

    def __init__(self, reloads: Reloads, loading: Callable[[], AbstractContextManager[None]]) -> None:
        """`loading`: the process shows that it lives inside, though hooks may keep its event loop waiting."""
        self._reloads = reloads
        self._loading = loading
        self._answering = asyncio.Lock()
        """Held while a question is answered. The supervisor may ask the next one without the answer."""
        self.answers: dict[type, Answerer] = {
            PrepareReload: self._prepare,
            FinishReload: self._finish,
            ReloadBySignal: self._reload_by_signal,
        }

    async def _prepare(self, question: PrepareReload) -> str:
        async with self._answering:
            try:
                with self._loading():
                    await self._reloads.prepare(question.settings)
            except ReloadError as error:
                return str(error)
            return ""

    async def _reload_by_signal(self, _: ReloadBySignal) -> str:
        await self._reloads.reload_by_signal()
        return ""

    async def _finish(self, question: FinishReload) -> str:
        async with self._answering:
            if question.takes:
                self._reloads.take()
            await self._reloads.drop()
            return ""


async def reload_all(ask: Ask) -> None:
    """Reload all workers, by the supervisor. Raises `ReloadError` and `ReloadingError`."""
    answers: list[Reloaded] = await ask(ReloadAll(), patience=RELOAD_SECONDS)
    if not answers:
        raise ReloadError("the supervisor does not answer")
    if answers[0].is_busy:
        raise ReloadingError
    if answers[0].reason:
        raise ReloadError(answers[0].reason)
