"""ApplyGuardrail of Amazon Bedrock:
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ApplyGuardrail.html."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from hooks.builtin.remote_service.api import NAMELESS, Answer, Label, Labelled, OneTextApi
from hooks.builtin.remote_service.changes import changes
from hooks.builtin.remote_service.service import DetectorError
from hooks.detect.detector import Match


class Finding(Answer):
    action: str = "NONE"
    """`BLOCKED` for the whole text, `ANONYMIZED` for this part of it, `NONE` if it is only reported."""
    name: Label | None = None
    type: Label | None = None
    match: str | None = None

    @property
    def label(self) -> str:
        return self.name or self.type or NAMELESS


Findings = Annotated[list[Finding] | Any, Field(union_mode="left_to_right")]
"""The findings of one kind, such as `piiEntities`, or another value."""
Policy = Annotated[dict[str, Findings] | Any, Field(union_mode="left_to_right")]
"""The findings of one policy, by their kinds, or another value."""


class Output(Answer):
    text: str


class Characters(Answer):
    guarded: int
    total: int


class Coverage(Answer):
    text_characters: Characters | None = Field(None, alias="textCharacters")


class Assessed(Answer):
    action: Literal["NONE", "GUARDRAIL_INTERVENED"]
    outputs: list[Output]
    assessments: list[dict[str, Policy]]
    coverage: Coverage | None = Field(None, alias="guardrailCoverage")

    @property
    def findings(self) -> list[Finding]:
        """The findings that do something to the text."""
        policies = [policy for assessment in self.assessments for policy in assessment.values()]
        kinds = [kind for policy in policies if isinstance(policy, dict) for kind in policy.values()]
        found = [one for kind in kinds if isinstance(kind, list) for one in kind]
        return [one for one in found if isinstance(one, Finding) and one.action != "NONE"]


@dataclass(frozen=True, kw_only=True)
class Bedrock(Labelled, OneTextApi[Assessed]):
    """Blocks a text, or masks parts of it. Labels are the names and the types of what it finds."""

    async def _ask_one(self, text: str, is_prompt: bool) -> Assessed:
        body = {"source": "INPUT" if is_prompt else "OUTPUT", "content": [{"text": {"text": text}}]}
        return Assessed.model_validate_json(await self.service.post(body))

    def _matches(self, text: str, result: Assessed) -> Iterator[Match]:
        covered = result.coverage and result.coverage.text_characters
        if covered and covered.guarded < covered.total:
            raise DetectorError("the service judged only a part of the text")
        findings = result.findings
        wanted = [one for one in findings if self._is_wanted(one.label)]
        if findings and all(one.action == "ANONYMIZED" for one in findings):
            yield from self._masked(text, result, findings)
        elif wanted or (result.action != "NONE" and not findings):
            blocking = [one for one in wanted if one.action != "ANONYMIZED"]
            yield Match(0, len(text), [*blocking, *wanted, Finding()][0].label)

    def _masked(self, text: str, result: Assessed, findings: list[Finding]) -> Iterator[Match]:
        """The masked parts. The API gives no places, so they are those that its output changed."""
        if len(result.outputs) != 1:
            raise DetectorError("the service answered for more or fewer texts than it was asked about")
        for start, end in changes(text, result.outputs[0].text):
            part = text[start:end]
            labels = [one.label for one in findings if one.match and (one.match in part or part in one.match)]
            wanted = [label for label in labels if self._is_wanted(label)]
            if wanted or not labels:
                yield Match(start, end, [*wanted, NAMELESS][0])
