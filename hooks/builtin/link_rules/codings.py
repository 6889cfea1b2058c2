"""The readings of a part of an address: its escapes decoded, and the texts that it has in codings of bytes.

Each coding is tried with separators left out, from each place at which it may begin, and within another one.
The cost is bounded: what is no text is dropped, and a text is read once.
"""

import base64
import binascii
import html
import re
import string
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import unquote, unquote_plus

_DEEPEST = 3
"""Most codings in each other."""
_MOST_ESCAPED = 4
"""Most times that escapes are decoded."""
_MOST_INFLATED = 8192
"""Most bytes of a compressed text that are read."""
_JSON = re.compile(r"\\{1,3}(?:u([\da-fA-F]{4})|x([\da-fA-F]{2}))")
_FIELD = re.compile(r"[?&;/][^=&;?/#]{1,32}=")
"""The name of a field: a text may be spread over several fields."""
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufffd]+")
"""Characters that come often in bytes that are no text."""
_URL_SAFE = str.maketrans("-_", "+/")
_NOT_BASE64, _NOT_ALNUM = re.compile(r"[^A-Za-z0-9+/]"), re.compile(r"[^A-Za-z0-9]")
_RUN_BASE64 = re.compile(r"[A-Za-z0-9+/]{2,}")
_PREFIX_HEX = re.compile(r"(?i)0x|\\x|\\u00|&#x|u\+00")
_NOT_HEX = re.compile(r"[^0-9a-fA-F]")
_RUN_HEX = re.compile(r"[0-9a-fA-F]{16,}")
_NOT_BASE32, _NOT_BASE32_HEX = re.compile(r"[^A-Z2-7]"), re.compile(r"[^0-9A-V]")
_FROM_BASE32_HEX = str.maketrans("0123456789ABCDEFGHIJKLMNOPQRSTUV", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
_LEFT_OVER = (0, 1, 0, 1, 0, 0, 1, 0)
"""Characters to leave out at the end of base32, by the characters after the last whole group of eight."""
_NUMBER = re.compile(r"(?<!\d)\d{2,3}(?!\d)")
_RUN_NUMBERS = re.compile(r"\d{12,}")
_NOT_BINARY = re.compile(r"[^01]")
_BITS = re.compile(r"(?<!\d)[01]{6,7}(?!\d)")
_TAGS = {0xE0000 + code: chr(code) for code in range(0x20, 0x7F)}
"""The characters of Unicode that nobody sees, and that stand for those of ASCII."""
_ROT13 = str.maketrans(
    string.ascii_letters,
    "".join(case[13:] + case[:13] for case in (string.ascii_lowercase, string.ascii_uppercase)),
)


def normal(text: str) -> str:
    """The text without accents, and with unseen tags and letters of other widths and styles in plain form."""
    if text.isascii():
        return text
    text = text.translate(_TAGS)
    return "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))


def readings(part: str, least: int) -> Iterator[str]:
    """The readings of a part of an address. A text of fewer than half of `least` characters is not read."""
    seen: set[str] = set()
    for text in _unescaped(normal(part)):
        yield from _read(text, least, seen, _DEEPEST)
        for other in (text[::-1], text.translate(_ROT13)):
            yield from _read(other, least, seen, 1)
        if _FIELD.search(text):
            yield from _read(_FIELD.sub("", text), least, seen, _DEEPEST)


def _read(text: str, least: int, seen: set[str], depth: int) -> Iterator[str]:
    if text in seen or len(text) < least // 2:
        return
    seen.add(text)
    yield text
    if depth:
        for data in _decoded(text, least):
            for one in _texts_of(data, least):
                for form in _unescaped(one):
                    yield from _read(form, least, seen, depth - 1)


def _unescaped(text: str) -> Iterator[str]:
    """The text, and the text without its escapes, again and again."""
    for _ in range(_MOST_ESCAPED):
        yield text
        if "+" in text:
            yield unquote_plus(text)
        plain = html.unescape(unquote(text))
        plain = normal(_JSON.sub(lambda found: chr(int(found[1] or found[2], 16)), plain))
        if plain == text:
            return
        text = plain


def _texts_of(data: bytes, least: int) -> Iterator[str]:
    """The texts in some bytes, which may be compressed."""
    if data[:2] == b"\x1f\x8b" or data[:1] == b"\x78":
        with suppress(zlib.error):  # it is no compressed text, which may begin with these bytes
            data = zlib.decompressobj(47).decompress(data, _MOST_INFLATED)
    if data.count(0) * 3 > len(data):  # UTF-16 and UTF-32
        data = data.replace(b"\0", b"")
    for text in _NO_TEXT.split(data.decode(errors="replace")):
        if len(text) >= least // 2:
            yield text


def _decoded(text: str, least: int) -> Iterator[bytes]:
    yield from _from_base64(text, least)
    yield from _from_hex(text, least)
    yield from _from_base32(text, least)
    yield from _from_numbers(text, least)


def _from_base64(text: str, least: int) -> Iterator[bytes]:
    plain = text.translate(_URL_SAFE)
    runs = _RUN_BASE64.findall(plain)
    if len(runs) > 1:
        yield b"".join(_base64(run) for run in runs)
    joined = (_NOT_BASE64.sub("", plain), _NOT_ALNUM.sub("", text))
    for run in dict.fromkeys((*runs, *joined)):
        for begin in range(4) if len(run) >= least // 2 else ():
            yield _base64(run[begin:])


def _base64(run: str) -> bytes:
    run = run[:-1] if len(run) % 4 == 1 else run
    try:
        return binascii.a2b_base64(run + "=" * (-len(run) % 4))
    except binascii.Error:
        return b""


def _from_hex(text: str, least: int) -> Iterator[bytes]:
    joined = (_NOT_HEX.sub("", _PREFIX_HEX.sub(" ", text)), _NOT_HEX.sub("", text))
    runs = (*_RUN_HEX.findall(text), *joined)
    for run in dict.fromkeys(runs):
        for begin in range(2) if len(run) >= least // 2 else ():
            yield bytes.fromhex(run[begin : begin + (len(run) - begin) // 2 * 2])


def _from_base32(text: str, least: int) -> Iterator[bytes]:
    upper = text.upper()
    others = _NOT_BASE32_HEX.sub("", upper).translate(_FROM_BASE32_HEX)
    for run in (_NOT_BASE32.sub("", upper), others):
        for begin in range(8) if len(run) >= least else ():
            piece = run[begin:]
            piece = piece[: len(piece) - _LEFT_OVER[len(piece) % 8]]
            yield base64.b32decode(piece + "=" * (-len(piece) % 8))


def _from_numbers(text: str, least: int) -> Iterator[bytes]:
    """The characters whose codes are there: decimal or octal, of three digits or parted, or binary."""
    yield from _of_codes(_NUMBER.findall(text), least)
    for run in _RUN_NUMBERS.findall(text):
        for begin in range(3):
            yield from _of_codes([run[i : i + 3] for i in range(begin, len(run) - 2, 3)], least)
    if len(bits := _BITS.findall(text)) >= least // 2:
        yield bytes(int(one, 2) for one in bits)
    digits = _NOT_BINARY.sub("", text)
    for begin in range(8) if len(digits) >= 4 * least else ():
        piece = digits[begin : begin + (len(digits) - begin) // 8 * 8]
        yield int(piece, 2).to_bytes(len(piece) // 8, "big")


def _of_codes(numbers: Sequence[str], least: int) -> Iterator[bytes]:
    if len(numbers) >= least // 2:
        yield bytes(number for one in numbers if (number := int(one)) < 256)
        yield bytes(int(one, 8) & 255 for one in numbers if not {"8", "9"} & {*one})
