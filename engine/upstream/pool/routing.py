"""Which replica gets a request. No clock, no I/O, and no memory: processes that do not talk choose alike.

`LeastOutstanding` takes the replica with the fewest requests. `PrefixAffinity` sends requests whose prompts
begin alike to one replica, whose prefix cache then knows the beginning:

1. `prompt_keys` hashes the prompt up to a place that stays where it is when the chat grows: the end of the
   user's first message. So the turns of a chat have one key, and chats with one system prompt have many.
2. Rendezvous hashing ranks the replicas for a key. A replica that leaves or returns moves only its own keys.
3. The load bound: a replica that has `LOAD_BOUND` times its fair share of the requests, and `SLACK` more,
   gets no further one. A second key then ranks the other replicas. It hashes the messages up to the user's
   second, so that chats which begin with one message do not all follow each other from replica to replica.
"""

import random
from collections.abc import Sequence
from hashlib import blake2b
from math import ceil, log
from typing import Any, Protocol, TypeVar

import orjson

from engine.protocol import GenerationRequest, Prompt

LOAD_BOUND = 1.25
"""Most requests of a replica, as a multiple of its fair share of all that run."""
SLACK = 1
"""Requests above the bound. Where few run, a fair share is a fraction, and chance alone exceeds it."""
_MAX_MESSAGE = 4096
"""Bytes of a user's message that count. Chats about one long document have one key."""
_MAX_TEXT = 65536
"""Characters of a text, or ids, that count."""
_MASK = 2**64 - 1
_MIX = 0x9E3779B97F4A7C15

Keys = tuple[int, int]
"""The key that ranks replicas, and the key that ranks the rest if the first replica has no room."""


class Candidate:
    """A replica, as far as routing knows it. `weight`: its share of the requests, relative to its peers."""

    def __init__(self, name: str, weight: float = 1.0) -> None:
        self.name = name
        self.weight = weight
        self.outstanding = 0
        """Requests that it works on."""
        self.seed = _number(blake2b(name.encode(), digest_size=8))


C = TypeVar("C", bound=Candidate)


class Routing(Protocol):
    def keys(self, request: GenerationRequest) -> Keys:
        """The parts of the request that `choose` needs."""

    def choose(self, keys: Keys, candidates: Sequence[C]) -> C:
        """One of the candidates, of which there is at least one."""


class LeastOutstanding:
    """The replica with the fewest requests for its weight; any of them if several have as few."""

    def keys(self, request: GenerationRequest) -> Keys:
        return 0, 0

    def choose(self, keys: Keys, candidates: Sequence[C]) -> C:
        loads = [(candidate.outstanding + 1) / candidate.weight for candidate in candidates]
        least = min(loads)
        return random.choice([c for c, load in zip(candidates, loads, strict=True) if load == least])


class PrefixAffinity:
    """The replica that ranks first for the prompt's key, or if it has no room, another one that has."""

    def keys(self, request: GenerationRequest) -> Keys:
        return prompt_keys(request)

    def choose(self, keys: Keys, candidates: Sequence[C]) -> C:
        outstanding = 1 + sum([candidate.outstanding for candidate in candidates])
        bound = LOAD_BOUND * outstanding / sum([candidate.weight for candidate in candidates])
        first = _ranked_first(keys[0], candidates)
        if first.outstanding < ceil(bound * first.weight) + SLACK:
            return first
        # The bounds add up to more than all requests, so there is always a candidate below its own.
        free = [c for c in candidates if c.outstanding < ceil(bound * c.weight) + SLACK]
        return _ranked_first(keys[1], free)


def prompt_keys(request: GenerationRequest) -> Keys:
    """The same numbers for requests whose prompts begin alike, and whose caches may be shared."""
    digest = blake2b(repr((request.model, request.cache_salt)).encode(), digest_size=8)
    if not request.is_chat:
        digest.update(_stable_part(request.prompts[0] if request.prompts else ""))
        return _number(digest), _number(digest)
    digest.update(_canonical(request.tools))
    keys = []
    for message in request.messages:
        is_users = message.get("role") == "user"
        written = _canonical(message)
        digest.update(written[:_MAX_MESSAGE] if is_users else written)
        if is_users:
            keys.append(_number(digest))
            if len(keys) == 2:
                break
    keys = keys or [_number(digest)]
    return keys[0], keys[-1]


def _stable_part(prompt: Prompt) -> bytes:
    """The beginning, as long as the largest power of two. A growing text changes it only when it doubles."""
    length = min(1 << len(prompt).bit_length() >> 1, _MAX_TEXT)
    part = prompt[:length]
    return part.encode("utf-8", "surrogatepass") if isinstance(part, str) else _canonical(part)


def _canonical(value: Any) -> bytes:
    return orjson.dumps(value, default=dict, option=orjson.OPT_SORT_KEYS)


def _number(digest: "blake2b") -> int:
    return int.from_bytes(digest.digest(), "little")


def _ranked_first(key: int, candidates: Sequence[C]) -> C:
    scores = [_score(key, candidate) for candidate in candidates]
    return candidates[scores.index(max(scores))]


def _score(key: int, candidate: Candidate) -> float:
    """Weighted rendezvous hashing: each candidate has the highest score as often as its weight says."""
    mixed = (key ^ candidate.seed) * _MIX & _MASK
    mixed = (mixed ^ mixed >> 32) * _MIX & _MASK
    return -candidate.weight / log(((mixed >> 11) + 0.5) * 2**-53)
