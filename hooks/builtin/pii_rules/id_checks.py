"""The rules for the digits of national ids. Each function takes the id as it is written.

The checks of further ids are those of `python-stdnum`, which the table names: see `national_ids`.
"""

from datetime import date
from functools import partial

from hooks.builtin.pii_rules.check_digits import adds_up, digits_of, luhn, mod11_10, plain, verhoeff, weighted


def _is_date(year: str, month: str, day: str) -> bool:
    try:
        date(int(year), int(month), int(day))
    except ValueError:
        return False
    return True


uk_nhs = partial(adds_up, weights=range(10, 0, -1), modulus=11)
ch_ahv = partial(adds_up, weights=(1, 3) * 6 + (1,), modulus=10)
au_tfn = partial(adds_up, weights=(1, 4, 3, 7, 5, 8, 6, 9, 10), modulus=11)


def au_medicare(text: str) -> bool:
    """The ninth digit checks the first eight; the tenth counts the cards that were issued."""
    digits = digits_of(text)
    return weighted(digits, (1, 3, 7, 9, 1, 3, 7, 9)) % 10 == int(digits[8])


def de_document(text: str) -> bool:
    """ICAO 9303: the last digit checks the other characters of an identity card's or passport's number."""
    return _icao(plain(text)[:-1]) == int(plain(text)[-1])


def _icao(signs: str) -> int:
    return sum(int(sign, 36) * (7, 3, 1)[i % 3] for i, sign in enumerate(signs)) % 10


def de_health_insurance(text: str) -> bool:
    """The letter counts as its place in the alphabet. Every digit counts once or twice."""
    signs = plain(text)
    return _halved(f"{ord(signs[0]) - 64:02}{signs[1:9]}", (1, 2) * 5) == int(signs[9])


def de_social_security(text: str) -> bool:
    """Deutsche Rentenversicherung: area, date of birth, letter, serial number and check digit."""
    signs = plain(text)
    day, month = int(signs[2:4]), int(signs[4:6])
    digits = f"{signs[:8]}{ord(signs[8]) - 64:02}{signs[9:11]}"
    is_date = 1 <= (day - 50 if day > 50 else day) <= 31 and 1 <= month <= 12
    return is_date and _halved(digits, (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1)) == int(signs[11])


