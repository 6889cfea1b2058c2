import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.block_manager import BlockManager


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
        blocks.check([table, table])
    with pytest.raises(AssertionError):
        blocks.check([])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 100))))
def test_every_block_is_free_or_owned_exactly_once(actions: list[tuple[int, int]]) -> None:
    blocks = BlockManager(num_blocks=12, block_size=8)
    tables: list[list[int]] = [[] for _ in range(5)]
    for which, num_tokens in actions:
        if num_tokens:
            blocks.allocate(tables[which], num_tokens)
        else:
            blocks.free(tables[which])
        blocks.check(tables)
        assert blocks.num_used == sum(map(len, tables))
