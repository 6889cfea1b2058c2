"""What tells the contents of the cache's blocks apart.

A block's keys and values follow from every token up to its end. So its hash is chained: of its parent's hash
and its own token ids, and the first block's parent is a root, made of who may share it. SHA-256 of fields
of fixed length: nobody can craft two texts, or two roots, with a hash in common.
"""

import hashlib
import secrets
from array import array


def root_hash(cache_salt: str | None) -> bytes:
    """The root of all requests with this `cache_salt`, or of all without one."""
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
    """Bring the hashes of a sequence's first blocks up to `num_blocks`, all of them full.

    Those that go beyond the first `num_public` tokens are also made of `secret` (32 bytes, or none).
    """
    parent = hashes[-1] if hashes else root
    for start in range(len(hashes) * block_size, num_blocks * block_size, block_size):
        end = start + block_size
        block = array("I", token_ids[start:end]).tobytes()
        parent = hashlib.sha256(parent + (secret if end > num_public else b"") + block).digest()
        hashes.append(parent)