def _halved(digits: str, weights: tuple[int, ...]) -> int:
    """Return the last digit of the sum of the digits of each digit times its weight."""
    products = (int(digit) * weight for digit, weight in zip(digits, weights, strict=True))
    return sum(product // 10 + product % 10 for product in products) % 10


def doctor_or_practice(text: str) -> bool:
    """Kassenärztliche Bundesvereinigung: the seventh digit of an LANR checks the first six."""
    digits = digits_of(text)
    return (10 - weighted(digits, (4, 9) * 3) % 10) % 10 == int(digits[6])


def dea_number(text: str) -> bool:
    """Drug Enforcement Administration: the last digit is that of a sum of the first six."""
    digits = digits_of(text)[-7:]
    return (weighted(digits[:6], (1, 2) * 3)) % 10 == int(digits[6])


def us_npi(text: str) -> bool:
    """CMS: the digits after 80840 pass ISO/IEC 7812-1."""
    digits = digits_of(text)
    return luhn("80840" + digits) and len(set(digits)) > 1


def us_ssn(text: str) -> bool:
    """Social Security Administration: every number that was issued passes."""
    digits = digits_of(text)
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return area not in ("000", "666") and area[0] != "9" and group != "00" and serial != "0000"


def us_unissued_ssn(text: str) -> bool:
    """A number of an area from 900 on, which is never issued, and is no ITIN."""
    digits = digits_of(text)
    group = int(digits[3:5])
    is_itin = 50 <= group <= 65 or 70 <= group <= 88 or (90 <= group <= 99 and group != 93)
    return digits[0] == "9" and group > 0 and digits[5:] != "0000" and not is_itin


def uk_driving_licence(text: str) -> bool:
    """DVLA: letters of the surname before nines, and a date of birth."""
    return "9" not in plain(text)[:5].rstrip("9") and plain(text)[0] != "9"


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


def de_any_tax_id(text: str) -> bool:
    """The check digit alone, for a number that is called a tax id."""
    return mod11_10(digits_of(text))


def fr_insee(text: str) -> bool:
    signs = plain(text).replace("2A", "19").replace("2B", "18")
    return signs.isdecimal() and 97 - int(signs[:13]) % 97 == int(signs[13:])


def fr_dated_insee(text: str) -> bool:
    """An INSEE number of a person, with a month of birth and a department."""
    signs = plain(text)
    return 1 <= int(signs[3:5]) <= 12 and signs[5:7] not in ("00", "96") and fr_insee(text)


def es_nif(text: str) -> bool:
    signs = plain(text).zfill(9)
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


_RECENT = ("2015", "2035")
"""The years that a date of a program may have."""


def _is_serial(text: str) -> bool:
    """Whether `text` may be a date of these years and a serial number, as 261130-0042 and 202611300042."""
    date_of, dash, _ = text.partition("-")
    if not (text.isdecimal() or (dash and digits_of(text) == text.replace("-", ""))):
        return False
    day = (date_of if len(date_of) in (6, 8) else text[:8] if len(text) == 12 else text[:6])[-6:]
    year = f"20{day[:2]}" if len(digits_of(text)) == 10 else text[:4]
    return _RECENT[0] <= year <= _RECENT[1] and _is_date(year, day[2:4], day[4:])


def se_personnummer(text: str) -> bool:
    """The day of a samordningsnummer is 60 more than the day of birth."""
    digits = digits_of(text)[-10:]
    day = str(int(digits[4:6]) % 60)
    return any(_is_date(c + digits[:2], digits[2:4], day) for c in ("18", "19", "20")) and luhn(digits)


def se_personnummer_no_serial(text: str) -> bool:
    """Not a date and a serial number or a time."""
    return not _is_serial(text) and se_personnummer_not_time(text)


def se_personnummer_not_time(text: str) -> bool:
    """Not a date and the time of a day, as in 202411240930."""
    digits = digits_of(text)
    is_time = len(text) == 12 and int(digits[8:10]) < 24 and int(digits[10:]) < 60
    return not is_time and se_personnummer(text)


def fi_hetu(text: str) -> bool:
    signs = plain(text)
    number = int(signs[:6] + signs[-4:-1])
    is_date = any(_is_date(c + signs[4:6], signs[2:4], signs[:2]) for c in ("18", "19", "20"))
    return is_date and "0123456789ABCDEFHJKLMNPRSTUVWXY"[number % 31] == signs[-1]


def fi_hetu_no_serial(text: str) -> bool:
    return not _is_serial(text) and fi_hetu(text)


def ca_sin(text: str) -> bool:
    digits = digits_of(text)
    return digits[0] not in "08" and luhn(digits)


def br_cpf(text: str) -> bool:
    digits = digits_of(text)
    checks = (weighted(digits[:n], range(n + 1, 1, -1)) * 10 % 11 % 10 for n in (9, 10))
    return "".join(map(str, checks)) == digits[9:] and len(set(digits)) > 1


def kr_resident(text: str) -> bool:
    """A date of birth and the digit for sex and century. Numbers issued since October 2020 are random."""
    digits = digits_of(text)
    century = "19" if digits[6] in "1256" else "20" if digits[6] in "3478" else "18"
    return len(set(digits)) > 2 and _is_date(century + digits[:2], digits[2:4], digits[4:6])


def kr_brn(text: str) -> bool:
    """National Tax Service: the ninth digit counts five times, and the tens of this product once more."""
    digits = digits_of(text)
    total = weighted(digits[:9], (1, 3, 7, 1, 3, 7, 1, 3, 5)) + int(digits[8]) * 5 // 10
    return (10 - total % 10) % 10 == int(digits[9]) and len(set(digits)) > 1


def tr_national_id(text: str) -> bool:
    """Nüfus ve Vatandaşlık İşleri: two check digits."""
    digits = [int(digit) for digit in digits_of(text)]
    tenth = (sum(digits[:9:2]) * 7 - sum(digits[1:8:2])) % 10
    return [tenth, sum(digits[:10]) % 10] == digits[9:] and len(set(digits)) > 2


def za_id(text: str) -> bool:
    digits = digits_of(text)
    return any(_is_date(c + digits[:2], digits[2:4], digits[4:6]) for c in ("19", "20")) and luhn(digits)


def in_aadhaar_not_time(text: str) -> bool:
    """Twelve digits, and not a date and a time as 202411240930."""
    return text[:2] != "20" and verhoeff(text)


def sg_nric(text: str) -> bool:
    signs = plain(text)
    if signs[0] == "M":
        rest = (weighted(signs[1:8], (2, 7, 6, 5, 4, 3, 2)) + 3) % 11
        return "KLJNPQRTUWX"[10 - rest] == signs[8]
    rest = (weighted(signs[1:8], (2, 7, 6, 5, 4, 3, 2)) + (4 if signs[0] in "TG" else 0)) % 11
    return ("JZIHGFEDCBA" if signs[0] in "ST" else "XWUTRQPNMLK")[rest] == signs[8]


_PROVINCES = {
    *("11", "12", "13", "14", "15", "21", "22", "23", "31", "32", "33", "34", "35", "36", "37", "41", "42"),
    *("43", "44", "45", "46", "50", "51", "52", "53", "54", "61", "62", "63", "64", "65", "71", "81", "82"),
    *("83", "91"),
}
"""GB/T 2260: the provinces of China."""


def cn_ric(text: str) -> bool:
    """GB 11643: ISO 7064 MOD 11-2, after a province and the date of birth of a person who may live."""
    signs = plain(text)
    if signs[:2] not in _PROVINCES or signs[6:8] not in ("19", "20") or signs[6:10] > "2040":
        return False
    rest = weighted(signs[:17], (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)) % 11
    return _is_date(signs[6:10], signs[10:12], signs[12:14]) and "10X98765432"[rest] == signs[17]
