"""`weir store`: a backup of the operator's store, and its return, while servers run."""

import argparse
import os
from pathlib import Path

from proxy.cli.leaving import leaving
from proxy.storage.operator.backup import BackupError, Contents, back_up, restore
from proxy.storage.operator.store import DEFAULT

_SQLITE = "sqlite:///"


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    """copy the operator's store, or bring a copy back"""
    commands = parser.add_subparsers(required=True, metavar="{backup,restore}")
    for name, run, text in (
        ("backup", back_up_store, "copy a store into a file, while servers use it"),
        ("restore", restore_store, "give a store the contents of a backup"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("file", type=Path, help="the backup")
        command.add_argument(
            "--store", help="the server's --store (default: WEIR_STORE, or else weir.sqlite in this folder)"
        )
        command.set_defaults(run=run)


def back_up_store(options: argparse.Namespace) -> None:
    """Exits with 1 and a reason if there is no backup."""
    with leaving("weir store backup", BackupError, status=1):
        store = _file_of(options.store)
        print(f"{options.file}: {_told(back_up(store, options.file))}")


def restore_store(options: argparse.Namespace) -> None:
    """Exits with 1 and a reason if the store stays as it is."""
    with leaving("weir store restore", BackupError, status=1):
        store = _file_of(options.store)
        is_new = not store.exists()
        restored = restore(options.file, store)
    print(f"{store}: {_told(restored.contents)}")
    if restored.num_invalid:
        print(f"{restored.num_invalid} of its keys were revoked or rotated since, and stay so.")
    if is_new:
        print("There was no store before it, so keys that were revoked after the backup are valid again.")


def _file_of(given: str | None) -> Path:
    url = given or os.environ.get("WEIR_STORE") or DEFAULT
    if url.startswith("postgresql://"):
        raise BackupError(
            "this store is in PostgreSQL: use its own pg_dump and pg_restore, with --table='weir_*'"
        )
    if not url.startswith(_SQLITE) or url == _SQLITE:
        raise BackupError(f"--store: the URL must be {_SQLITE}FILE")
    return Path(url.removeprefix(_SQLITE)).expanduser()


def _told(contents: Contents) -> str:
    keys = f"{contents.num_keys} valid and {contents.num_revoked} revoked keys"
    return f"{keys}, {contents.num_decisions} decisions"
