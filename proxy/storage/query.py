"""Operations on a database, without any I/O.

An operation is a generator. It yields a `Query`, gets the rows that the query gives, and returns the
operation's result. A `Database` runs each operation as one transaction.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, ClassVar, NamedTuple, TypeVar

T = TypeVar("T")


class StateError(Exception):
    """The shared state, or the store, does not answer, or not in time. The message holds no text of a
    caller."""


class Query(NamedTuple):
    """SQL with the parameters $1, $2 and so on."""

    sql: str
    values: tuple[Any, ...] = ()
    many: tuple[tuple[Any, ...], ...] | None = None
    """Run the query for each of these instead of for `values`."""


Row = tuple[Any, ...]
Steps = Generator[Query, list[Row], T]


class Database(ABC):
    """An SQLite or a PostgreSQL database. Its methods raise `StateError`."""

    blob: ClassVar[str]
    """The type of bytes."""
    serial: ClassVar[str]
    """The type of a primary key whose numbers the database gives, in ascending order."""
    now: ClassVar[str]
    """SQL for the database's time in whole seconds."""

    @abstractmethod
    async def start(self) -> None:
        """Called before the first operation."""

    @abstractmethod
    async def run(self, steps: Steps[T], *, alone: bool = True) -> T:
        """Run an operation as one transaction. `alone`: no other operation that is to run alone runs at the
        same time, in any process."""

    @abstractmethod
    async def aclose(self) -> None: ...
