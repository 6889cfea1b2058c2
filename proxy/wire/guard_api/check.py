"""What every protocol of other gateways has in common: the texts to judge, and what became of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

from engine.protocol import GenerationRequest, SamplingParams
from hooks.api.decision import Decision

JSONObject = dict[str, Any]
MODEL = "weir-guards"
"""The model's name where the gateway gives none."""


class CheckedCall(NamedTuple):
    """A tool call of an answer."""

    name: str
    arguments: str
    """JSON, as the model wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The texts of one question. The hooks judge `messages` and `tools` as a prompt, the rest as an answer."""

    messages: tuple[JSONObject, ...] = ()
    tools: tuple[JSONObject, ...] = ()
    """Those that the model may call: a part of the prompt."""
    texts: tuple[str, ...] = ()
    """Each is the content of an answer."""
    calls: tuple[CheckedCall, ...] = ()
    has_media: bool = False
    """Whether the answer has an image, sound or a file."""
    stream: str | None = None
    """What tells this answer from the caller's others, if more of it may come in a later question. None: the
    texts are whole."""
    model: str | None = None
    user: str | None = None
    metadata: Mapping[str, Any] | None = None

    @property
    def is_prompt(self) -> bool:
        return bool(self.messages)

    def request(self, request_id: str, caller: str) -> GenerationRequest:
        """The request that the hooks are shown. One for an answer has no prompt."""
        return GenerationRequest(
            request_id=request_id,
            model=self.model or MODEL,
            endpoint="guard",
            messages=self.messages,
            tools=self.tools,
            sampling=SamplingParams(),
            stream=self.stream is not None,
            caller=caller,
            user=self.user,
            metadata=self.metadata or {},
        )


class JudgedText(NamedTuple):
    """What the hooks let out of a text."""

    text: str
    """What the client may have if the text ends here."""
    num_undecided: int = 0
    """Characters at its end that more text may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The hooks' verdicts on one `Check`."""

    blocked: str | None = None
    """The reason of the hook that refused the prompt or ended the answer."""
    request: GenerationRequest | None = None
    """The prompt, as the hooks let it go on. None: the question has no prompt."""
    texts: Sequence[JudgedText] = ()
    calls: Sequence[CheckedCall | None] = ()
    """None: the call was withheld."""
    decisions: Sequence[Decision] = ()


class Question(Protocol):
    """The body of a question in one protocol."""

    @property
    def model(self) -> str | None: ...

    @classmethod
    def model_validate(cls, obj: Any) -> Self: ...

    def check(self, names: Mapping[str, str], headers: Mapping[str, str]) -> Check:
        """The texts to judge. `names`: those in the path. Raises `RequestError` for what no hook can judge."""

    def answer(self, check: Check, judged: Judgement) -> Any:
        """The answer, as JSON. Raises `RequestError` for a change that the protocol has no place for."""
