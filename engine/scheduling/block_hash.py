"""Hashes that identify the contents of the cache's blocks.

A block's keys and values follow from every token up to its end. So the hash of a block is made of its
parent's hash and its own token ids. The parent of the first block is a root, which says who may share the
block. The hashes are SHA-256 of fields of fixed length: nobody can craft two texts, or two roots, with the
same hash.
"""

import hashlib
import secrets
from array import array
from collections import OrderedDict
from collections.abc import Hashable, Sequence


def root_hash(cache_salt: str | None) -> bytes:
    """The root of all requests with this `cache_salt`; None: of all requests without one."""
    return hashlib.sha256(repr(cache_salt).encode()).digest()


def unique_root() -> bytes:
    """A root that nothing else has."""
    return secrets.token_bytes(32)


def extend_hashes(
    hashes: list[bytes],
    root: bytes,
    token_ids: list[int],
    block_size: int,
    num_blocks: int,
    *,
    num_public: int = 0,
    secret: bytes = b"",
) -> None:
    """Add to a sequence's block hashes until there are `num_blocks`. These blocks must be full. The hash of a
    block that goes beyond the first `num_public` tokens is also made of `secret` (32 bytes, or none)."""
    parent = hashes[-1] if hashes else root
    for start in range(len(hashes) * block_size, num_blocks * block_size, block_size):
        end = start + block_size
        parent = _block_hash(parent, secret if end > num_public else b"", token_ids[start:end])
        hashes.append(parent)


class KnownHashes:
    """Remembers the hashes of the last text of each kind. If the next text of the kind begins alike, only the
    blocks after this beginning need to be hashed.

    `kind`: texts of one kind have the same hashes as far as they are alike: the root, the secret and
    `num_public` are the same.
    """

    def __init__(self, block_size: int, num_kinds: int = 128) -> None:
        """`num_kinds`: so many are remembered."""
        self._block_size = block_size
        self._num_kinds = num_kinds
        self._known: OrderedDict[Hashable, tuple[bytes, list[bytes]]] = OrderedDict()
        """By kind: the last text's ids and its hashes. The kind that was asked for last is the last."""

    def find(self, kind: Hashable, token_ids: Sequence[int]) -> list[bytes]:
        """The hashes of the first blocks, as far as they are known."""
        if kind not in self._known:
            return []
        ids, hashes = self._known[kind]
        num_bytes = array("I").itemsize * self._block_size
        return hashes[: _num_same(ids, _as_bytes(token_ids), num_bytes)]

    def keep(self, kind: Hashable, token_ids: Sequence[int], hashes: Sequence[bytes]) -> None:
        """Remember the `hashes` of the text's first blocks."""
        self._known[kind] = _as_bytes(token_ids[: len(hashes) * self._block_size]), [*hashes]
        self._known.move_to_end(kind)
        if len(self._known) > self._num_kinds:
            self._known.popitem(last=False)


def _block_hash(parent: bytes, secret: bytes, token_ids: Sequence[int]) -> bytes:
    return hashlib.sha256(parent + secret + _as_bytes(token_ids)).digest()


def _as_bytes(token_ids: Sequence[int]) -> bytes:
    return array("I", token_ids).tobytes()


def _num_same(one: bytes, other: bytes, size: int) -> int:
    """The number of first pieces of this size that are the same."""
    num_same, end = 0, min(len(one), len(other)) // size
    while num_same < end:
        middle = (num_same + end + 1) // 2
        piece = slice(num_same * size, middle * size)
        if one[piece] == other[piece]:
            num_same = middle
        else:
            end = middle - 1
    return num_same
