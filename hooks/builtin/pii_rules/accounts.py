"""Numbers of payment cards and bank accounts, and addresses of coins."""

import hashlib
import re

from hooks.builtin.pii_rules.check_digits import digits_of, luhn, mod97, plain
from hooks.builtin.pii_rules.family import BEHIND_IBAN
from hooks.detect.rules import Rule

# Issuers by ISO/IEC 7812 prefix, with the lengths of their numbers.
_ISSUERS = re.compile(
    r"4(?:\d{15}|\d{18})|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|3[47]\d{13}"
    r"|(?:6011|64[4-9]\d|65\d\d|62\d\d|35[3-8]\d|352[89]|220[0-4])\d{12,15}|3(?:0[0-5]|[689]\d)\d{11}"
    r"|(?:50|5[6-8]|6[037]|8[12])\d{14,17}|1\d{14}"
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
    r"(?<![^\W_])(?<!\d\.)(?<![\W_]-)(?:(?:[245]\d|3[04-9]|6\d|8[12])\d\d"
    r"(?:([ -]?)\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?"
    r"|([ -]?)\d{6}\2\d{4,5}))(?![^\W_])",
    length=card_length,
    unless=BEHIND_IBAN,
)

UATP_CARD = Rule(
    "CREDIT_CARD",
    r"(?<![^\W_])(?<!\d\.)(?<![\W_]-)1\d{3}(?:([ -]?)\d{6}\1\d{5}|([ -])\d{5}\2\d{6}(?![ -]\d))(?![^\W_])",
    length=card_length,
)
"""Airlines issue these cards. Other ids have as many digits, so the rule comes after theirs."""

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

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_BECH32_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_BASE58_VERSIONS = (0x00, 0x05, 0x1E, 0x30, 0x32)
"""The first bytes of addresses of Bitcoin, Dogecoin and Litecoin."""


def is_coin_address(text: str) -> bool:
    """Whether the check digits of an address of Bitcoin, Dogecoin or Litecoin fit. Ethereum has none."""
    if text[:2] in ("0x", "0X"):
        return True
    return is_bech32(text) if text[:4].lower() in ("bc1q", "bc1p", "ltc1") else is_base58(text)


def is_base58(text: str) -> bool:
    """Base58Check: the last four bytes are those of a hash of the others."""
    number = 0
    for sign in text:
        number = number * 58 + _BASE58.index(sign)
    if number >= 1 << 200:
        return False
    data = number.to_bytes(25, "big")
    digest = hashlib.sha256(hashlib.sha256(data[:21]).digest()).digest()
    return data[0] in _BASE58_VERSIONS and digest[:4] == data[21:]


def is_bech32(text: str) -> bool:
    """BIP 173 and BIP 350."""
    prefix, _, data = text.lower().rpartition("1")
    signs = [ord(sign) >> 5 for sign in prefix] + [0] + [ord(sign) & 31 for sign in prefix]
    signs += [_BECH32.index(sign) for sign in data]
    checked = 1
    for sign in signs:
        top = checked >> 25
        checked = (checked & 0x1FFFFFF) << 5 ^ sign
        for i, generator in enumerate(_BECH32_GENERATORS):
            checked ^= generator if top >> i & 1 else 0
    return checked in (1, 0x2BC830A3)


CRYPTO = Rule(
    "CRYPTO",
    rf"(?<![^\W_])(?:(?:bc1[qp]|ltc1)[{_BECH32}]{{35,59}}|(?:BC1[QP]|LTC1)[{_BECH32.upper()}]{{35,59}}"
    r"|[13DLM][1-9A-HJ-NP-Za-km-z]{25,34}|0x[\da-fA-F]{40})(?![^\W_])",
    check=is_coin_address,
)
