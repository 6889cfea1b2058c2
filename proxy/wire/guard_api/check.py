"""Values that every protocol of other gateways shares: the texts to judge, and the verdicts on them."""

from abc import abstractmethod
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.protocol import GenerationRequest, RequestError
from hooks.api.decision import NOTES, Decision
from proxy.wire.body import RequestBody

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
    """The texts of one question. Hooks judge `messages` and `tools` as a prompt, the rest as answers."""

    messages: Sequence[JSONObject] = ()
    tools: Sequence[JSONObject] = ()
    """The tools that the model may call: a part of the prompt."""
    context: Sequence[JSONObject] = ()
    """The messages that the answers answer. Hooks are not asked about them here."""
    texts: Sequence[str] = ()
    """Each is the content of an answer."""
    calls: Sequence[CheckedCall] = ()
    has_media: bool = False
    """Whether the answer has an image, sound or a file."""
    stream: str | None = None
    """The name of this answer among the caller's, if more of it may come in a later question. None: the texts
    are whole."""
    model: str | None = None
    user: str | None = None

    @property
    def is_prompt(self) -> bool:
        return bool(self.messages)

    def request(self, request_id: str, caller: str) -> GenerationRequest:
        """The request that the hooks are shown. Raises `RequestError` if there is nothing to judge."""
        if not (self.messages or self.texts or self.calls):
            raise RequestError("There is no text to judge.")
        return GenerationRequest(
            request_id=request_id,
            model=self.model or MODEL,
            endpoint="guard",
            messages=tuple(self.messages or self.context),
            tools=tuple(self.tools),
            stream=self.stream is not None,
            caller=caller,
            user=self.user,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict on one prompt, text or call."""

    blocked: str | None = None
    """The reason of the hook that refused or ended it."""
    decisions: Sequence[Decision] = ()

    @property
    def findings(self) -> list[Decision]:
        """The decisions with an effect: what hooks do in shadow mode is for the operator alone."""
        notes = {"hold", "judged", "restore", *NOTES}
        return [one for one in self.decisions if one.mode == "enforce" and one.action not in notes]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPrompt(Judged):
    request: GenerationRequest
    """As the hooks let it go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedText(Judged):
    text: str = ""
    """The text that the client may have if it ends here."""
    num_undecided: int = 0
    """Characters at its end that more text may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCall(Judged):
    call: CheckedCall | None = None
    """None: it was withheld."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The hooks' verdicts on one `Check`."""

    prompt: JudgedPrompt | None = None
    """None: the question has no prompt."""
    texts: Sequence[JudgedText] = ()
    calls: Sequence[JudgedCall] = ()
    hooks: Sequence[str] = ()
    """The names of the hooks that judged, in order."""
    prompt_readers: Container[str] = ()
    """The names of the hooks that read prompts."""

    @property
    def all(self) -> list[Judged]:
        prompt: list[Judged] = [] if self.prompt is None else [self.prompt]
        return [*prompt, *self.texts, *self.calls]

    @property
    def blocked(self) -> str | None:
        """The first reason."""
        return next((one.blocked for one in self.all if one.blocked is not None), None)

    def changed_call(self, check: Check) -> bool:
        """Whether a tool call may not go on as it is."""
        return [one.call for one in self.calls] != [*check.calls]


class Question(RequestBody):
    """The body of a question in one protocol."""

    @abstractmethod
    def check(self, names: Mapping[str, str], headers: Mapping[str, str]) -> Check:
        """The texts to judge. `names`: those in the path. Raises `RequestError` for what nobody can judge."""

    @abstractmethod
    def answer(self, check: Check, judged: Judgement) -> Any:
        """The answer, as JSON. Raises `APIError` for a change that the protocol has no place for."""
