"""Which block of the key-value cache belongs to whom. Pure accounting: the memory itself is `KVCache`'s."""

from collections.abc import Iterable


class BlockManager:
    """Hands out blocks of `block_size` tokens.

    Invariant: every block is free exactly once, or in exactly one block table exactly once.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(reversed(range(num_blocks)))

    @property
    def num_used(self) -> int:
        return self.num_blocks - len(self._free)

    def allocate(self, block_table: list[int], num_tokens: int) -> bool:
        """Grow the table until it holds `num_tokens`. False, and nothing changed, if too few are free."""
        missing = -(-num_tokens // self.block_size) - len(block_table)
        if missing > len(self._free):
            return False
        block_table.extend(self._free.pop() for _ in range(missing))
        return True

    def free(self, block_table: list[int]) -> None:
        """Take all of the table's blocks back."""
        self._free.extend(reversed(block_table))
        block_table.clear()

    def check(self, block_tables: Iterable[list[int]]) -> None:
        """Raise `AssertionError` unless the invariant holds, given every table in use."""
        owned = [block for table in block_tables for block in table]
        if sorted([*owned, *self._free]) != list(range(self.num_blocks)):
            raise AssertionError(f"blocks lost or shared: {len(owned)} owned, {len(self._free)} free")
