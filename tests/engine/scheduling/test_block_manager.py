"""Blocks are handed out, shared, found again and never lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.block_manager import BlockManager
from tests.engine.core.block_accounting import check_blocks


def test_allocate_grows_a_table_by_whole_blocks() -> None:
    blocks, table = BlockManager(num_blocks=4, block_size=16), []
    assert blocks.allocate(table, 1)
    assert len(table) == 1
    assert blocks.allocate(table, 16)
    assert len(table) == 1
    assert blocks.allocate(table, 17)
    assert len(table) == blocks.num_used == 2


def test_allocate_changes_nothing_if_too_few_are_free() -> None:
    blocks, table = BlockManager(num_blocks=2, block_size=16), []
    assert not blocks.allocate(table, 33)
    assert table == []
    assert blocks.num_used == 0


def test_check_finds_a_shared_and_a_lost_block() -> None:
    blocks, table = BlockManager(num_blocks=2, block_size=16), []
    blocks.allocate(table, 16)
    with pytest.raises(AssertionError):
        check_blocks(blocks, [table, table])
    with pytest.raises(AssertionError):
        check_blocks(blocks, [])


def fill(blocks: BlockManager, *hashes: bytes) -> list[int]:
    """A table of full blocks that are known by these hashes."""
    table: list[int] = []
    assert blocks.allocate(table, blocks.block_size * len(hashes))
    for block, block_hash in zip(table, hashes, strict=True):
        blocks.cache(block, block_hash)
    return table


def test_the_longest_run_of_known_blocks_is_reused() -> None:
    blocks = BlockManager(num_blocks=8, block_size=16)
    table = fill(blocks, b"a", b"b", b"c")
    shared: list[int] = []
    blocks.reuse(shared, [b"a", b"b", b"x", b"c"])
    assert shared == table[:2]
    check_blocks(blocks, [table, shared])
    assert blocks.num_used == 3


def test_a_shared_block_is_free_when_its_last_owner_frees_it() -> None:
    blocks = BlockManager(num_blocks=2, block_size=16)
    first, second = fill(blocks, b"a"), []
    blocks.reuse(second, [b"a"])
    blocks.free(first)
    assert blocks.num_used == 1
    check_blocks(blocks, [second])
    blocks.free(second)
    assert blocks.num_used == 0
    check_blocks(blocks, [])


def test_freed_blocks_stay_known_until_they_are_needed() -> None:
    blocks = BlockManager(num_blocks=3, block_size=16)
    blocks.free(fill(blocks, b"a", b"b"))
    table: list[int] = []
    for _ in range(2):
        blocks.free(table)
        assert blocks.allocate(table, 16), "the third block, which is not known"
    again: list[int] = []
    blocks.reuse(again, [b"a", b"b"])
    assert len(again) == 2
    blocks.free(again)
    assert blocks.allocate(table, 48)
    blocks.reuse(again, [b"a", b"b"])
    assert again == []
    check_blocks(blocks, [table])


def test_the_least_recently_used_text_is_forgotten_first_from_its_end() -> None:
    blocks = BlockManager(num_blocks=4, block_size=16)
    blocks.free(fill(blocks, b"a1", b"a2"))
    blocks.free(fill(blocks, b"b1", b"b2"))
    used: list[int] = []
    blocks.reuse(used, [b"a1", b"a2"])
    blocks.free(used)
    table: list[int] = []
    for num_blocks, known in enumerate([{"b1", "a1", "a2"}, {"a1", "a2"}, {"a1"}, set()], start=1):
        assert blocks.allocate(table, 16 * num_blocks)
        assert {h.decode() for h in blocks._cached} == known


def test_only_one_of_several_blocks_with_the_same_contents_is_known() -> None:
    blocks = BlockManager(num_blocks=2, block_size=16)
    first, second = fill(blocks, b"a"), fill(blocks, b"a")
    found: list[int] = []
    blocks.reuse(found, [b"a"])
    assert found == first
    check_blocks(blocks, [first, second, found])


def test_check_finds_a_wrong_count_and_a_wrong_hash() -> None:
    blocks = BlockManager(num_blocks=2, block_size=16)
    table = fill(blocks, b"a")
    with pytest.raises(AssertionError, match="shared without a reference"):
        check_blocks(blocks, [table, table])
    with pytest.raises(AssertionError, match="shared without a reference"):
        check_blocks(blocks, [[*table, *table]])
    blocks._cached[b"b"] = table[0]
    with pytest.raises(AssertionError, match="hashes"):
        check_blocks(blocks, [table])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 100))))
def test_every_block_is_free_or_in_use_exactly_once(actions: list[tuple[int, int]]) -> None:
    blocks = BlockManager(num_blocks=12, block_size=8)
    tables: list[list[int]] = [[] for _ in range(5)]
    for which, num_tokens in actions:
        if num_tokens:
            blocks.allocate(tables[which], num_tokens)
        else:
            blocks.free(tables[which])
        check_blocks(blocks, tables)
        assert blocks.num_used == sum(map(len, tables))
