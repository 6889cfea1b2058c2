"""Servers' prompt caches, of characters: what an upstream would not have to read again.

`PrefixCache` is that of servers which cache unasked, such as vLLM's: whole blocks from a prompt's beginning
that came before. `MarkedCache` is that of the Messages API: what is in front of a mark (`cache_control`)
that came before.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

JSONObject = Mapping[str, Any]
BLOCK = 64
"""Characters: about 16 tokens, as vLLM's blocks have."""
CHARACTERS_PER_TOKEN = 4


class PrefixCache:
    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self.num_read = self.num_hit = 0

    def read(self, body: JSONObject) -> None:
        prompt = b"".join(part for part, _ in parts_of(body))
        digest, is_hit = hashlib.sha256(), True
        for at in range(0, len(prompt) - BLOCK + 1, BLOCK):
            digest.update(prompt[at : at + BLOCK])
            key = digest.digest()
            is_hit = is_hit and key in self._seen
            self.num_hit += BLOCK if is_hit else 0
            self._seen.add(key)
        self.num_read += len(prompt)

    @property
    def share(self) -> float:
        return self.num_hit / self.num_read if self.num_read else 0.0


class MarkedCache:
    def __init__(self) -> None:
        self._written: set[bytes] = set()

    def usage(self, body: JSONObject) -> dict[str, int]:
        """The counts of the Messages API for this prompt, which is written to the cache up to its last
        mark."""
        digest, size, num_cached, num_marked, marked = hashlib.sha256(), 0, 0, 0, []
        for part, has_mark in parts_of(body):
            digest.update(part)
            size += len(part)
            if digest.digest() in self._written:
                num_cached = size
            if has_mark:
                marked.append(digest.digest())
                num_marked = size
        self._written.update(marked)
        written = max(num_marked - num_cached, 0)
        counts = (size - num_cached - written, written, num_cached)
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        return {name: count // CHARACTERS_PER_TOKEN for name, count in zip(names, counts, strict=True)}


def parts_of(body: JSONObject) -> Iterator[tuple[bytes, bool]]:
    """The parts of a prompt in the order in which a model reads them, without marks, and whether each has
    one."""
    system = body.get("system") or []
    yield from (_part(one) for one in body.get("tools") or [])
    yield from (
        _part(one) for one in ([{"type": "text", "text": system}] if isinstance(system, str) else system)
    )
    for message in body["messages"]:
        content = message.get("content") or []
        rest = {key: value for key, value in message.items() if key != "content"}
        yield _part(rest)
        yield from (
            _part(one)
            for one in ([{"type": "text", "text": content}] if isinstance(content, str) else content)
        )


def _part(value: JSONObject) -> tuple[bytes, bool]:
    unmarked = {key: inner for key, inner in value.items() if key != "cache_control"}
    return orjson.dumps(unmarked), "cache_control" in value
