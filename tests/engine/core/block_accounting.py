"""Checks the invariant of `BlockManager`."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from engine.scheduling.block_manager import BlockManager


def check_blocks(blocks: BlockManager, block_tables: Iterable[list[int]]) -> None:
    """Raise `AssertionError` unless the invariant holds. `block_tables`: every table in use."""
    tables = list(block_tables)
    owned = Counter(chain.from_iterable(tables))
    counts = {block: count for block, count in enumerate(blocks._ref_counts) if count}
    if owned != counts or any(len(set(table)) != len(table) for table in tables):
        raise AssertionError(
            f"blocks lost, or shared without a reference: {owned} in tables, {counts} counted"
        )
    if sorted([*counts, *blocks._free]) != list(range(blocks.num_blocks)):
        raise AssertionError(f"blocks lost: {len(counts)} in tables, {len(blocks._free)} free")
    known = {h: block for block, h in enumerate(blocks._hashes) if h is not None}
    if known != blocks._cached:
        raise AssertionError(f"{len(blocks._cached)} hashes name {len(known)} blocks")
