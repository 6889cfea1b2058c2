"""Backups of a store that servers use, and what a restore does with keys."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import SecretStr

from proxy.cli.cli import main
from proxy.service.operator.stored_keys import StoredKeys
from proxy.settings.storage import StoreOptions
from proxy.storage.operator import changes, decisions, keys
from proxy.storage.operator.backup import BackupError, back_up, restore
from proxy.storage.operator.decisions import SINCE_2, SINCE_3
from proxy.storage.operator.keys import StoredKey
from proxy.storage.operator.store import SCHEMA, Store
from proxy.storage.query import Steps
from tests.proxy.storage.operator.test_decisions import record

T = TypeVar("T")


def key(name: str, digest: str = "") -> StoredKey:
    return StoredKey(name, (digest or name).encode().hex().ljust(64, "0"), {"tenant": name}, 1_700_000_000)


def opened(file: Path) -> Store:
    return Store(StoreOptions(store=SecretStr(f"sqlite:///{file}")), has_admin_key=False)


def run(file: Path, *operations: Steps[Any]) -> list[Any]:
    """The results of operations on a store, by a process that leaves afterwards."""

    async def all_() -> list[Any]:
        store = opened(file)
        await store.start()
        results = [await store.run(one) for one in operations]
        await store.aclose()
        return results

    return asyncio.run(all_())


def valid_in(file: Path) -> dict[str, str]:
    (found,) = run(file, keys.everything())
    return {one.name: one.digest for one in found.keys if one.revoked is None}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "weir.sqlite"
    run(file, keys.create(key("alice"), "admin"), keys.create(key("bob"), "admin"))
    return file


class Server:
    """A store that is open, as in a server, whose latest changes are in the file `-wal`."""

    def __init__(self, file: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self.store = opened(file)
        self.keys = StoredKeys(self.store)
        self.run(self.store.start())
        self.run(self.keys.refresh())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        self.run(self.store.aclose())
        self._loop.close()


def test_a_key_that_was_revoked_before_the_backup_is_revoked_in_it(file: Path, tmp_path: Path) -> None:
    with closing(Server(file)) as server:
        server.run(server.store.run(keys.revoke("alice", "admin")))
        assert (tmp_path / "weir.sqlite-wal").stat().st_size  # a copy of the file alone would not have it
        contents = back_up(file, tmp_path / "copy")
    assert (contents.num_keys, contents.num_revoked) == (1, 1)
    assert [one.name for one in tmp_path.iterdir() if "copy" in one.name] == ["copy"]
    assert os.stat(tmp_path / "copy").st_mode & 0o777 == 0o600
    assert valid_in(tmp_path / "copy") == {"bob": key("bob").digest}


def test_a_backup_during_writes_is_the_store_at_one_moment(file: Path, tmp_path: Path) -> None:
    """Each write adds a decision and counts the keys' version up. The copy has as many of both."""
    is_over = threading.Event()
    (before,) = run(file, keys.version())

    def write() -> None:
        with closing(Server(file)) as server:

            def both() -> Steps[None]:
                yield from decisions.add([record(0)] * 20)
                yield from keys.update("bob", {"policy": "p"}, "admin")

            while not is_over.is_set():
                server.run(server.store.run(both()))

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for number in range(5):
            copy = tmp_path / f"copy{number}"
            contents = back_up(file, copy)
            (version,) = run(copy, keys.version())
            assert contents.num_decisions == 20 * (version - before)
    finally:
        is_over.set()
        writing.join()


