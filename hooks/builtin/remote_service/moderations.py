"""OpenAI's moderations: https://platform.openai.com/docs/api-reference/moderations."""

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from hooks.builtin.remote_service.api import Answer, Api, Label, Labelled
from hooks.builtin.remote_service.service import DetectorError
from hooks.detect.detector import Match


class Moderation(Answer):
    flagged: bool
    categories: dict[Label, bool | None]
    category_scores: dict[Label, float | None] = Field({})


class ModerationList(Answer):
    results: list[Moderation]


@dataclass(frozen=True, kw_only=True)
class Moderations(Labelled, Api[Moderation]):
    """Judges a text as a whole, so a match covers the whole text. Labels are categories."""

    threshold: float | None = None
    """The least score that counts; None: everything that the service flags."""
    model: str | None = None

    async def _ask(self, texts: list[str], is_prompt: bool) -> list[Moderation]:
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
