"""Numbers of payment cards and bank accounts, and addresses of coins."""

import hashlib
import re
from collections.abc import Iterable, Iterator

from hooks.builtin.pii_rules.check_digits import digits_of, luhn, mod97, plain
from hooks.builtin.pii_rules.family import AFTER_IBAN, words_near
from hooks.detect.rules import Rule

# Issuers by ISO/IEC 7812 prefix, with the lengths of their numbers.
_VISA = r"4(?:\d{15}|\d{18})"
_MASTERCARD = r"(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"
_AMEX = r"3[47]\d{13}"
_MORE = r"(?:6011|64[4-9]\d|65\d\d|62\d\d|35[3-8]\d|352[89]|220[0-4])\d{12,15}"
"""Discover, UnionPay, JCB and Mir."""
_DINERS = r"3(?:0[0-5]|[689]\d)\d{11}"
_MAESTRO = r"(?:50|5[6-8]|6[037]|8[12])\d{14,17}"
_UATP = r"1\d{14}"
_ISSUERS = re.compile("|".join((_VISA, _MASTERCARD, _AMEX, _MORE, _DINERS, _MAESTRO, _UATP)))
_KNOWN_BARE = re.compile(rf"(?!\d{{17}})(?:{'|'.join((_VISA, _MASTERCARD, _AMEX, _MORE))})")
"""Cards that count without a word or groups: of 15 or 16 digits, as most cards have."""


def card_length(text: str) -> int:
    """Return how many of the first characters of `text` are a card's number; 0: none. The last group of
    digits may be a separate number, such as a security code or a date."""
    for end in (len(text), len(text.rpartition(text[4])[0]) if not text[4].isdecimal() else 0):
        digits = digits_of(text[:end])
        if _ISSUERS.fullmatch(digits) and luhn(digits):
            return end
    return 0


def is_bare_card(text: str) -> bool:
    digits = digits_of(text)
    return _KNOWN_BARE.fullmatch(digits) is not None and luhn(digits)


def is_named_card(text: str) -> bool:
    return card_length(text) == len(text)


_CARD_WORDS = words_near(
    "card|credit card|debit card|bank card|visa|mastercard|amex|american express|discover|diners|maestro"
    "|unionpay|jcb|uatp|pan|cc|ccn|payment|kreditkarte|karte|karten|tarjeta|carte|carta|cartão|kort|kaart"
    "|creditcard|kortnummer|карта|карты|карту|信用卡|银行卡|卡号|カード|카드"
)
_OF_NO_CARD = r"(?<![^\W_])(?<!\d\.)(?<!-)(?<![A-Za-z\d]_)"
"""No letter or digit is before a card's number, no minus sign, and no prefix as in ORD-4111."""
_AN_ID = (
    r"(?:(?:(?<![a-z])|_|(?-i:(?<=[a-z])(?=[A-Z])))(?:ids?|[ug]uid|orders?|refs?|reference|invoice|ticket|trace"
    r"|tracking|serial|version|build|commit|time|timestamp|ts|nonce|seq|sequence|offset|size|bytes|sku|isbn)"
    r"(?:[ _-]?(?:no|nr|number|id|code)(?![a-z]))?[\"'`]{0,2}[ ]?[:=#.]{0,2}[ ]?[\"'`#]{0,2}"
    r"|[A-Za-z\d.]/|#)"
)
"""The name of another number directly before a number, or the path of an address."""
_GROUPED = (
    r"(?:[245]\d|3[04-9]|6\d|8[12])\d\d(?:([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?|([ -])\d{6}\2\d{4,5})"
)
CARDS = (
    Rule("CREDIT_CARD", rf"{_OF_NO_CARD}{_GROUPED}(?![^\W_])", length=card_length, unless=AFTER_IBAN),
    Rule(
        "CREDIT_CARD",
        rf"{_OF_NO_CARD}(?:[245]\d|3[457]|6\d)\d{{13,14}}(?![^\W_])(?!\.\d)",
        check=is_bare_card,
        unless=f"(?:{AFTER_IBAN}|{_AN_ID})",
    ),
    Rule("CREDIT_CARD", r"(?<![^\W_])[2-68]\d{13,18}(?![^\W_])", check=is_named_card, near=_CARD_WORDS),
)
"""Cards in printed groups, bare, and after a word."""
_UATP_GROUPS = r"1\d{3}(?:([ -])\d{6}\1\d{5}|([ -])\d{5}\2\d{6}(?![ -]\d))"
UATP_CARDS = (
    Rule("CREDIT_CARD", rf"{_OF_NO_CARD}{_UATP_GROUPS}(?![^\W_])", length=card_length),
    Rule("CREDIT_CARD", r"(?<![^\W_])1\d{14}(?![^\W_])", check=is_named_card, near=_CARD_WORDS),
)
"""Airlines issue these cards. Other ids have as many digits, so the rules come after theirs."""
_GAP_OR_NONE = _GROUPED.replace("([ -])", "([ -]?)")
CHOSEN_CARDS = (
    Rule("CREDIT_CARD", rf"{_OF_NO_CARD}{_GAP_OR_NONE}(?![^\W_])", length=card_length, unless=AFTER_IBAN),
    Rule("CREDIT_CARD", rf"{_OF_NO_CARD}1\d{{14}}(?![^\W_])", length=card_length),
)
"""Bare cards of all issuers, if cards are chosen."""

