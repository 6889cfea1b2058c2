"""The log line of a logits processor that failed."""

import logging
import traceback

logger = logging.getLogger("weir.engine")


class BadLogitsError(ValueError):
    """A processor left logits that cannot be used. The message is written here, and quotes no text."""


def log_failure(name: str, what: str, error: BaseException) -> None:
    """Log the error's type and place only. The message and the traceback may quote withheld text, so they are
    logged at level DEBUG alone."""
    logger.error("logits processor %s %s: %s", name, what, _described(error))
    logger.debug("logits processor %s %s", name, what, exc_info=error)


def _described(error: BaseException) -> str:
    if isinstance(error, BadLogitsError):
        return str(error)
    kind, frames = type(error).__name__, traceback.extract_tb(error.__traceback__, -1)
    return f"{kind} at {frames[0].filename}:{frames[0].lineno}" if frames else kind
