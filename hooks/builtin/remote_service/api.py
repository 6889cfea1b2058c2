"""The common parts of the APIs that judge texts: requests, labels, and answers that make sense."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from hooks.builtin.remote_service.service import DetectorError, DetectorService
from hooks.detect.detector import Match

MAX_TEXTS = 16
"""Most texts that are asked about at a time."""
NAMELESS = "remote"
"""The name of a match if the service gives none."""
CONFIG = ConfigDict(strict=True, allow_inf_nan=False, hide_input_in_errors=True)
"""Settings of the answer models. Errors do not show the answer, because it may repeat the judged text."""

Label = Annotated[str, Field(max_length=100)]
"""A name of what was found. It may be in the client's answer, in place of the text."""
Result = TypeVar("Result")


class Answer(BaseModel):
    model_config = CONFIG


@dataclass(frozen=True, kw_only=True)
class Api(ABC, Generic[Result]):
    """An API that returns a result for each text. All fields but `service` are arguments of the guard."""

    service: DetectorService

    async def judge(self, texts: Sequence[str], is_prompt: bool = False) -> list[list[Match]]:
        """Return the matches in each text. White space alone is not judged, because services refuse it.

        Raises the errors of `DetectorService.post`, `DetectorError` for an answer that makes no sense, and
        pydantic's `ValidationError` for an answer of another form."""
        found: list[list[Match]] = [[] for _ in texts]
        places = [place for place, text in enumerate(texts) if not text.isspace()]
        for start in range(0, len(places), MAX_TEXTS):
            some = places[start : start + MAX_TEXTS]
            results = await self._ask([texts[place] for place in some], is_prompt)
            if len(results) != len(some):
                raise DetectorError("the service answered for more or fewer texts than it was asked about")
            for place, result in zip(some, results, strict=True):
                found[place] = list(self._matches(texts[place], result))
        return found

    @abstractmethod
    async def _ask(self, texts: list[str], is_prompt: bool) -> Sequence[Result]:
        """Return the result for each text."""

    @abstractmethod
    def _matches(self, text: str, result: Result) -> Iterator[Match]:
        """Raises `DetectorError` for a result that makes no sense."""


class OneTextApi(Api[Result]):
    """An API that returns one result for a request. Each text is a request of its own."""

    async def _ask(self, texts: list[str], is_prompt: bool) -> list[Result]:
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._ask_one(text, is_prompt)) for text in texts]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [one.result() for one in asked]

    @abstractmethod
    async def _ask_one(self, text: str, is_prompt: bool) -> Result:
        """Send one request."""


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """The part of an API whose results have labels."""

    labels: frozenset[str] | None = None
    """The labels that count; None: all."""

    def _is_wanted(self, label: str) -> bool:
        return self.labels is None or label in self.labels
