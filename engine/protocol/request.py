"""A request, as an engine gets it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.protocol.fields.sampling_params import SamplingParams

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""The roles of a chat's messages, as the API names them."""

Prompt = str | tuple[int, ...]
"""A text, or its token ids."""

Endpoint = Literal[
    "chat", "completions", "responses", "messages", "embeddings", "rerank", "score", "moderations", "guard"
]

_PROMPT_FIELDS = {"completions": "prompt", "rerank": "documents", "score": "text_1"}
_PROMPT_FIELDS |= dict.fromkeys(("responses", "embeddings", "moderations"), "input")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request of a caller: all of one HTTP request.

    A request for completions has `prompts`, and each prompt gets `sampling.n` outputs. Output `p * n + i` is
    the i-th output of prompt p. A chat, on three endpoints, has `messages`. Embeddings, ranks and scores have
    `prompts` and no output (`engine.protocol.relay`). No engine gets a request for moderations, or one of
    another gateway (`guard`): hooks judge its texts, which are `prompts`, `messages`, or outputs.
    """

    request_id: str
    model: str
    """The model's name, as the caller gave it."""
    endpoint: Endpoint
    messages: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Prompt, ...] = ()
    sampling: SamplingParams = SamplingParams()  # noqa: RUF009 (it is frozen)
    given: frozenset[str] = frozenset()
    """Names of the fields that the caller set, even to a default: an upstream may have other defaults."""
    echo: bool = False
    """Begin each output with its prompt on the `echo` channel. It has logprobs if the output has. For a chat
    no engine acts on it (`engine.text.chat_echo`)."""
    return_token_ids: bool = False
    """The caller wants token ids. Weir's own engine always gives them; an upstream must be asked."""
    cache_salt: str | None = field(default=None, repr=False)
    """Prompts share cached tokens only with requests of the same salt, or if None, without a salt."""
    num_unsalted_tokens: int = 0
    """Tokens at the beginning of each prompt that are shared whatever the salt is. If it is not 0, requests
    of the same salt share outputs too. A caller never sets it; engines elsewhere ignore it."""
    priority: int = 0
    """An engine that schedules by priority serves lower numbers first."""
    stream: bool = False
    """Whether the caller wants a stream. The engine's deltas are the same either way."""
    hooks: tuple[str, ...] = ()
    """Additional hooks to run, from the list that the server lets a request name."""
    caller: str = field(default="", repr=False)
    """Identifies the caller: callers share the service equally. A digest, which no client sees and no client
    chooses (unlike `user`). It changes with each start of the service."""
    user: str | None = None
    """The end user's identity, as the caller gave it."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the caller's JSON that have no field here (see `engine.protocol.fields`)."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools that the model may call, as in the API: `{"type": "function", "function": {"name": ...}}`."""
    tool_choice: str | Mapping[str, Any] | None = None
    """`none`, `auto`, `required`, or the API's form of a function's name. None means `auto`."""
    parallel_tool_calls: bool = True
    """Whether one output may make more than one call."""
    caller_body: Mapping[str, Any] | None = field(default=None, repr=False)
    """The caller's JSON, if it is of the Messages API: its fields and their blocks in the caller's order,
    with the changes of hooks in `system`, `messages` and `tools`. An upstream of that API gets these as they
    are. The service sets it once hooks have decided; they never see it."""
    generates: bool = True
    """Whether the caller wants an answer. False: hooks admit the prompt, and no engine generates for it: a
    count of its tokens, moderations, a response that is only prepared."""
    steers_end: bool = False
    """Whether a field of the caller may choose the place of an end that the engine calls the model's own
    (`engine.protocol.fields.asked`). The service sets it."""
    taint: str | None = None
    """Why the prompt is not to be trusted, such as that it holds a tool's result. A hook sets it for other
    hooks (contract 8.15); engines ignore it."""

    @property
    def is_chat(self) -> bool:
        """Whether the request has `messages`."""
        return self.endpoint in ("chat", "responses", "messages", "guard")

    @property
    def prompt_field(self) -> str:
        """The field of the caller's JSON that holds the prompt."""
        return _PROMPT_FIELDS.get(self.endpoint, "messages")

    @property
    def returns_prompt(self) -> bool:
        """Whether an engine begins each output with its whole prompt on the `echo` channel."""
        return self.sampling.prompt_logprobs is not None or (self.echo and not self.is_chat)

    @property
    def num_prompt_logprobs(self) -> int | None:
        """Top alternatives for each token of the prompt that is returned. None: no logprobs."""
        echoed = self.sampling.logprobs if self.echo and not self.is_chat else None
        wanted = [num for num in (self.sampling.prompt_logprobs, echoed) if num is not None]
        return max(wanted, default=None)

    @property
    def num_outputs(self) -> int:
        return self.sampling.n * max(1, len(self.prompts))

    @property
    def num_candidates(self) -> int:
        """Candidates to generate for all prompts. `num_outputs` of them become outputs."""
        return self.sampling.num_candidates * max(1, len(self.prompts))

    @property
    def is_searched(self) -> bool:
        """Whether outputs are chosen from finished candidates (`best_of`, beam search), and cannot rewind."""
        return self.num_candidates > self.num_outputs or bool(self.extra.get("use_beam_search"))

    @property
    def is_guided(self) -> bool:
        """Whether the outputs may have to follow a grammar."""
        named = {"response_format", "structured_outputs", *(n for n in self.extra if n.startswith("guided_"))}
        is_forced = self.uses_tools and self.tool_choice not in (None, "auto")
        return is_forced or any(self.extra.get(name) not in (None, False, {"type": "text"}) for name in named)

    @property
    def uses_tools(self) -> bool:
        """Whether the model may call a tool."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools, and of `functions`, the API's older form of them, in their order."""
        functions = self.extra.get("functions")
        named: list[Any] = [*functions] if isinstance(functions, list | tuple) else []
        for tool in self.tools:
            named += (tool, tool.get(str(tool.get("type"))))
        names = [one.get("name") for one in named if isinstance(one, Mapping)]
        return tuple(name for name in names if isinstance(name, str))
