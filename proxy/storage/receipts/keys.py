"""The Ed25519 key that signs receipts, and the public keys that verify them.

Keys are in PEM files, as `openssl genpkey -algorithm ed25519` writes them.
"""

import hashlib
import hmac
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.protocol.parts import how_to_install
from proxy.storage.receipts.form import IsSigned

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PRIVATE, PUBLIC = "receipts.key", "receipts.pub"
"""The names of the files beside the receipts."""
_MODE = 0o600
_MISSING = "receipts need the library cryptography"


class KeyFault(ValueError):
    """A key cannot be used. The message quotes none of it."""


class SigningKey:
    """The key of one server."""

    def __init__(self, key: "Ed25519PrivateKey") -> None:
        self.sign = key.sign
        self.public = key.public_key()
        self.fingerprint = fingerprint(self.public)
        secret = key.private_bytes_raw()
        self.revision_secret = hmac.digest(secret, b"weir receipts: revisions", "sha256")
        """The key of the revisions of policies."""

    @property
    def public_pem(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return self.public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def signing_key(file: Path | None, folder: Path) -> SigningKey:
    """The key in `file`. None: the one in the folder, which is made if there is none. Raises `KeyFault` and
    `OSError`."""
    if file is None:
        file = folder / PRIVATE
        if not file.exists():
            _make(file)
    return SigningKey(_read_private(file))


def _make(file: Path) -> None:
    """Make a key. If another process has made one meanwhile, that one stays."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ImportError as error:
        raise KeyFault(f"{_MISSING}: {how_to_install('receipts')}") from error
    made = Ed25519PrivateKey.generate()
    content = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    new = file.with_name(f"{file.name}.{os.getpid()}")
    write_whole(new, content)
    try:
        os.link(new, file)  # which fails if there is one, and never shows a part of a key
    except FileExistsError:
        pass
    finally:
        new.unlink()


def write_whole(file: Path, content: bytes) -> None:
    """Write a file that only this user reads, on the disk when this returns."""
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(opened, rest) :]
        os.fsync(opened)
    finally:
        os.close(opened)


def _read_private(file: Path) -> "Ed25519PrivateKey":
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise KeyFault(f"{_MISSING}: {how_to_install('receipts')}") from error
    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyFault(f"{file} is no private key in PEM without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFault(f"{file} is no Ed25519 key: openssl genpkey -algorithm ed25519 makes one")
    return key


def public_key(file: Path) -> "Ed25519PublicKey":
    """Raises `KeyFault` and `OSError`."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise KeyFault(f"{_MISSING}: {how_to_install('receipts')}") from error
    try:
        key = load_pem_public_key(file.read_bytes())
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFault(f"{file} is no public key in PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFault(f"{file} is no Ed25519 key")
    return key


def fingerprint(key: "Ed25519PublicKey") -> str:
    """A name of the key: the SHA-256 of its 32 bytes, in hexadecimal."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def signed_by(keys: Iterable["Ed25519PublicKey"]) -> IsSigned:
    """Whether one of the keys has signed."""
    from cryptography.exceptions import InvalidSignature

    known = list(keys)

    def is_signed(data: bytes, signature: bytes) -> bool:
        for key in known:
            try:
                key.verify(signature, data)
            except InvalidSignature:
                continue
            return True
        return False

    return is_signed
