"""The accounts of the blocks of the key-value cache: the sequences that have each block, and the text that it
holds. `KVCache` has the memory itself.

A block may be in several block tables; a reference count says in how many. A full block can be made known by
its hash (`engine.scheduling.block_hash`), and is then found by every sequence with the same text. A known
block stays known when its last owner frees it, until it is needed for something else:

    in tables (count > 0)  ──free──►  free (count 0): blocks that are not known first, then
            ▲                            │            known blocks, least recently used first
            └──────── reuse ─────────────┘
"""

from collections import OrderedDict
from collections.abc import Sequence


class BlockManager:
    """Hands out blocks of `block_size` tokens, and finds blocks that already hold a text.

    Invariant: every block is either free, listed once, or in as many block tables as it has references, once
    in each. Every hash names one block, and a block has at most one hash.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._ref_counts = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._cached: dict[bytes, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_used(self) -> int:
        """Blocks in tables. Blocks that are free and still known do not count."""
        return self.num_blocks - len(self._free)

    def reuse(self, block_table: list[int], hashes: Sequence[bytes]) -> None:
        """Begin an empty table with the known blocks of `hashes`, up to the first unknown one."""
        for block_hash in hashes:
            block = self._cached.get(block_hash)
            if block is None:
                return
            if not self._ref_counts[block]:
                del self._free[block]
            self._ref_counts[block] += 1
            block_table.append(block)

    def allocate(self, block_table: list[int], num_tokens: int) -> bool:
        """Grow the table until it holds `num_tokens`. False: too few blocks are free; nothing changed."""
        missing = -(-num_tokens // self.block_size) - len(block_table)
        if missing > len(self._free):
            return False
        block_table.extend(self._take() for _ in range(missing))
        return True

    def cache(self, block: int, block_hash: bytes) -> None:
        """Make a block known by its hash. It must be in use, full, and never written again. If another block
        has the same contents, only that one stays known."""
        if block_hash not in self._cached:
            self._cached[block_hash] = block
            self._hashes[block] = block_hash

    def free(self, block_table: list[int]) -> None:
        """Free the table's blocks and empty it. Its last blocks are reused first: the blocks before them
        can still be found without them."""
        for block in reversed(block_table):
            self._ref_counts[block] -= 1
            if not self._ref_counts[block]:
                self._free[block] = None
                if self._hashes[block] is None:
                    self._free.move_to_end(block, last=False)
        block_table.clear()

    def truncate(self, block_table: list[int], num_tokens: int) -> int:
        """Free the blocks after the table's first `num_tokens`: the tokens there will be written anew.

        Returns how many of the `num_tokens` the table still holds. If other tables share the block of the
        last ones, the table loses the whole block, because it may not write there.
        """
        num_blocks = -(-num_tokens // self.block_size)
        if num_tokens % self.block_size and num_blocks <= len(block_table):
            last = block_table[num_blocks - 1]
            if self._ref_counts[last] > 1:
                num_blocks -= 1
            else:
                self._forget(last)
        behind = block_table[num_blocks:]
        del block_table[num_blocks:]
        self.free(behind)
        return min(num_tokens, len(block_table) * self.block_size)

    def _take(self) -> int:
        block, _ = self._free.popitem(last=False)
        self._ref_counts[block] = 1
        self._forget(block)
        return block

    def _forget(self, block: int) -> None:
        if (block_hash := self._hashes[block]) is not None:
            del self._cached[block_hash]
            self._hashes[block] = None
