"""What the log says of a logits processor that failed."""

import logging
import traceback

logger = logging.getLogger("weir.engine")


class BadLogitsError(ValueError):
    """A processor left what cannot be used. The message is of our own making, and names no text."""


def log_failure(name: str, what: str, error: BaseException) -> None:
    """By default its type and place alone: its message, or a value in its trace, may be a withheld text."""
    logger.error("logits processor %s %s: %s", name, what, _described(error))
    logger.debug("logits processor %s %s", name, what, exc_info=error)


def _described(error: BaseException) -> str:
    if isinstance(error, BadLogitsError):
        return str(error)
    kind, frames = type(error).__name__, traceback.extract_tb(error.__traceback__, -1)
    return f"{kind} at {frames[0].filename}:{frames[0].lineno}" if frames else kind