def test_a_restore_brings_back_what_is_lost(file: Path, tmp_path: Path) -> None:
    run(file, decisions.add([record(i) for i in range(3)]))
    back_up(file, tmp_path / "copy")
    before = valid_in(file)
    run(file, decisions.prune(float("inf"), 0))
    for name in ("weir.sqlite", "weir.sqlite-wal", "weir.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    restored = restore(tmp_path / "copy", file)
    assert (restored.contents.num_decisions, restored.num_invalid) == (3, 0)
    assert valid_in(file) == before
    assert os.stat(file).st_mode & 0o777 == 0o600
    (told,) = run(file, changes.latest(1))
    assert (told[0].action, told[0].object) == ("restore_store", "copy")
    assert not [one.name for one in tmp_path.iterdir() if one.name.startswith(".")]


def test_no_key_becomes_valid_again_by_a_restore_into_a_store_that_runs(file: Path, tmp_path: Path) -> None:
    back_up(file, tmp_path / "copy")
    with closing(Server(file)) as server:
        for change in (
            keys.revoke("alice", "admin"),
            keys.rotate("bob", key("bob2").digest, 0.0, "admin"),
            keys.create(key("carol"), "admin"),
        ):
            server.run(server.store.run(change))
        restored = restore(tmp_path / "copy", file)
        assert restored.num_invalid == 2
        server.run(server.keys.refresh())
        assert server.keys.find(key("alice").digest) is None
        assert {one.digest for one in server.keys.valid} >= {key("bob2").digest, key("carol").digest}
        assert server.run(server.store.run(keys.find("bob"))) == replace(
            key("bob"),
            digest=key("bob2").digest,
            settings={"tenant": "bob", "previous": {"digest": key("bob").digest, "until": 0.0}},
        )


def test_a_server_that_runs_sees_a_restored_key_at_once(file: Path, tmp_path: Path) -> None:
    back_up(file, tmp_path / "copy")
    other = tmp_path / "other.sqlite"
    with closing(Server(other)) as server:
        server.run(server.store.run(keys.create(key("dora"), "admin")))
        server.run(server.keys.refresh())
        restore(tmp_path / "copy", other)
        server.run(server.keys.refresh())
        assert {one.name for one in server.keys.valid} == {"alice", "bob", "dora"}
        server.run(server.store.run(decisions.add([record(1)])))


@pytest.mark.parametrize(("schema", "since"), [(1, (*SINCE_2, *SINCE_3)), (2, SINCE_3)])
def test_a_backup_of_an_earlier_schema_is_brought_up_to_date(
    file: Path, tmp_path: Path, schema: int, since: tuple[str, ...]
) -> None:
    run(file, decisions.add([record(1)]))
    with closing(sqlite3.connect(file)) as database:
        for sql in since:
            database.execute(sql.replace("ADD COLUMN", "DROP COLUMN").rpartition(" ")[0])
        database.execute(f"UPDATE weir_store SET value = {schema} WHERE name = 'schema'")
        database.commit()
    back_up(file, tmp_path / "copy")
    other = tmp_path / "other.sqlite"
    assert restore(tmp_path / "copy", other).contents.num_decisions == 1
    (found,) = run(other, decisions.find({}))
    assert found.records == [record(1)]


def spoil(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("UPDATE weir_store SET value = 99 WHERE name = 'schema'")
        database.execute("DELETE FROM weir_store WHERE name LIKE 'weir %'")
        database.execute("INSERT INTO weir_store VALUES ('weir 8.0', 1), ('weir 9.1', 2)")
        database.commit()


def test_a_store_of_a_later_version_goes_back_to_a_backup_of_this_one(file: Path, tmp_path: Path) -> None:
    back_up(file, tmp_path / "copy")
    run(file, keys.revoke("alice", "admin"))
    spoil(file)
    with pytest.raises(
        ValueError, match=rf"schema 99, of Weir 9\.1, .* schema {SCHEMA}: .*weir store restore"
    ):
        run(file)
    assert restore(tmp_path / "copy", file).num_invalid == 1
    assert valid_in(file) == {"bob": key("bob").digest}


def test_a_backup_of_a_later_version_is_not_restored(file: Path, tmp_path: Path) -> None:
    back_up(file, tmp_path / "copy")
    spoil(tmp_path / "copy")
    before = valid_in(file)
    with pytest.raises(BackupError, match=r"schema 99, of Weir 9\.1"):
        restore(tmp_path / "copy", file)
    assert valid_in(file) == before


def refusals() -> list[tuple[Callable[[Path], list[str]], str]]:
    postgres = "postgresql://u:secret@h/d"
    return [
        (
            lambda folder: ["backup", f"{folder}/copy", "--store", f"sqlite:///{folder}/none"],
            "there is no store",
        ),
        (lambda folder: ["backup", f"{folder}/weir.sqlite"], "exists; a backup is a new file"),
        (lambda folder: ["backup", f"{folder}/none/copy"], "No such file"),
        (
            lambda folder: ["backup", f"{folder}/copy", "--store", f"sqlite:///{folder}/text"],
            "no store of Weir",
        ),
        (lambda folder: ["restore", f"{folder}/text"], "no store of Weir"),
        (lambda folder: ["restore", f"{folder}/none"], "there is no backup"),
        (lambda folder: ["backup", f"{folder}/copy", "--store", postgres], "pg_dump"),
        (lambda folder: ["restore", f"{folder}/copy", "--store", "redis://h"], "the URL must be"),
    ]


@pytest.mark.parametrize(("arguments", "reason"), refusals())
def test_the_command_says_why_it_does_nothing(
    arguments: Callable[[Path], list[str]],
    reason: str,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WEIR_STORE", f"sqlite:///{file}")
    (tmp_path / "text").write_text("no database" * 100)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit) as error:
        main(["store", *arguments(tmp_path)])
    told = capsys.readouterr().err
    assert error.value.code == 1
    assert reason in told
    assert "secret" not in told
    assert sorted(tmp_path.iterdir()) == before


def test_the_command_says_what_it_copied(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEIR_STORE", raising=False)
    main(["store", "backup", "copy"])
    assert capsys.readouterr().out == "copy: 2 valid and 0 revoked keys, 0 decisions\n"
    run(file, keys.revoke("alice", "admin"))
    main(["store", "restore", "copy"])
    assert capsys.readouterr().out == (
        "weir.sqlite: 1 valid and 1 revoked keys, 0 decisions\n"
        "1 of its keys were revoked or rotated since, and stay so.\n"
    )
