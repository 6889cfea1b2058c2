"""Numbers of payment cards and bank accounts."""

import re

from hooks.builtin.pii_rules.check_digits import digits_of, luhn, mod97, plain
from hooks.detect.rules import Rule

# Issuers by ISO/IEC 7812 prefix, with the lengths of their numbers.
_ISSUERS = re.compile(
    r"4(?:\d{15}|\d{18})|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|3[47]\d{13}"
    r"|(?:6011|64[4-9]\d|65\d\d|62\d\d|35[3-8]\d|352[89]|220[0-4])\d{12,15}|3(?:0[0-5]|[689]\d)\d{11}"
    r"|(?:50|5[6-8]|6[037]|8[12])\d{14,17}"
)


def card_length(text: str) -> int:
    """Return how many of the first characters of `text` are a card's number; 0: none. The last group of
    digits may be a separate number, such as a security code or a date."""
    for end in (len(text), len(text.rpartition(text[4])[0]) if not text[4].isdecimal() else 0):
        digits = digits_of(text[:end])
        if _ISSUERS.fullmatch(digits) and luhn(digits):
            return end
    return 0


CARD = Rule(
    "CREDIT_CARD",
    r"(?<![^\W_])(?<!\d\.)(?:(?:[245]\d|3[04-9]|6\d|8[12])\d\d(?:([ -]?)\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?"
    r"|([ -]?)\d{6}\2\d{4,5}))(?![^\W_])",
    length=card_length,
)

_IBAN_LENGTHS = {
    15: "NO", 16: "BE", 18: "DK FI FK FO GL NL SD", 19: "MK SI", 20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV", 22: "BG BH CR DE GB GE IE ME RS VA", 23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG", 25: "LY PT ST", 26: "IS TR", 27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HU LB NI PL SV", 29: "BR EG PS QA UA", 30: "JO KW MU YE", 31: "MT SC", 32: "LC",
    33: "RU",
}  # fmt: skip
"""The countries for each length of an IBAN, from the registry of ISO 13616."""


def _iban_form(length: int, countries: str) -> str:
    groups, rest = divmod(length - 4, 4)
    tail = rf"[ -]?[A-Z\d]{{{rest}}}" if rest else ""
    return rf"(?:{countries.replace(' ', '|')})\d\d(?:[ -]?[A-Z\d]{{4}}){{{groups}}}{tail}"


_IBAN_FORMS = "|".join(_iban_form(length, countries) for length, countries in _IBAN_LENGTHS.items())
IBAN = Rule(
    "IBAN_CODE",
    rf"(?<![^\W_])(?=[A-Za-z]{{2}}\d\d)(?i:{_IBAN_FORMS})(?![^\W_])",
    check=lambda text: mod97(plain(text)),
)
