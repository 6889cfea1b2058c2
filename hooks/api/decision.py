"""Hooks' decisions, as `on_decision` and listeners get them (contract 8.2, 8.14)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from engine.protocol import Channel

Action = Literal[
    "suppress",
    "terminate",
    "rewind",
    "redact",
    "rewrite",
    "suspect",
    "ask",
    "approve",
    "deny",
    "judged",
    "hold",
    "refuse",
    "restore",
    "rewrite_prompt",
    "taint",
    "error",
]
"""`suspect`: the hook returned `suspect`. `judged`: the stream of a hook that judges ended. Neither withholds
anything. `ask`: a person is asked about the tool call. `approve`, `deny`: the answer; the reason names who
gave it. `hold`: a hold ended. Its text was released untouched; or, with the reason `aborted`, the stream
ended early and the text was withheld. `restore`: a value of the caller's came back, or passed. `refuse`,
`rewrite_prompt` and `taint` concern the request. `error`: a hook failed."""
NOTES: frozenset[Action] = frozenset({"suspect", "taint", "ask", "approve"})
"""The actions of verdicts that change no text."""
Mode = Literal["enforce", "shadow"]


class Change(NamedTuple):
    """The effect of a verdict on a part of the pending text. Positions count characters of it."""

    action: Action
    """The name under which it is counted and reported."""
    start: int
    end: int
    replacement: str = ""
    """Released in place of the part."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The effect of one hook's verdict, if the verdict did more than let the new text through."""

    request_id: str
    user: str | None
    """The caller's identity, as the caller gave it."""
    model: str
    """The model's name, as the caller gave it."""
    endpoint: str
    hook: str
    """The hook's name."""
    hook_index: int = 0
    """The hook's place among those of the request, from 0. It was shown the text that the hook before it
    released."""
    action: Action
    reason: str | None = None
    """The hook's own reason; for an error, the exception's type and the line that raised it; for `judged`,
    `not_asked` if the judge was not asked about the end of the text, `aborted` or `error` if the stream ended
    early."""
    mode: Mode = "enforce"
    """shadow: the verdict had no effect; the decision has the effect that it would have had."""
    output_index: int | None = 0
    """None: the decision concerns the request."""
    channel: Channel | Literal["prompt"] = "content"
    tool_name: str | None = None
    call_index: int | None = None
    """On the channel `tool_call`: the number of the call in its output, from 0. Withheld calls count."""
    is_own_tool: bool = False
    """The request has no tool of this name, so the name is the model's own word and not for a log."""
    offset: int = 0
    """The beginning of the affected text, in characters of the stream's text as this hook was shown it."""
    num_withheld: int = 0
    """Characters that were not released as they were."""
    num_released: int = 0
    """Characters of a redaction or a rewrite that were released in their place."""
    num_closing: int = 0
    """For `terminate`: characters of its closing text, which is the content's end. Later hooks see it."""
    held_seconds: float = 0.0
    """Seconds for which the hook had held the first affected character."""
    num_judged: int = 0
    """For `judged`: the tokens of the stream that the hook released and its judge has judged."""
    num_unjudged: int = 0
    """For `judged`: the tokens that the hook released, and that were not judged by the stream's end."""
    max_unjudged: int = 0
    """For `judged`: the most tokens at a time that were released and not judged while the judge was asked."""
    withheld: str = field(default="", repr=False)
    """The withheld characters themselves. Not for a log."""


Listener = Callable[[Decision], object]
"""Called with each decision, before the client receives the result (contract 8.14). It must not raise."""


class Held(NamedTuple):
    """Text that one hook holds in one stream."""

    output_index: int
    channel: Channel
    hook: str
    """The hook's name."""
    num_held: int
    """Characters."""
