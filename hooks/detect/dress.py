"""Dress: typographic forms of characters, and the plain characters that they mean.

A no-break space is a space, and a non-breaking hyphen is a hyphen. Each character here means one other, so
places in a text stay the same.
"""

import unicodedata
from itertools import chain

_SPACES = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_HYPHENS = "\u2010\u2011\u2012\u2013\u2212\ufe58\ufe63\uff0d"
_MARKS = {
    **dict.fromkeys("\u2024\ufe52\uff0e", "."),
    **dict.fromkeys("\ufe6b\uff20", "@"),
    **dict.fromkeys("\u2044\uff0f", "/"),
    **dict(zip("\uff0b\uff1d\uff3f\uff05\uff04\uff06\uff03\uff5e", "+=_%$&#~", strict=True)),
}
# Quotes, brackets, commas, colons and backslashes stay: JSON is read by them.
_LETTERS = chain(range(0xFF21, 0xFF3B), range(0xFF41, 0xFF5B), range(0x1D400, 0x1D7CC))

TYPOGRAPHY: dict[int, str] = {
    **{ord(char): " " for char in _SPACES},
    **{ord(char): "-" for char in _HYPHENS},
    **{ord(char): plain for char, plain in _MARKS.items()},
    **{
        code: plain
        for code in _LETTERS
        if (plain := unicodedata.normalize("NFKC", chr(code))).isascii() and len(plain) == 1
    },
    **{code: str(unicodedata.decimal(chr(code))) for code in range(0x80, 0x20000) if chr(code).isdecimal()},
}
"""Spaces, hyphens, full-width and mathematical letters, and the digits of all scripts (Unicode's Nd)."""

_LOOK_ALIKE = {
    "АВЕЅІЈКМНОРСТУХаеѕіјорсухԁԛԝһ": "ABESIJKMHOPCTYXaesijopcyxdqwh",  # Cyrillic
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧνο": "ABEZHIKMNOPTYXvo",  # Greek
}
HOMOGLYPHS = TYPOGRAPHY | {
    ord(char): plain
    for chars, plains in _LOOK_ALIKE.items()
    for char, plain in zip(chars, plains, strict=True)
}
"""The same, and Cyrillic and Greek letters that look like Latin ones."""
