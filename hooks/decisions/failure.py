"""The failure of a hook: the reply that represents it, the error that ends its request, and the log line.

An exception's message may hold model output, because a hook's author may have put it there. The log names
only the exception's type and the line that raised it, unless the level is debug.
"""

import inspect
import logging

from engine.protocol import GenerationRequest
from engine.protocol.prompt_size import CONTEXT_LENGTH
from hooks.api import PromptTooLongError
from hooks.decisions.tally import Tally
from hooks.loading.alarm import interrupt
from hooks.loading.loader import LoadedHook

logger = logging.getLogger("weir.hooks")

_FAILED = "A guardrail failed, so the request was ended."
_TOO_LONG = f"{CONTEXT_LENGTH} limited here. A guardrail of this server cannot read a prompt of this length."


class HookError(RuntimeError):
    """A hook failed its request, closed (contract 4.1). `hook` names it; the message names nothing."""

    def __init__(self, hook: str, param: str | None = None) -> None:
        """`param`: the prompt's field, if the prompt is too long for the hook (contract 4.4)."""
        super().__init__(_FAILED if param is None else _TOO_LONG)
        self.hook = hook
        self.param = param

    @classmethod
    def of(cls, hook: LoadedHook, error: BaseException, request: GenerationRequest) -> "HookError":
        """The error for a hook that failed by `error`."""
        return cls(hook.name, request.prompt_field if isinstance(error, PromptTooLongError) else None)


class BadVerdictError(ValueError):
    """A hook returned no verdict, or one that does not fit the chunk (contract 3.8)."""


class HookFailure:
    """A hook's reply if it has none: it raised `error`, or missed its deadline."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    @classmethod
    def late(cls) -> "HookFailure":
        return cls(TimeoutError("its deadline passed"))


def count_failure(hook: LoadedHook, tally: Tally, error: BaseException) -> None:
    """Count the failure and log it."""
    tally.count("error")
    if not tally.is_logged:
        return
    level = logging.INFO if isinstance(error, PromptTooLongError) else logging.ERROR
    logger.log(level, "hook %s failed: %s", hook.name, place_of(error))
    logger.debug("hook %s failed", hook.name, exc_info=error)


def place_of(error: BaseException) -> str:
    """An exception's type and the line that raised it; never its message."""
    if isinstance(error, BadVerdictError):
        return str(error)  # the message is Weir's own and holds no output
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        if traceback.tb_next.tb_frame.f_code is interrupt.__code__:
            break  # this frame is where the alarm found the hook
        traceback = traceback.tb_next
    if traceback is None:
        return type(error).__name__
    return f"{type(error).__name__} at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"


def no_verdict(reply: object) -> BaseException:
    """The error for a reply that is not a verdict."""
    if isinstance(reply, HookFailure):
        return reply.error
    discard(reply)
    return BadVerdictError(f"it returned {type(reply).__name__}, which is not a verdict")


def discard(reply: object) -> None:
    """Drop a reply that has no effect."""
    if inspect.iscoroutine(reply):
        reply.close()  # a plain hook's coroutine is never awaited (contract 3.8)
