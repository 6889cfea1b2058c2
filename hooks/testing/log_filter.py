"""Logs each line once while hooks are run again and again."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logged_once() -> Iterator[None]:
    """Inside, no line about hooks is logged twice."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        line = record.getMessage()
        is_new = line not in seen
        seen.add(line)
        return is_new

    logger = logging.getLogger("weir.hooks")
    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)
