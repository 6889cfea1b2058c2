"""The errors of engines: who is at fault, and what the caller may read."""

from collections.abc import Callable


class RequestError(ValueError):
    """The caller is at fault. The message is for the caller; `param` names the field.

    `unquoted`: if the message quotes another server, the same error in Weir's words. It is for callers who
    may only see text that hooks have seen.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
        unquoted: "RequestError | None" = None,
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status
        self.unquoted = unquoted


class EngineError(RuntimeError):
    """The engine is at fault. The caller may see the message: it holds no model output and no internals."""

    def __init__(self, message: str, *, status: int = 500) -> None:
        super().__init__(message)
        self.status = status


class ShutdownError(EngineError):
    """The engine ends its requests because its server stops. Nothing has failed."""

    def __init__(self, message: str = "The engine is shutting down.") -> None:
        super().__init__(message, status=503)


class TextTooLongError(EngineError):
    """A model that judges was given a text that is longer than its context."""


class DeadEngineError(EngineError):
    """The engine can never serve again. Only a new process can."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=503)


Failure = Callable[[], EngineError]
"""Makes the error of every call of an engine that is out of service."""


def not_started() -> EngineError:
    """The failure of an engine before its start."""
    return EngineError("The engine has not been started.", status=503)


class DeviceLostError(DeadEngineError):
    """No call on the device can work any more, for any model of the process."""

    def __init__(self, message: str = "The engine's device has failed.") -> None:
        super().__init__(message)


class LogitsProcessorError(EngineError):
    """The logits processor `processor` failed its request (contract 7.6). The message does not name it.

    `left_no_token`: it masked all tokens. Otherwise it raised, or its logits cannot be used.
    """

    def __init__(self, processor: str, *, left_no_token: bool = False) -> None:
        super().__init__("A logits processor failed, so the request was ended.")
        self.processor = processor
        self.left_no_token = left_no_token


class QueueFullError(EngineError):
    """Too many requests wait already (HTTP 429). `retry_after`: the seconds to wait before another try.
    `unquoted` is as in `RequestError`."""

    code = "queue_full"  # as the API's clients read it

    def __init__(
        self,
        message: str = "The engine's queue is full; try again later.",
        *,
        retry_after: int = 1,
        unquoted: "QueueFullError | None" = None,
    ) -> None:
        super().__init__(message, status=429)
        self.retry_after = retry_after
        self.unquoted = unquoted


class CallerLimitError(QueueFullError):
    """This caller has too many requests running (HTTP 429). The message names the limit."""

    code = "rate_limit_exceeded"
