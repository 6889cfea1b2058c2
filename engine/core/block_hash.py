"""Hashes that identify the contents of the cache's blocks.

A block's keys and values follow from every token up to its end. So the hash of a block is made of its
parent's hash and its own token ids. The parent of the first block is a root, which says who may share the
block. The hashes are SHA-256 of fields of fixed length: nobody can craft two texts, or two roots, with the
same hash.
"""

import hashlib
import secrets
from array import array


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
        block = array("I", token_ids[start:end]).tobytes()
        parent = hashlib.sha256(parent + (secret if end > num_public else b"") + block).digest()
        hashes.append(parent)
