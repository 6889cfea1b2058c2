"""National ids: the form of each, and the rules for its digits.

An id with a form of its own needs no more. A bare run of digits needs a word for the id to its left.
"""

from collections.abc import Callable
from datetime import date
from functools import partial

from hooks.builtin.pii_rules.check_digits import adds_up, digits_of, luhn, mod11_10, plain, verhoeff, weighted
from hooks.detect.rules import BEGIN, END, Rule, words


def _is_date(year: str, month: str, day: str) -> bool:
    try:
        date(int(year), int(month), int(day))
    except ValueError:
        return False
    return True


uk_nhs = partial(adds_up, weights=range(10, 0, -1), modulus=11)
ch_ahv = partial(adds_up, weights=(1, 3) * 6 + (1,), modulus=10)
au_tfn = partial(adds_up, weights=(1, 4, 3, 7, 5, 8, 6, 9, 10), modulus=11)


def us_ssn(text: str) -> bool:
    """Social Security Administration: every number that was issued passes."""
    digits = digits_of(text)
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return area not in ("000", "666") and area[0] != "9" and group != "00" and serial != "0000"


def uk_nino(text: str) -> bool:
    """HMRC, NIM39110: the prefixes that are issued."""
    prefix = plain(text)[:2]
    is_issued = prefix[0] not in "DFIQUV" and prefix[1] not in "DFIOQUV"
    return is_issued and prefix not in ("BG", "GB", "KN", "NK", "NT", "TN", "ZZ")


def de_tax_id(text: str) -> bool:
    """One of the first ten digits occurs two or three times; the rest occur at most once."""
    digits = digits_of(text)
    counts = sorted(digits[:10].count(digit) for digit in set(digits[:10]))
    is_even = counts[-1] in (2, 3) and counts[:-1] == [1] * (len(counts) - 1)
    return digits[0] != "0" and is_even and mod11_10(digits)


def fr_insee(text: str) -> bool:
    signs = plain(text).replace("2A", "19").replace("2B", "18")
    return signs.isdecimal() and 97 - int(signs[:13]) % 97 == int(signs[13:])


def es_nif(text: str) -> bool:
    signs = plain(text)
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(signs[:8]) % 23] == signs[8]


def es_nie(text: str) -> bool:
    signs = plain(text)
    return es_nif(str("XYZ".index(signs[0])) + signs[1:])


_ODD = dict(zip("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
                (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 1, 0, 5, 7, 9, 13, 15, 17, 19, 21,
                 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23), strict=True))  # fmt: skip


def it_fiscal_code(text: str) -> bool:
    """Decreto ministeriale 23/12/1976: characters at odd places have their own table of values."""
    signs = plain(text)
    odd = sum(_ODD[sign] for sign in signs[:15:2])
    even = sum(int(sign) if sign.isdecimal() else ord(sign) - ord("A") for sign in signs[1:15:2])
    return chr(ord("A") + (odd + even) % 26) == signs[15]


def nl_bsn(text: str) -> bool:
    digits = digits_of(text)
    return adds_up(digits, (9, 8, 7, 6, 5, 4, 3, 2, -1), 11) and digits != "0" * 9


def pl_pesel(text: str) -> bool:
    digits = digits_of(text)
    century, month = divmod(int(digits[2:4]), 20)
    year = str(((century + 1) % 5 + 18) * 100 + int(digits[:2]))
    is_date = _is_date(year, str(month), digits[4:6])
    return is_date and adds_up(digits, (1, 3, 7, 9) * 2 + (1, 3, 1), 10)


def pt_nif(text: str) -> bool:
    digits = digits_of(text)
    rest = weighted(digits, range(9, 1, -1)) % 11
    is_issued = digits[0] in "1235689" or digits[:2] in ("45", "70", "71", "72", "74", "75", "77", "79")
    return is_issued and int(digits[8]) == (0 if rest < 2 else 11 - rest)


def be_niss(text: str) -> bool:
    """The check puts a 2 before the first nine digits for people born from 2000 on."""
    digits = digits_of(text)
    if int(digits[2:4]) % 20 > 12 or int(digits[4:6]) > 31:
        return False
    return int(digits[9:]) in (97 - int(lead + digits[:9]) % 97 for lead in ("", "2"))


def se_personnummer(text: str) -> bool:
    """The day of a samordningsnummer is 60 more than the day of birth."""
    digits = digits_of(text)[-10:]
    day = str(int(digits[4:6]) % 60)
    return any(_is_date(c + digits[:2], digits[2:4], day) for c in ("19", "20")) and luhn(digits)


def fi_hetu(text: str) -> bool:
    signs = plain(text)
    number = int(signs[:6] + signs[-4:-1])
    is_date = any(_is_date(c + signs[4:6], signs[2:4], signs[:2]) for c in ("18", "19", "20"))
    return is_date and "0123456789ABCDEFHJKLMNPRSTUVWXY"[number % 31] == signs[-1]


def ca_sin(text: str) -> bool:
    digits = digits_of(text)
    return digits[0] not in "08" and luhn(digits)


def br_cpf(text: str) -> bool:
    digits = digits_of(text)
    checks = (weighted(digits[:n], range(n + 1, 1, -1)) * 10 % 11 % 10 for n in (9, 10))
    return "".join(map(str, checks)) == digits[9:] and len(set(digits)) > 1


def sg_nric(text: str) -> bool:
    signs = plain(text)
    rest = (weighted(signs[1:8], (2, 7, 6, 5, 4, 3, 2)) + (4 if signs[0] in "TG" else 0)) % 11
    return ("JZIHGFEDCBA" if signs[0] in "ST" else "XWUTRQPNMLK")[rest] == signs[8]


