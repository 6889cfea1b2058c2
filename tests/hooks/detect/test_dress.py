"""Characters in another dress are put in plain form, as Unicode says what they mean."""

import unicodedata

import pytest

from hooks.detect.dress import TYPOGRAPHY


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


def plain(char: str) -> str | None:
    """The character that is meant; None: it stays what it is."""
    meant, name = unicodedata.normalize("NFKC", char), unicodedata.name(char, "")
    is_letter = len(meant) == 1 and meant.isascii() and meant.isalpha()
    if is_letter and name.startswith(("FULLWIDTH LATIN", "MATHEMATICAL")):
        return meant
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    if unicodedata.category(char) == "Zs":
        return " "
    return meant if name.startswith("FULLWIDTH") and meant in "+-=_%$&#~@./" else None


def test_every_letter_digit_space_and_mark_has_its_plain_form() -> None:
    for code in range(0x80, 0x20000):
        if (meant := plain(chr(code))) is not None:
            assert TYPOGRAPHY.get(code) == meant, f"U+{code:04X}"