_IBAN_FORMS = {
    "11n": "NO", "12n": "BE", "14n": "DK FI FO GL SD", "2a12n": "FK", "4a10n": "NL", "15n": "SI",
    "3n10c2n": "MK", "16n": "AT BA EE LT MN XK", "3n13c": "KZ LU", "5n12c": "CH LI", "17n": "HR",
    "4a13c": "LV", "18n": "CR DE ME RS VA", "4a14n": "GB IE", "4a14c": "BH", "4a6n8c": "BG", "2a16n": "GE",
    "19n": "AE IL SO TL", "4a15n": "IQ", "4a15c": "GI", "3n16c": "OM", "20n": "CZ ES SE SK TN",
    "4a16n": "VG", "4a16c": "PK RO", "8n12c": "AD", "20c": "MD", "2n18c": "SA", "21n": "LY PT ST",
    "22n": "IS", "6n16c": "TR", "23n": "BI DJ MR", "10n11c2n": "FR MC", "7n16c": "GR", "1a10n12c": "IT SM",
    "24n": "HU PL", "4a20n": "HN NI SV", "4a20c": "AZ", "4c20n": "DO", "4c20c": "GT", "4n20c": "LB",
    "8n16c": "AL CY", "4c4n16c": "BY", "25n": "EG", "23n1a1c": "BR", "4a21c": "PS QA", "6n19c": "UA",
    "4a4n18c": "JO YE", "4a22c": "KW", "4a19n3a": "MU", "4a5n18c": "MT", "4a20n3a": "SC", "4a24c": "LC",
    "14n15c": "RU",
}  # fmt: skip
"""The countries for each form of an account, from the registry of ISO 13616: digits (n), letters (a), or any
of them (c)."""
_PARTS = re.compile(r"(\d+)([nac])")
_SIGNS = {"n": r"\d", "a": "[A-Z]", "c": r"[A-Z\d]"}


def iban_patterns() -> Iterator[tuple[str, int, str]]:
    """Yield the country of each account with an IBAN, the account's length, and its pattern."""
    for form, countries in _IBAN_FORMS.items():
        parts = _PARTS.findall(form)
        pattern = "".join(f"{_SIGNS[kind]}{{{count}}}" for count, kind in parts)
        for country in countries.split():
            yield country, sum(int(count) for count, _ in parts), pattern


def _loose_iban(length: int, countries: Iterable[str]) -> str:
    """Return a pattern for the IBANs of a length. The automaton reads all of them in one pass, so letters and
    digits are told apart by `is_iban`."""
    groups, rest = divmod(length, 4)
    tail = rf"[ -]?[A-Z\d]{{{rest}}}" if rest else ""
    return rf"(?:{'|'.join(countries)})\d\d(?:[ -]?[A-Z\d]{{4}}){{{groups}}}{tail}"


_BY_LENGTH: dict[int, list[str]] = {}
_HAS_IBAN_FORM = {}
for _country, _length, _pattern in iban_patterns():
    _BY_LENGTH.setdefault(_length, []).append(_country)
    _HAS_IBAN_FORM[_country] = re.compile(rf"[A-Z]{{2}}\d\d{_pattern}").fullmatch


def is_iban(text: str) -> bool:
    """Whether the account has its country's form, the check digits fit, and groups are of four characters."""
    signs = plain(text)
    groups = re.split("[ -]", text)
    is_even = len(groups) == 1 or {len(group) for group in groups[:-1]} == {4}
    is_one = not (" " in text and "-" in text)
    return is_even and is_one and _HAS_IBAN_FORM[signs[:2]](signs) is not None and mod97(signs)


_LOOSE_IBANS = "|".join(_loose_iban(length, countries) for length, countries in sorted(_BY_LENGTH.items()))
IBAN = Rule("IBAN_CODE", rf"(?<![^\W_])(?=[A-Za-z]{{2}}\d\d)(?i:{_LOOSE_IBANS})(?![^\W_])", check=is_iban)

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