def cn_ric(text: str) -> bool:
    """GB 11643: ISO 7064 MOD 11-2."""
    signs = plain(text)
    rest = weighted(signs[:17], (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)) % 11
    return _is_date(signs[6:10], signs[10:12], signs[12:14]) and "10X98765432"[rest] == signs[17]


SSN = words("ssn", "social[ _-]?security(?:[ _-]?(?:number|no))?", "ss#")
NHS = words("nhs")
BSN = words("bsn", "burgerservicenummer", "sofi(?:nummer)?")
AADHAAR = words("aadhaar", "aadhar", "adhaar", "uidai", "uid")
NIF = words("nif", "contribuinte", "n[úu]mero fiscal")
NISS = words(
    "niss", "insz", "rijksregister\\w{0,12}", "registre national", "num[ée]ro national", "nationaal nummer"
)
SE = words("personn(?:umme)?r", "personal (?:identity )?number", "samordningsnummer")
SIN = words("sin", "social insurance(?: number)?", "nas", "assurance sociale")
TFN = words("tfn", "tax file(?: number)?")
CPF = words("cpf", "cadastro de pessoas? f[íi]sicas?")


def _rule(
    entity: str, pattern: str, check: Callable[[str], bool] | None = None, near: str | None = None
) -> Rule:
    return Rule(entity, BEGIN + pattern + END, check, near=near)


_FISCAL_CODE = r"(?i:[a-z]{6}[\dlmnp-v]{2}[abcdehlmprst][\dlmnp-v]{2}[a-z][\dlmnp-v]{3}[a-z])"
NATIONAL_IDS: dict[str, tuple[Rule, ...]] = {
    "au": (_rule("AU_TFN", r"\d{3}[ -]?\d{3}[ -]?\d{3}", au_tfn, TFN),),
    "be": (
        _rule("BE_NISS", r"\d\d([. ])\d\d\1\d\d[ -]\d{3}[. ]\d\d", be_niss),
        _rule("BE_NISS", r"\d{6}[ -]?\d{3}[ .]?\d\d", be_niss, NISS),
    ),
    "br": (
        _rule("BR_CPF", r"\d{3}\.\d{3}\.\d{3}-\d\d", br_cpf),
        _rule("BR_CPF", r"\d{9}-?\d\d", br_cpf, CPF),
    ),
    "ca": (
        _rule("CA_SIN", r"\d{3}-\d{3}-\d{3}", ca_sin),
        _rule("CA_SIN", r"\d{3} ?\d{3} ?\d{3}", ca_sin, SIN),
    ),
    "ch": (_rule("CH_AHV", r"756[ .]?\d{4}[ .]?\d{4}[ .]?\d\d", ch_ahv),),
    "cn": (_rule("CN_RIC", r"[1-9]\d{16}[\dXx]", cn_ric),),
    "de": (_rule("DE_TAX_ID", r"[1-9]\d[ /]?\d{3}[ /]?\d{3}[ /]?\d{3}", de_tax_id),),
    "es": (
        _rule("ES_NIF", r"\d{8}[ -]?[A-Za-z]", es_nif),
        _rule("ES_NIE", r"[XYZxyz][ -]?\d{7}[ -]?[A-Za-z]", es_nie),
    ),
    "fi": (_rule("FI_HETU", r"[0-3]\d[01]\d{3}[-+A-FU-Ya-fu-y]\d{3}[\dA-FHJ-NPR-Ya-fhj-npr-y]", fi_hetu),),
    "fr": (_rule("FR_INSEE", r"[1-478] ?\d\d ?\d\d ?(?:\d\d|2[ABab]) ?\d{3} ?\d{3} ?\d\d", fr_insee),),
    "gb": (
        _rule("UK_NINO", r"(?i:[a-z]{2} ?\d\d ?\d\d ?\d\d ?[a-d])", uk_nino),
        _rule("UK_NHS", r"\d{3}[ -]?\d{3}[ -]?\d{4}", uk_nhs, NHS),
    ),
    "in": (
        _rule("IN_AADHAAR", r"[2-9]\d{3}[ -]\d{4}[ -]\d{4}", verhoeff),
        _rule("IN_AADHAAR", r"[2-9]\d{11}", verhoeff, AADHAAR),
        _rule("IN_PAN", r"[A-Z]{3}[ABCFGHJLPT][A-Z]\d{4}[A-Z]"),
    ),
    "it": (
        _rule("IT_FISCAL_CODE", _FISCAL_CODE, it_fiscal_code),
    ),
    "nl": (
        _rule("NL_BSN", r"\d{4}\.\d\d\.\d{3}", nl_bsn),
        _rule("NL_BSN", r"\d{3}[ .-]?\d{3}[ .-]?\d{3}", nl_bsn, BSN),
    ),
    "pl": (_rule("PL_PESEL", r"\d{11}", pl_pesel),),
    "pt": (_rule("PT_NIF", r"\d{3} ?\d{3} ?\d{3}", pt_nif, NIF),),
    "se": (
        _rule("SE_PERSONNUMMER", r"(?:19|20)?\d{6}[-+]\d{4}", se_personnummer),
        _rule("SE_PERSONNUMMER", r"(?:19|20)?\d{10}", se_personnummer, SE),
    ),
    "sg": (_rule("SG_NRIC", r"[STFGstfg]\d{7}[A-Za-z]", sg_nric),),
    "us": (
        _rule("US_SSN", r"\d{3}-\d\d-\d{4}", us_ssn),
        _rule("US_SSN", r"\d{3} ?\d\d ?\d{4}", us_ssn, SSN),
    ),
}  # fmt: skip
"""The rules by country (ISO 3166 code)."""
