"""Hashes of blocks depend on the whole text up to them, and on who may share them."""

from hypothesis import given
from hypothesis import strategies as st

from engine.scheduling.block_hash import KnownHashes, extend_hashes, root_hash, unique_root

BLOCK_SIZE = 2


def hashes_of(token_ids: list[int], root: bytes) -> list[bytes]:
    hashes: list[bytes] = []
    extend_hashes(hashes, root, token_ids, BLOCK_SIZE, len(token_ids) // BLOCK_SIZE)
    return hashes


@given(st.lists(st.integers(0, 2), max_size=9), st.lists(st.integers(0, 2), max_size=9))
def test_two_blocks_have_the_same_hash_exactly_if_their_texts_are_equal_up_to_their_ends(
    a: list[int], b: list[int]
) -> None:
    root = root_hash(None)
    for i, (of_a, of_b) in enumerate(zip(hashes_of(a, root), hashes_of(b, root), strict=False), start=1):
        assert (of_a == of_b) == (a[: i * BLOCK_SIZE] == b[: i * BLOCK_SIZE])


@given(st.lists(st.integers(0, 2**32 - 1), max_size=9), st.integers(0, 9))
def test_hashes_added_step_by_step_equal_hashes_made_at_once(token_ids: list[int], length: int) -> None:
    root = root_hash("salt")
    hashes = hashes_of(token_ids[:length], root)
    extend_hashes(hashes, root, token_ids, BLOCK_SIZE, len(token_ids) // BLOCK_SIZE)
    assert hashes == hashes_of(token_ids, root)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 1), max_size=9))))
def test_known_hashes_are_those_of_the_text(asked: list[tuple[str, list[int]]]) -> None:
    known = KnownHashes(BLOCK_SIZE, num_kinds=1)
    last: dict[str, list[int]] = {}
    for kind, token_ids in asked:
        whole, before = hashes_of(token_ids, root_hash(kind)), hashes_of(last.get(kind, []), root_hash(kind))
        expected = [one for one, other in zip(whole, before, strict=False) if one == other]
        assert known.find(kind, token_ids) == expected
        known.keep(kind, token_ids, whole)
        last = {kind: token_ids}


@given(st.lists(st.one_of(st.none(), st.text()), unique=True))
def test_every_salt_has_its_own_root(salts: list[str | None]) -> None:
    roots = [root_hash(salt) for salt in salts]
    assert len({*roots, unique_root(), unique_root()}) == len(salts) + 2
    assert roots == [root_hash(salt) for salt in salts]


def test_a_salt_may_be_invalid_unicode() -> None:
    assert root_hash("\ud800") != root_hash("?")
