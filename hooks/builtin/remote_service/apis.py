"""The two APIs by which services judge texts: their requests and their answers.

OpenAI's moderations: https://platform.openai.com/docs/api-reference/moderations. Text contents:
https://foundation-model-stack.github.io/fms-guardrails-orchestrator (Detector API).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from hooks.builtin.remote_service.service import DetectorError, DetectorService
from hooks.detect.detector import Match

MAX_TEXTS = 16
"""Most texts in one request."""
CONFIG = ConfigDict(strict=True, allow_inf_nan=False, hide_input_in_errors=True)
"""Settings of the answer models. Errors do not show the answer, because it may repeat the judged text."""


Label = Annotated[str, Field(max_length=100)]
"""A name of what was found. It may stand in the client's answer, in place of the text."""


class _Answer(BaseModel):
    model_config = CONFIG


class Moderation(_Answer):
    flagged: bool
    categories: dict[Label, bool | None]
    category_scores: dict[Label, float | None] = {}


class ModerationList(_Answer):
    results: list[Moderation]


class Detection(_Answer):
    start: int
    """A position in the text, in characters."""
    end: int
    text: str | None = None
    detection: str
    detection_type: Label
    score: float = 1.0


Result = TypeVar("Result")
DETECTIONS = TypeAdapter(list[list[Detection]], config=CONFIG)


@dataclass(frozen=True)
class Api(ABC, Generic[Result]):
    """An API that returns a result for each text. It judges up to `MAX_TEXTS` texts in one request."""

    service: DetectorService
    labels: frozenset[str] | None
    """The labels that count: categories, detections or types of detections; None: all."""
    threshold: float | None
    """The least score that counts; None: everything counts that the service reports or flags."""

    async def judge(self, texts: Sequence[str]) -> list[list[Match]]:
        """Return the matches in each text. Raises the errors of `DetectorService.post`, `DetectorError` for
        an answer that makes no sense, and pydantic's `ValidationError` for an answer of another form."""
        found: list[list[Match]] = []
        for start in range(0, len(texts), MAX_TEXTS):
            some = list(texts[start : start + MAX_TEXTS])
            results = await self._ask(some)
            if len(results) != len(some):
                raise DetectorError("the service answered for more or fewer texts than it was asked about")
            found += [list(self._matches(*pair)) for pair in zip(some, results, strict=True)]
        return found

    @abstractmethod
    async def _ask(self, texts: list[str]) -> list[Result]:
        """Send one request."""

    @abstractmethod
    def _matches(self, text: str, result: Result) -> Iterator[Match]:
        """Raises `DetectorError` for a result that makes no sense."""

    def _is_wanted(self, name: str) -> bool:
        return self.labels is None or name in self.labels


@dataclass(frozen=True)
class Moderations(Api[Moderation]):
    """OpenAI's moderations API. It judges a text as a whole, so a match covers the whole text."""

    model: str | None

    async def _ask(self, texts: list[str]) -> list[Moderation]:
        model = {} if self.model is None else {"model": self.model}
        answer = await self.service.post({"input": texts, **model})
        return ModerationList.model_validate_json(answer).results

    def _matches(self, text: str, result: Moderation) -> Iterator[Match]:
        if label := self._label(result):
            yield Match(0, len(text), label)

    def _label(self, result: Moderation) -> str | None:
        """Return the text's category, the one with the best score if several count; None if none counts.
        Raises `DetectorError` if the answer lacks a wanted category or its scores."""
        judged = result.categories if self.threshold is None else result.category_scores
        if missing := sorted((self.labels or frozenset()) - judged.keys()):
            raise DetectorError(f"the service has no category {', '.join(missing)}")
        if self.threshold is not None and not judged:
            raise DetectorError("the service gives no scores")
        least = 1.0 if self.threshold is None else self.threshold
        names = [name for name, one in judged.items() if self._is_wanted(name) and (one or 0.0) >= least]
        if not names and result.flagged and self.labels is None and self.threshold is None:
            return "flagged"
        return max(names, key=lambda name: (result.category_scores.get(name) or 0.0, name), default=None)


@dataclass(frozen=True)
class Contents(Api[list[Detection]]):
    """The text contents API. It finds spans in a text."""

    detector: str
    params: dict[str, Any]

    async def _ask(self, texts: list[str]) -> list[list[Detection]]:
        body = {"contents": texts, "detector_params": self.params}
        return DETECTIONS.validate_json(await self.service.post(body, {"detector-id": self.detector}))

    def _matches(self, text: str, result: list[Detection]) -> Iterator[Match]:
        """Raises `DetectorError` for a place outside the text, or a place with another text than reported."""
        for one in result:
            found = text[one.start : one.end]
            if not 0 <= one.start < one.end <= len(text) or one.text not in (None, found):
                raise DetectorError("the service found something that is not there")
            # The type comes first, because `detection` may be a sentence about the text.
            names = [name for name in (one.detection_type, one.detection) if self._is_wanted(name)]
            if names and one.score >= (self.threshold or 0.0):
                yield Match(one.start, one.end, names[0])
