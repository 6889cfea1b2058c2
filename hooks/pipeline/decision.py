"""What a hook decided, for those that keep account of it: `Decision`, and how verdicts become some."""

from collections import deque
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal

from engine.protocol import Channel, GenerationRequest
from hooks.api import Chunk, Redact, Rewind, StreamContext, Suppress, Terminate, Verdict

Action = Literal[
    "suppress", "terminate", "rewind", "redact", "rewrite", "hold", "refuse", "rewrite_prompt", "error"
]
"""`hold`: a hold came to its end: what was held was released as it was; or, with the reason `aborted`, the
stream ended before its time, and it was not. `refuse` and `rewrite_prompt` are of the request. `error`: the
hook failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What came of one hook's verdict, where that is more than letting through what was just shown."""

    request_id: str
    user: str | None
    """The caller's identity, as the caller gave it."""
    model: str
    """As the caller named it."""
    endpoint: str
    hook: str
    """The hook's name."""
    action: Action
    reason: str | None = None
    """The hook's own; of an error, the exception's type and the line that raised it."""
    mode: Literal["enforce", "shadow"] = "enforce"
    """shadow: it would have been so, and had no effect."""
    output_index: int | None = 0
    """None: it is about the request."""
    channel: Channel | Literal["prompt"] = "content"
    tool_name: str | None = None
    is_own_tool: bool = False
    """The request has no tool of that name: it is the model's own word, and not for a log either."""
    offset: int = 0
    """Where it begins: characters of the stream's text, as this hook was shown it."""
    num_withheld: int = 0
    """Characters that did not go out as they were."""
    held_seconds: float = 0.0
    """How long the hook had held the first of them; of a `hold`, the first of those released."""
    withheld: str = field(default="", repr=False)
    """The characters themselves. Not for a log."""


class Witness:
    """Makes decisions of what one hook says on one stream. It holds no text, and when which of it came."""

    __slots__ = ("_arrivals", "_context", "_decisions", "_hook", "_mode", "_num_pieces", "_num_shown")

    def __init__(self, context: StreamContext, hook: str, is_shadow: bool, decisions: list[Decision]) -> None:
        """`decisions`: where to put them."""
        self._context = context
        self._hook = hook
        self._mode: Literal["enforce", "shadow"] = "shadow" if is_shadow else "enforce"
        self._decisions = decisions
        self._num_pieces = 0
        self._num_shown = 0
        """Characters of the context's first so many pieces."""
        self._arrivals: deque[tuple[int, float]] = deque()
        """For each piece of what is held, where it ends and when it came."""

    def decided(self, chunk: Chunk, verdict: Verdict, action: str, num_held: int) -> None:
        """`verdict` was carried out as `action`, and `num_held` characters stay undecided."""
        pending = chunk.pending
        end = self._shown()
        start = end - len(pending)
        now = monotonic()
        if chunk.text_diff:
            self._arrivals.append((end, now))
        match verdict:
            case Suppress(reason=reason):
                self._tell(now, "suppress", start, pending, reason)
            case Terminate(reason=reason, after=after):
                self._tell(now, "terminate", start + (after or 0), pending[after or 0 :], reason)
            case Rewind(reason=reason, after=after):
                self._tell(now, "rewind", start + (after or 0), pending[after or 0 :], reason)
            case Redact(spans=spans) if spans:
                for first, last, _, *reasons in sorted(spans, key=lambda span: span[:2]):
                    self._tell(now, "redact", start + first, pending[first:last], *reasons)
            case _ if action == "rewrite":
                self._tell(now, "rewrite", start, pending)
            case _ if num_held < len(pending) and len(pending) > len(chunk.text_diff):
                self._tell(now, "hold", start, "")
        while self._arrivals and self._arrivals[0][0] <= end - num_held:
            self._arrivals.popleft()

    def failed(self, pending: str, reason: str) -> None:
        self._tell(monotonic(), "error", self._shown() - len(pending), pending, reason)

    def aborted(self, held: str) -> None:
        """The stream ended before its time, and nothing of what was held got out."""
        if held:
            self._tell(monotonic(), "hold", self._shown() - len(held), held, "aborted")

    def _shown(self) -> int:
        """Characters that the hook was shown."""
        pieces = self._context.pieces
        for i in range(self._num_pieces, len(pieces)):
            self._num_shown += len(pieces[i])
        self._num_pieces = len(pieces)
        return self._num_shown

    def _tell(
        self, now: float, action: Action, offset: int, withheld: str, reason: str | None = None
    ) -> None:
        came = next((when for end, when in self._arrivals if end > offset), now)
        context, request = self._context, self._context.request
        self._decisions.append(
            Decision(
                request_id=request.request_id,
                user=request.user,
                model=request.model,
                endpoint=request.endpoint,
                hook=self._hook,
                action=action,
                reason=None if reason is None else str.__str__(reason),
                mode=self._mode,
                output_index=context.output_index,
                channel=context.channel,
                tool_name=context.tool_name,
                is_own_tool=bool(context.tool_name) and context.tool_name not in request.tool_names,
                offset=offset,
                num_withheld=len(withheld),
                held_seconds=now - came,
                withheld=withheld,
            )
        )


def of_prompt(
    request: GenerationRequest, hook: str, is_shadow: bool, action: Action, reason: str | None
) -> Decision:
    """What a hook decided on the request itself."""
    return Decision(
        request_id=request.request_id,
        user=request.user,
        model=request.model,
        endpoint=request.endpoint,
        hook=hook,
        action=action,
        reason=reason,
        mode="shadow" if is_shadow else "enforce",
        output_index=None,
        channel="prompt",
    )
