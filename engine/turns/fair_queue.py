"""Turns between callers: a caller with many requests delays only its own.

This is round robin, as in fair queuing: each caller has its own queue, and callers take turns.
"""

from bisect import bisect_left, insort_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items that wait, by caller.

    The callers are in a ring. A caller joins at its end, and goes to its end with each item that is dequeued.
    So a caller waits for at most one turn of each other caller.
    """

    def __init__(self, key: Callable[[T], Any] = lambda _: 0) -> None:
        """`key`: the order of one caller's own items. Items with the same key keep the order of arrival."""
        self._key = key
        self._ring: OrderedDict[str, list[T]] = OrderedDict()
        """No caller's list is empty."""

    def __len__(self) -> int:
        return sum(map(len, self._ring.values()))

    def __bool__(self) -> bool:
        return bool(self._ring)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._ring.values())

    def add(self, caller: str, item: T) -> None:
        insort_right(self._ring.setdefault(caller, []), item, key=self._key)

    def first(self, load: Callable[[str, T], Any] = lambda _caller, _item: 0) -> T | None:
        """The item that is next: the first one of the caller with the least `load(caller, its first item)`.
        The ring decides between equals. A caller whose load is None is passed over."""
        loads = [(load(caller, items[0]), items[0]) for caller, items in self._ring.items()]
        able = [one for one in loads if one[0] is not None]
        return min(able, key=lambda one: one[0])[1] if able else None

    def dequeue(self, caller: str, item: T) -> None:
        """Remove an item whose turn has come."""
        self.remove(caller, item)
        if caller in self._ring:
            self._ring.move_to_end(caller)

    def remove(self, caller: str, item: T) -> bool:
        """Forget an item. False: it did not wait."""
        items, key = self._ring.get(caller, []), self._key(item)
        at = bisect_left(items, key, key=self._key)
        while at < len(items) and items[at] is not item and self._key(items[at]) == key:
            at += 1
        if at == len(items) or items[at] is not item:
            return False
        del items[at]
        if not items:
            del self._ring[caller]
        return True
