"""Imports of libraries that only an extra of the distribution brings."""

from collections.abc import Iterator
from contextlib import contextmanager

from engine.protocol.parts import how_to_install


@contextmanager
def from_extra(extra: str, library: str, needed_by: str = "the guard") -> Iterator[None]:
    """Around an import of `library`. If it is missing, the `ImportError` names the extra to install."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{needed_by} needs {library}: {how_to_install(extra)}") from error
