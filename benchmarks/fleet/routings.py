"""What the pool's routings are compared with. Both live here only."""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from engine.upstream.pool.routing import LOAD_BOUND, LeastOutstanding, PrefixAffinity, Routing


class RoundRobin:
    """One after the other."""

    def __init__(self) -> None:
        self._turn = 0

    def keys(self, request: Any) -> Any:
        return None

    def choose(self, keys: Any, candidates: Sequence[Any]) -> Any:
        self._turn += 1
        return candidates[self._turn % len(candidates)]


class Oracle:
    """Knows all caches as they are now. Takes the replica that has most of the prompt and has room, as
    `PrefixAffinity` bounds it; the one with the fewest requests if several have as much."""

    def keys(self, request: Any) -> Any:
        return request.chat.prompt

    def choose(self, keys: Any, candidates: Sequence[Any]) -> Any:
        fair = (1 + sum([candidate.outstanding for candidate in candidates])) / len(candidates)
        able = [candidate for candidate in candidates if candidate.outstanding < ceil(LOAD_BOUND * fair)]
        return max(able, key=lambda candidate: (candidate.engine.cache.cached(keys), -candidate.outstanding))


class ChatAffinity(PrefixAffinity):
    """`PrefixAffinity`, with keys that are computed once for a chat and not at each of its turns."""

    def keys(self, request: Any) -> Any:
        return request.chat.keys


ROUTINGS: dict[str, Callable[[], Routing]] = {
    "affinity": ChatAffinity,
    "least": LeastOutstanding,
    "round robin": RoundRobin,
    "oracle": Oracle,
}
