"""`weir receipts`: whether a server's receipts are as it wrote them."""

import argparse
from pathlib import Path

from proxy.cli.leaving import leave, leaving
from proxy.storage.receipts.keys import PUBLIC, KeyFault, fingerprint, public_key, signed_by
from proxy.storage.receipts.verify import ReceiptFault, verify

_VERIFY = "weir receipts verify"


def add_receipts_arguments(parser: argparse.ArgumentParser) -> None:
    """verify the receipts of a server's answers"""
    commands = parser.add_subparsers(required=True, metavar="{verify}")
    command = commands.add_parser(
        "verify", help="find the first receipt that is changed, missing or in another place"
    )
    command.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="the receipts of one chain, the oldest file first"
    )
    command.add_argument(
        "--key",
        type=Path,
        action="append",
        help="the public key; repeat for several (default: receipts.pub beside the last FILE)",
    )
    command.add_argument(
        "--after",
        default="",
        metavar="HASH",
        help="the hash of the receipt before the first, in an older file",
    )
    command.add_argument(
        "--anchor",
        action="append",
        default=[],
        metavar="HASH",
        help="the hash of a receipt that must be there",
    )
    command.set_defaults(run=verify_receipts)


def verify_receipts(options: argparse.Namespace) -> None:
    """Exits with 1 at a fault in the receipts, and with 2 if they cannot be read."""
    files: list[Path] = options.files
    with leaving(_VERIFY, KeyFault, OSError):
        keys = [public_key(file) for file in options.key or [files[-1].with_name(PUBLIC)]]
        try:
            found = verify(files, signed_by(keys), after=options.after, anchors=options.anchor)
        except ReceiptFault as fault:
            leave(_VERIFY, fault, status=1)
    print(f"{found.num_receipts} receipts, each as it was written.")
    if found.last is not None:
        print(f"The last is number {found.last.number}; its hash is {found.last.hash}.")
    if found.num_torn:
        print(f"Torn lines, which a crash left and a later receipt names: {found.num_torn}.")
    if not found.has_head:
        print("There is no head beside the last file: receipts removed at its end are not noticed.")
    if not options.key:
        print(f"The key is the one beside the receipts: {fingerprint(keys[0])}. Compare it with the log's.")
