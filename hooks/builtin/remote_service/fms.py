"""Text contents, the API of the detectors behind the FMS guardrails orchestrator (Detector API):
https://foundation-model-stack.github.io/fms-guardrails-orchestrator."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from hooks.builtin.remote_service.api import CONFIG, Answer, Api, Label, Labelled
from hooks.builtin.remote_service.service import DetectorError
from hooks.detect.detector import Match


class Detection(Answer):
    start: int
    """A position in the text, in characters."""
    end: int
    text: str | None = None
    detection: str
    detection_type: Label
    score: float = 1.0


DETECTIONS = TypeAdapter(list[list[Detection]], config=CONFIG)


@dataclass(frozen=True, kw_only=True)
class Fms(Labelled, Api[list[Detection]]):
    """Finds spans in a text. Labels are detections, or types of detections."""

    threshold: float | None = None
    """The least score that counts; None: everything that the service reports."""
    detector: str
    detector_params: dict[str, Any] = field(default_factory=dict)

    async def _ask(self, texts: list[str], is_prompt: bool) -> list[list[Detection]]:
        body = {"contents": texts, "detector_params": self.detector_params}
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
