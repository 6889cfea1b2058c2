"""The lines of a file of receipts: canonical JSON, with a signature.

    {"receipt":{...},"signature":"..."}

Canonical JSON is UTF-8, with keys in order, without spaces, and as short as JSON can be. Receipts have
whole numbers only, so the form is that of RFC 8785. The signature is Ed25519's, in hexadecimal, over the
canonical JSON of the receipt alone. Of receipts that are written together, only the last is signed: it has
the hash of the line before it, which has the hash of the one before, and so on. The others have an empty
signature. A file's head has the same form, with the name `head`.
"""

import hashlib
from collections.abc import Callable
from typing import Any, Literal

import orjson

Kind = Literal["receipt", "head"]
Sign = Callable[[bytes], bytes]
IsSigned = Callable[[bytes, bytes], bool]
"""Whether the first bytes have the second ones as their signature."""


class FormError(ValueError):
    """A line is no receipt. The message says why, in a few words."""


def canonical(value: Any) -> bytes:
    """Lone surrogates, which UTF-8 does not have, become question marks."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return orjson.dumps(_clean(value), option=orjson.OPT_SORT_KEYS)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_clean(name): _clean(one) for name, one in value.items()}
    return [_clean(one) for one in value] if isinstance(value, list | tuple) else value


def signed_line(kind: Kind, value: Any, sign: Sign) -> bytes:
    """The line without its end. `sign` may return nothing."""
    body = canonical(value)
    return b'{"%b":%b,"signature":"%b"}' % (kind.encode(), body, sign(body).hex().encode())


def read_line(kind: Kind, line: bytes, is_signed: IsSigned | None = None) -> tuple[dict[str, Any], bool]:
    """The value of a line, and whether it has a signature. `is_signed`: also check that. Raises
    `FormError`."""
    try:
        read = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise FormError("is not JSON") from None
    if not isinstance(read, dict) or read.keys() != {kind, "signature"} or not isinstance(read[kind], dict):
        raise FormError(f"is no {kind} with its signature")
    try:
        signature = bytes.fromhex(read["signature"])
    except (TypeError, ValueError):
        raise FormError("has no signature in hexadecimal") from None
    value: dict[str, Any] = read[kind]
    if signed_line(kind, value, lambda _: signature) != line:
        raise FormError("is not written in the canonical form")
    if signature and is_signed is not None and not is_signed(canonical(value), signature):
        raise FormError("has a signature that is not the key's")
    return value, bool(signature)


def unsigned(_: bytes) -> bytes:
    return b""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
