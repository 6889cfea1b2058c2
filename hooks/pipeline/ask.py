"""The values that the guard's machine and its driver exchange.

The machine is an iterator. It yields an `Ask` for each verdict that it needs, and a `Step` at its end.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from engine.protocol import Delta, GenerationRequest, Rewind
from hooks.api import Chunk
from hooks.decisions.tally import Tally
from hooks.loading.loader import LoadedHook

Reply = Any
"""The hook's own return value, unchecked, or a `HookFailure`."""


@dataclass(slots=True, eq=False, repr=False)
class Ask:
    """A question: which verdict has `hook` on `shown`? The driver sets `reply` before the machine continues.

    One object serves all questions of a stage, so it is valid until the next question.
    """

    hook: LoadedHook
    tally: Tally
    """Counts the time that the call takes."""
    method: Callable[[Any], Any]
    """The hook's `__call__`, or its `on_request`."""
    is_async: bool
    shown: Chunk | GenerationRequest | None = None
    """The argument for `method`."""
    reply: Reply = None
    is_abandoned: bool = False
    """The request was cancelled and the call continues. The hook gets no last call, which would overlap with
    it (contract 2.3)."""

    @property
    def may_run_on_thread(self) -> bool:
        """Whether the call may run on another thread: a thread-safe hook reads a prompt (contract 8.12)."""
        return self.hook.is_thread_safe and isinstance(self.shown, GenerationRequest)

    @property
    def is_aborted(self) -> bool:
        """Whether this is the last call of a stream that ended early. The reply has no effect."""
        return isinstance(self.shown, Chunk) and self.shown.aborted


@dataclass(slots=True)
class HookReply:
    """A reply that is known before its hook is asked."""

    place: int
    """The stage's place in the stream."""
    chunk: Chunk
    """The chunk that it answers."""
    reply: Reply


@dataclass(frozen=True, slots=True)
class Question:
    """A tool call that waits for a person (contract 3.21)."""

    call: Delta
    """The whole call, as it leaves if the person approves it."""
    hook: str
    """The name of the hook that asked first."""
    hook_index: int
    tool_name: str | None
    """The tool's name as hooks know it (contract 8.17)."""
    is_own_tool: bool
    """Whether the caller has no such tool: the model made its name."""
    reason: str
    text: str | None
    """The end of the answer if the person refuses the call."""
    is_first_text: bool
    """Whether the answer has no text before it."""
    is_only_call: bool
    """Whether no other call of the output has left by now, apart from calls that a person decides on."""


@dataclass(slots=True)
class Step:
    """The result of one run of the machine: for a delta, a prompt or the end. Awaiting a step returns it at
    once, so callers need not know whether a hook had to be awaited."""

    released: list[Delta]
    """The deltas that the client may have now."""
    rewind: Rewind | None = None
    """The place that the engine has to rewind this delta's output to."""
    is_over: bool = False
    """Whether every output has its finish reason and a hook ended one: the engine's work can be cancelled."""
    refused: str | None = None
    """The reason of a hook that refused the prompt and gave no text to answer with."""
    questions: Sequence[Question] = ()
    """The tool calls that a person is asked about from now on. They are not in `released`."""
    error: Exception | None = None
    """The error that ends the request: a hook failed, or the engine broke its protocol."""
    refused_at: str | None = None
    """The place of the text at fault, if the hook that refused named one."""

    def __await__(self) -> Generator[Any, None, "Step"]:
        yield from ()
        return self


Machine = Generator[Ask | Step, None, None]
"""One run of the guard's machine: questions, each of which has its reply before the next, and the `Step`."""

T = TypeVar("T")
Asking = Generator[Ask, None, T]
"""A part of the machine that asks questions, and returns a value."""
