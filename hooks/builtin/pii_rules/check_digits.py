"""The check digits of cards, accounts and national ids. Unless they take a `text`, the functions take digits
without separators. `mod97` takes what `plain` returns."""

import unicodedata
from collections.abc import Sequence

_VERHOEFF_PRODUCT = (
    *("0123456789", "1234067895", "2340178956", "3401289567", "4012395678"),
    *("5987604321", "6598710432", "7659821043", "8765932104", "9876543210"),
)
_VERHOEFF_TURN = "1576283094"


def digits_of(text: str) -> str:
    """Return the text's decimal digits, of any script, without the characters between them."""
    return text if text.isdecimal() else "".join(filter(str.isdecimal, text))


def plain(text: str) -> str:
    """Return the letters and digits in ASCII, in upper case: patterns also match ſ as s, and ٣ as 3."""
    if text.isascii():
        return "".join(filter(str.isalnum, text)).upper()
    signs = filter(str.isalnum, unicodedata.normalize("NFKD", text))
    return "".join(str(int(sign)) if sign.isdecimal() else sign.upper() for sign in signs)


def luhn(digits: str) -> bool:
    """ISO/IEC 7812-1, annex B."""
    doubled = (int(d) * 2 for d in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(d - 9 if d > 9 else d for d in doubled)) % 10 == 0


def mod97(signs: str) -> bool:
    """ISO 7064 MOD 97-10 for an IBAN (ISO 13616): the first four characters move to the end."""
    return int("".join(str(int(sign, 36)) for sign in signs[4:] + signs[:4])) % 97 == 1


def mod11_10(digits: str) -> bool:
    """ISO 7064 MOD 11,10."""
    product = 10
    for digit in digits[:-1]:
        product = ((int(digit) + product) % 10 or 10) * 2 % 11
    return (product + int(digits[-1])) % 10 == 1


def verhoeff(text: str) -> bool:
    """J. Verhoeff, Error Detecting Decimal Codes (1969)."""
    check = 0
    for i, digit in enumerate(reversed(digits_of(text))):
        value = int(digit)
        for _ in range(i % 8):
            value = int(_VERHOEFF_TURN[value])
        check = int(_VERHOEFF_PRODUCT[check][value])
    return check == 0


def weighted(digits: str, weights: Sequence[int]) -> int:
    """Return the sum of the digits, each times its weight."""
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=False))


def adds_up(text: str, weights: Sequence[int], modulus: int) -> bool:
    """Whether the sum of the text's digits, each times its weight, is a multiple of `modulus`."""
    return weighted(digits_of(text), weights) % modulus == 0
