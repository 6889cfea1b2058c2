"""The store, in each database that it may be in."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from proxy.settings.storage import StoreOptions
from proxy.storage.operator import changes, decisions, keys
from proxy.storage.operator.keys import StoredKey
from proxy.storage.operator.store import Store
from proxy.storage.query import Query, Steps
from proxy.storage.records import JUDGED

ALICE = StoredKey("alice", "00" * 32, {"tenant": "acme", "models": ["m", "é"]}, 1_700_000_000)


async def test_keys_are_made_changed_and_revoked(store: Store) -> None:
    before = await store.run(keys.version())
    assert await store.run(keys.create(ALICE, "admin-1"))
    assert not await store.run(keys.create(ALICE, "admin-1"))
    assert await store.run(keys.find("alice")) == ALICE
    changed = await store.run(keys.update("alice", {"models": None, "policy": "lax"}, "admin-2"))
    assert changed is not None
    assert changed.settings == {"tenant": "acme", "policy": "lax"}
    assert await store.run(keys.everything()) == (before + 2, [changed])
    assert await store.run(keys.revoke("alice", "admin-1"))
    assert not await store.run(keys.revoke("alice", "admin-1"))
    assert not await store.run(keys.revoke("bob", "admin-1"))
    version, found = await store.run(keys.everything())
    assert version == before + 3
    assert found[0].revoked is not None
    told = await store.run(changes.latest(2))
    assert [(one.operator, one.action) for one in told] == [
        ("admin-1", "revoke_key"),
        ("admin-2", "change_key"),
    ]


async def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = Store(StoreOptions(store=SecretStr("sqlite:///~/weir.sqlite")), has_admin_key=False)
    await store.start()
    await store.aclose()
    assert (tmp_path / "weir.sqlite").is_file()


async def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    file = tmp_path / "gone" / "weir.sqlite"
    store = Store(StoreOptions(store=SecretStr(f"sqlite:///{file}")), has_admin_key=False)
    with pytest.raises(ValueError, match=f"^store: {file} cannot be opened: No such file or directory$"):
        await store.start()
    await store.aclose()


async def test_a_store_of_another_version_is_not_touched(tmp_path: Path) -> None:
    def spoil() -> Steps[None]:
        yield Query("UPDATE weir_store SET value = 99 WHERE name = 'schema'")

    options = StoreOptions(store=SecretStr(f"sqlite:///{tmp_path}/weir.sqlite"))
    store = Store(options, has_admin_key=False)
    await store.start()
    await store.run(spoil())
    with pytest.raises(ValueError, match="schema 99"):
        await store.start()
    await store.aclose()


async def test_a_store_of_the_first_schema_keeps_its_decisions(tmp_path: Path) -> None:
    """Decisions then did not tell what judges had judged."""

    def go_back() -> Steps[None]:
        for column in (*JUDGED, "revision"):
            yield Query(f"ALTER TABLE weir_decisions DROP COLUMN {column}")
        yield Query("INSERT INTO weir_decisions (time, request_id, num_withheld) VALUES (1.0, 'r0', 2)")
        yield Query("UPDATE weir_store SET value = 1 WHERE name = 'schema'")

    options = StoreOptions(store=SecretStr(f"sqlite:///{tmp_path}/weir.sqlite"))
    store = Store(options, has_admin_key=False)
    await store.start()
    await store.run(go_back())
    for _ in range(2):
        await store.start()
    (record,) = (await store.run(decisions.find({}))).records
    assert (record.request_id, record.num_withheld, record.num_judged) == ("r0", 2, None)
    await store.aclose()


async def test_no_file_is_made_without_an_admin_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for has_key in (False, True):
        store = Store(StoreOptions(), has_admin_key=has_key)
        await store.start()
        await store.aclose()
        assert (tmp_path / "weir.sqlite").exists() is has_key
        assert store.is_kept is has_key
