"""The operations that every place for shared state has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from proxy.storage.reports import Report

LEASE = 15.0
"""Seconds after which the requests of a process that says nothing no longer count."""

ENTRY = 256
"""Bytes that a response, or an item with an id, takes in addition to its JSON, about."""


class Owner(NamedTuple):
    """Who stored a response. Nobody else reads it."""

    caller: str
    """The caller that shares the store with other callers (`proxy.http.door`)."""
    key: str
    """A digest of the key in the request, which a server without keys does not check. It distinguishes
    callers at one address."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as it was released, and the conversation that ends with it."""

    body: bytes
    """The response object, as JSON."""
    items: bytes
    """All items of the conversation, one item's JSON a line."""

    def size(self, num_ids: int) -> int:
        """Bytes that it takes, about. `num_ids`: how many of its items have an id."""
        return len(self.body) + len(self.items) + ENTRY * (1 + num_ids)


ItemIds = Mapping[str, int]
"""The ids of a conversation's items. The value is the item's place in the conversation, from 0."""


class Slot(NamedTuple):
    """One count in one period of time. Times are minutes of UTC, counted from 1970."""

    name: str
    """The count's name, which says how long its periods are."""
    previous: int
    """The first minute of the period before."""
    start: int
    """The first minute of the period."""
    until: int
    """The minute after which the count may be forgotten."""


class State(Protocol):
    """Stored responses by owner and id, and counts of requests and tokens. Methods raise `StateError`."""

    salt: bytes
    """The key of callers' digests, the same for all that share the state. Known once it has started."""

    async def start(self) -> None: ...

    async def aclose(self) -> None: ...

    async def put(self, owner: Owner, response_id: str, response: StoredResponse, ids: ItemIds) -> None:
        """Store a response, and make room for it: a full shelf, which is one caller's responses, drops the
        response that was not used for the longest time. If all shelves together are too large, the largest
        one gives way. A response that is larger than its caller's share is not stored."""

    async def get(self, owner: Owner, response_id: str) -> StoredResponse | None:
        """The response that `owner` stored under the id. It counts as used."""

    async def remove(self, owner: Owner, response_id: str) -> bool:
        """Forget a response. Returns whether it was there."""

    async def item(self, owner: Owner, item_id: str) -> bytes | None:
        """The JSON of an item, as the latest stored response with it has it."""

    async def count(self, process: str, requests: Mapping[str, int]) -> dict[str, int]:
        """Report how many requests of some callers a process has in flight. Returns how many these callers
        have in all processes together. Forgets a report `LEASE` seconds after the process's last call."""

    async def forget(self, process: str) -> None:
        """The process has no requests in flight any more."""

    async def spend(
        self, report: Report, minute: int, amounts: Mapping[Slot, int]
    ) -> dict[Slot, tuple[int, int]]:
        """Add to some counts, unless this report has done so already. Returns each one's sum in the period
        before and in its own, of all processes together. `minute`: the present one."""
