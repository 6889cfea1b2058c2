"""Personal data that is nobody's: valid by its format's specification, and drawn at random."""

import ipaddress
import random
from collections.abc import Callable

from benchmarks.samples import DIGITS, LOWER, UPPER, Kind, Make, changed, chars, fill, grouped

NAMES = (
    *("anna", "b.cohen", "mary-jane", "o.brien", "li_wei", "j.müller", "sales", "on-duty"),
    *("x", "olga+news", "first.last", "d'arcy"),
)
WORDS = ("millrace", "harbour", "acme", "blue-heron", "example", "uni-bonn", "post", "my2cents", "weir", "a1")
TLDS = (
    *("com", "org", "net", "io", "de", "co.uk", "museum", "photography"),
    *("ac.in", "com.br", "dev", "xn--p1ai", "fr", "info"),
)


def with_check(digits: str, is_valid: Callable[[str], bool]) -> str | None:
    """`digits` with the check digit that makes them valid; None if no digit does."""
    return next((digits + digit for digit in DIGITS if is_valid(digits + digit)), None)


def until(make: Callable[[], str | None]) -> str:
    while True:
        made = make()
        if made is not None:
            return made


def spoiled(make: Make) -> Make:
    """A value with one digit wrong, one character too few, or one too many."""

    def spoil(rng: random.Random) -> str:
        value = make(rng)
        wrong = changed(value, rng)
        return rng.choice((wrong, wrong, value[:-1], value + fill(rng, "#")))

    return spoil


# --- Addresses --------------------------------------------------------------------------------------------


def email(rng: random.Random) -> str:
    name = rng.choice(NAMES)
    local = rng.choice(
        (name, name, chars(rng, LOWER + DIGITS, rng.randint(1, 20)), f"{name}%{rng.choice(WORDS)}")
    )
    host = ".".join(rng.choices(WORDS, k=rng.choice((1, 1, 1, 2, 3))))
    address = f"{local}@{host}.{rng.choice(TLDS)}"
    if "example." in address:  # may be reserved
        return email(rng)
    return address.upper() if rng.random() < 0.1 else address


def no_email(rng: random.Random) -> str:
    word, name = rng.choice(WORDS), rng.choice(NAMES)
    forms = (
        *(f"@{name}", f"{name}@", f"{name}@{word}", f"{name} @ {word}.com", f"{name}@{word}..com"),
        *(f"{name}@-{word}.com", f"@{word}/core", f"{word}.com", f"{name}@{word}.c", f"{name}#{word}.com"),
        *(f"@{word}.setter", f"{word}:@{name}", f"{name}@example.com", f"{name}@mail.{word}.test"),
        *(f"noreply@{word}.com", f"git@{word}.org:team/app.git", f"{name}@{word}.io:/srv/app"),
        fill(rng, "logo@%x.png", "lodash@#.##.1", "% kg @ %.50", "me@#.#"),
    )
    return rng.choice(forms)


def ipv4(rng: random.Random) -> str:
    def draw() -> str | None:
        address = ipaddress.IPv4Address(rng.getrandbits(32))
        is_own = address.is_global and not address.is_multicast and max(address.packed) > 9
        return str(address) if is_own else None

    return until(draw)


def nobodys_ip(rng: random.Random) -> str:
    """An address of no machine of the internet."""
    local = f"{rng.randint(0, 255)}.{rng.randint(1, 254)}"
    forms = (
        *(f"192.168.{local}", f"10.{local}.9", "127.0.0.1", f"198.51.100.{rng.randint(1, 254)}", "0.0.0.0"),
        *(
            f"172.{rng.randint(16, 31)}.{local}",
            f"169.254.{local}",
            "255.255.255.0",
            "224.0.0.251",
            "8.8.8.8",
        ),
        *(f"2001:db8::{rng.getrandbits(16):x}", f"fe80::{rng.getrandbits(32):x}", "fd12:3456:789a::1", "::1"),
    )
    return rng.choice(forms)


def ipv6(rng: random.Random) -> str:
    prefix = rng.choice((0x20014860, 0x2A000000 | rng.getrandbits(20), 0x26000000 | rng.getrandbits(20)))
    address = ipaddress.IPv6Address(prefix << 96 | rng.getrandbits(rng.choice((16, 32, 64, 96))))
    return rng.choice((address.compressed, address.compressed, address.exploded, address.compressed.upper()))


def ip(rng: random.Random) -> str:
    return ipv4(rng) if rng.random() < 0.6 else ipv6(rng)


def no_ip(rng: random.Random) -> str:
    forms = (
        *("version #.#.#.#", "version %#.#.##.#", "v#.#.#.#", "build %#.#.#.#", "Chrome/1##.0.##.1##"),
        *("Chrome/1##.0.0.0", "3##.##.##.##", "1##.##.#", "1.3.6.1.4.1.####.#", "1##.##.4##.#"),
        *("std::vector", "[::2]", "::1]", "a[#::#]", "1#:##:##", "2001:db8:12:34:5", "fe80::1::2"),
        *("12345::1", "1#:##", "::before"),
    )
    return rng.choice((fill(rng, *forms), nobodys_ip(rng)))


def mac(rng: random.Random) -> str:
    digits = rng.randbytes(6).hex()
    digits = digits.upper() if rng.random() < 0.5 else digits
    form, separator = rng.choice((((2,) * 6, ":"), ((2,) * 6, "-"), ((4,) * 3, ".")))
    return grouped(digits, form, separator)


def no_mac(rng: random.Random) -> str:
    pairs = rng.choice((5, 7, 8, 20, 32))
    forms = (
        *(grouped(rng.randbytes(pairs).hex(), (2,) * pairs, ":"), "zz:" + fill(rng, "~~:~~:~~:~~:~~")),
        *(fill(rng, "~" * 12), fill(rng, "~~ ~~ ~~ ~~ ~~ ~~"), fill(rng, "~~~~.~~~~.~~~~.~~~~")),
        *(fill(rng, "##-##-##-##-##-##"), fill(rng, "~~~:~~~:~~~:~~~")),
    )
    return rng.choice(forms)


# --- Money ------------------------------------------------------------------------------------------------


def luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) << (place & 1)
        total += value // 10 + value % 10
    return total % 10 == 0


CARDS = (
    # Issuer's prefix, filled to one digit less than the number, and how the number is printed.
    (("4" + "#" * 14,), (4, 4, 4, 4)),
    (tuple(str(n) + "#" * 13 for n in range(51, 56)), (4, 4, 4, 4)),
    (tuple(str(n) + "#" * 11 for n in (2221, 2300, 2450, 2599, 2720)), (4, 4, 4, 4)),
    (("34" + "#" * 12, "37" + "#" * 12), (4, 6, 5)),
    (("6011" + "#" * 11, "644" + "#" * 12, "65" + "#" * 13), (4, 4, 4, 4)),
    (("3528" + "#" * 11, "3566" + "#" * 11, "3589" + "#" * 11), (4, 4, 4, 4)),
    (("36" + "#" * 11, "38" + "#" * 11, "300" + "#" * 10, "305" + "#" * 10), (4, 6, 4)),
    (("62" + "#" * 13,), (4, 4, 4, 4)),
)


def card(rng: random.Random) -> str:
    forms, sizes = rng.choice(CARDS)
    digits = with_check(fill(rng, *forms), luhn) or ""
    return rng.choice((digits, grouped(digits, sizes, " "), grouped(digits, sizes, "-")))


IBAN_FORMS = {
    # From the registry of ISO 13616: n digits, a capitals, c either.
    "DE": "18n", "GB": "4a14n", "FR": "10n11c2n", "ES": "20n", "IT": "1a10n12c", "NL": "4a10n", "BE": "12n",
    "AT": "16n", "CH": "5n12c", "PL": "24n", "PT": "21n", "SE": "20n", "NO": "11n", "DK": "14n", "FI": "14n",
    "IE": "4a14n", "LU": "3n13c", "CZ": "20n", "GR": "7n16c", "TR": "6n16c", "SA": "2n18c", "AE": "19n",
    "MT": "4a5n18c", "BR": "23n1a1c", "HU": "24n", "RO": "4a16c", "BG": "4a6n8c", "UA": "6n19c", "IL": "19n",
    "EE": "16n", "LV": "4a13c", "QA": "4a21c", "PK": "4a16c", "MU": "4a19n3a",
}  # fmt: skip


def iban(rng: random.Random) -> str:
    country, form = rng.choice(list(IBAN_FORMS.items()))
    body, count = "", ""
    for char in form:
        if char.isdecimal():
            count += char
        else:
            body += chars(rng, {"n": DIGITS, "a": UPPER, "c": UPPER + DIGITS}[char], int(count))
            count = ""
    as_number = int("".join(str(ord(c) - 55) if c.isalpha() else c for c in body + country + "00"))
    whole = f"{country}{98 - as_number % 97:02}{body}"
    return whole if rng.random() < 0.4 else grouped(whole, (4,) * ((len(whole) - 1) // 4), " ")


# --- Phones -----------------------------------------------------------------------------------------------

AREAS = (
    202, 206, 212, 213, 214, 215, 216, 224, 240, 248, 253, 301, 303, 305, 310, 312, 313, 314, 317, 323,
    330, 347, 360, 404, 407, 408, 410, 412, 415, 425, 469, 480, 502, 503, 504, 510, 512, 513, 516, 561,
    562, 571, 602, 609, 612, 614, 617, 619, 626, 630, 631, 646, 650, 678, 702, 703, 704, 713, 714, 718,
    720, 757, 760, 770, 773, 774, 781, 801, 813, 816, 818, 832, 847, 858, 860, 901, 904, 909, 914, 916,
    917,
)  # fmt: skip
"""Of North America, assigned long ago."""
NUMBERS = {
    # By country code, in national form.
    "44": (
        "020 7946 ####",
        "020 8### ####",
        "0161 496 ####",
        "07850 2#####",
        "(0121) 4## ####",
        "07911 1#####",
    ),
    "49": ("030 90#####", "089 5######", "0221/47#####", "(0711) 21#####", "0171 %######", "0160-9#######"),
    "33": ("01 4# ## ## ##", "06 1# ## ## ##", "04.7#.##.##.##", "07 6# ## ## ##"),
    "34": ("91 3## ## ##", "61# ### ###", "93#######"),
    "39": ("06 698# ####", "02 8646 ####", "347 ### ####", "333#######"),
    "31": ("020 62# ####", "010-411 ####", "06 1#######", "06-2#######"),
    "91": ("98### #####", "070### #####"),
    "61": ("(02) 9### ####", "03 9### ####", "0412 ### ###"),
    "41": ("044 2## ## ##", "079 3## ## ##"),
    "32": ("02 5## ## ##", "0470 ## ## ##"),
    "46": ("08-508 ### ##", "070-3## ## ##"),
    "48": ("22 6## ## ##", "601 ### ###"),
    "351": ("21 3## ####", "912 ### ###"),
    "55": ("(11) 9%###-####", "(21) 2###-####"),
    "358": ("040 5######", "09 31######"),
    "65": ("8123 ####", "622# ####"),
    "86": ("138########", "010 6### ####"),
}


def phone(rng: random.Random) -> str:
    if rng.random() < 0.25:
        area = str(rng.choice(AREAS))
        national = area + fill(rng, " %##-####", "-%##-####", ".%##.####", "%######")
        national = rng.choice((national, fill(rng, f"({area}) %##-####")))
        return rng.choice((national, f"+1 {national}", f"+1{area}{fill(rng, '%######')}"))
    code, forms = rng.choice(list(NUMBERS.items()))
    national = fill(rng, *forms)
    if rng.random() < 0.55:
        return national
    rest = national if code == "39" or national[0] not in "(0" else national.replace("(0", "(").lstrip("0")
    digits = "".join(filter(str.isdecimal, rest))
    if code == "49" and rng.random() < 0.3:
        return f"+49 (0){digits[:2]} {digits[2:]}"
    return rng.choice((f"+{code} {rest}", f"+{code}-{rest}", f"+{code}{digits}", f"00{code} {rest}"))


def no_phone(rng: random.Random) -> str:
    area = rng.choice(AREAS)
    forms = (
        *(
            "0##-###-####",
            "1##-###-####",
            "(0##) ###-####",
            "(1##) ###-####",
            "+###",
            "+#####",
            "+999 ### ####",
        ),
        *("extension ####", "###-##-###", f"{area}-0##-####", f"{area}-1##-####", f"{area}-###-#####"),
        *("#####-####", "+" + "#" * 17, "+%#.##", "0#:##", "%-1#-%#", "### ###"),
    )
    return fill(rng, *forms)


def is_unmarked(value: str) -> bool:
    """Whether only a label shows that it is a phone number: it has only groups of digits."""
    is_american = value[3:4] in ("-", ".", " ") and value[7:8] in ("-", ".")
    return (value[0] not in "+(0" and not is_american) or value[:3] in ("09 ", "08-", "070")


# --- National ids -----------------------------------------------------------------------------------------


def weighted(digits: str, weights: tuple[int, ...], modulus: int) -> int:
    return sum(w * int(d) for w, d in zip(weights, digits, strict=True)) % modulus


def checked(rng: random.Random, form: str, weights: tuple[int, ...]) -> str:
    """`form` and a check digit, so that the digits' weighted sum is a multiple of eleven."""
    return until(lambda: with_check(fill(rng, form), lambda digits: weighted(digits, weights, 11) == 0))


def birth(rng: random.Random) -> tuple[int, int, int]:
    return rng.randint(1930, 2015), rng.randint(1, 12), rng.randint(1, 28)


def us_ssn(rng: random.Random) -> str:
    area = rng.choice([n for n in range(1, 900) if n != 666])
    digits = f"{area:03}{rng.randint(1, 99):02}{rng.randint(1, 9999):04}"
    return rng.choice((*[grouped(digits, (3, 2, 4), "-")] * 2, grouped(digits, (3, 2, 4), " "), digits))


def no_ssn(rng: random.Random) -> str:
    tail = f"{rng.randint(1, 99):02}-{rng.randint(1, 9999):04}"
    bad = (
        f"000-{tail}",
        f"666-{tail}",
        f"9##-{tail}",
        "123-00-####",
        "3##-1#-0000",
        f"1###-{tail}",
        f"###-{tail}1",
    )
    return fill(rng, *bad, "12-#######", "#####-####")


def uk_nino(rng: random.Random) -> str:
    prefixes = [a + b for a in "ABCEGHJKLMNOPRSTWXYZ" for b in "ABCEGHJKLMNPRSTWXYZ"]
    left_out = ("BG", "GB", "KN", "NK", "NT", "TN", "ZZ")
    whole = rng.choice([p for p in prefixes if p not in left_out]) + fill(rng, "######") + rng.choice("ABCD")
    return rng.choice((whole, grouped(whole, (2, 2, 2, 2, 1), " "), whole.lower()))


def no_nino(rng: random.Random) -> str:
    bad = ("DA", "FB", "QQ", "UC", "VX", "AO", "BD", "BG", "GB", "NK", "KN", "TN", "NT", "ZZ", "A1", "ABC")
    return fill(
        rng, f"{rng.choice(bad)}######C", "AB######E", "AB######Z", "AB#####C", "AB#######C", "AB######"
    )


def uk_nhs(rng: random.Random) -> str:
    digits = checked(rng, "#########", (10, 9, 8, 7, 6, 5, 4, 3, 2, 1))
    return rng.choice((digits, grouped(digits, (3, 3, 4), " "), grouped(digits, (3, 3, 4), "-")))


def de_tax_id(rng: random.Random) -> str:
    def is_valid(digits: str) -> bool:
        product = 10  # ISO 7064, MOD 11,10, as the Bundeszentralamt prints it
        for digit in digits[:10]:
            total = (int(digit) + product) % 10
            product = (2 * (total or 10)) % 11
        return (11 - product) % 10 == int(digits[10])

    def draw() -> str | None:
        rest = rng.sample(DIGITS, 9)
        first = [*rest, rng.choice(rest)] if rng.random() < 0.7 else [*rest[:8], rest[0], rest[0]]
        rng.shuffle(first)
        return with_check("".join(first), is_valid) if first[0] != "0" else None

    digits = until(draw)
    return rng.choice((digits, grouped(digits, (2, 3, 3, 3), " ")))


def fr_insee(rng: random.Random) -> str:
    year, month, _ = birth(rng)
    department = rng.choice([f"{n:02}" for n in range(1, 96) if n != 20] + ["2A", "2B", "97"])
    body = f"{rng.choice('12')}{year % 100:02}{month:02}{department}{fill(rng, '######')}"
    whole = f"{body}{97 - int(body.replace('2A', '19').replace('2B', '18')) % 97:02}"
    return rng.choice((whole, grouped(whole, (1, 2, 2, 2, 3, 3, 2), " ")))


ES_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"


def es_nif(rng: random.Random) -> str:
    number = rng.randint(10**6, 99_999_999)
    return f"{number:08}{rng.choice(('', '', '-'))}{ES_LETTERS[number % 23]}"


def es_nie(rng: random.Random) -> str:
    lead, number, dash = rng.randrange(3), rng.randrange(10**7), rng.choice(("", "", "-"))
    return f"{'XYZ'[lead]}{dash}{number:07}{dash}{ES_LETTERS[(lead * 10**7 + number) % 23]}"


CF_DIGITS = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21)
CF_LETTERS = (*CF_DIGITS, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
"""What the characters at odd places count."""


def it_fiscal_code(rng: random.Random) -> str:
    year, month, day = birth(rng)
    body = chars(rng, "BCDFGHLMNPRSTVZ", 6) + f"{year % 100:02}" + "ABCDEHLMPRST"[month - 1]
    body += f"{day + rng.choice((0, 40)):02}" + rng.choice("ABCDEFGHIL") + f"{rng.randint(1, 999):03}"
    total = 0
    for place, char in enumerate(body, 1):
        value = int(char) if char.isdecimal() else ord(char) - 65
        odd = CF_DIGITS if char.isdecimal() else CF_LETTERS
        total += odd[value] if place % 2 else value
    whole = body + UPPER[total % 26]
    return whole.lower() if rng.random() < 0.15 else whole


def nl_bsn(rng: random.Random) -> str:
    digits = checked(rng, "########", (9, 8, 7, 6, 5, 4, 3, 2, -1))
    return rng.choice((digits, digits, grouped(digits, (4, 2, 3), "."), grouped(digits, (3, 3, 3), " ")))


def verhoeff(digits: str) -> bool:
    def times(a: int, b: int) -> int:
        """In the dihedral group of ten elements, by its rule."""
        if a < 5:
            return (a + b) % 5 + (5 if b >= 5 else 0)
        return (a - b) % 5 + (0 if b >= 5 else 5)

    check = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit)
        for _ in range(place):
            value = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)[value]
        check = times(check, value)
    return check == 0


def in_aadhaar(rng: random.Random) -> str:
    digits = with_check(fill(rng, "%##########"), verhoeff) or ""
    return rng.choice((digits, *[grouped(digits, (4, 4, 4), " ")] * 2, grouped(digits, (4, 4, 4), "-")))


def in_pan(rng: random.Random) -> str:
    return fill(rng, "^^^") + rng.choice("ABCFGHLJPT") + fill(rng, "^####^")


def no_pan(rng: random.Random) -> str:
    wrong = fill(rng, "^^^") + rng.choice("DEIKMNOQRSUVWXYZ") + fill(rng, "^####^")
    forms = ("ABCP####^", "ABCPL####", "ABCPL###^", "ABCPL####^^", "abcpl####_", "AB1PL####^", "ABCPL-####-^")
    return rng.choice((wrong, wrong, fill(rng, *forms), fill(rng, *forms)))


def pl_pesel(rng: random.Random) -> str:
    year, month, day = birth(rng)
    body = f"{year % 100:02}{month + (20 if year >= 2000 else 0):02}{day:02}{fill(rng, '####')}"
    return body + str(-weighted(body, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3), 10) % 10)


def pt_nif(rng: random.Random) -> str:
    body = rng.choice("1235689") + fill(rng, "#######")
    check = 11 - weighted(body, (9, 8, 7, 6, 5, 4, 3, 2), 11)
    digits = body + str(0 if check > 9 else check)
    return rng.choice((digits, grouped(digits, (3, 3, 3), " ")))


def be_niss(rng: random.Random) -> str:
    year, month, day = birth(rng)
    body = f"{year % 100:02}{month:02}{day:02}{rng.randint(1, 998):03}"
    digits = f"{body}{97 - int(('2' if year >= 2000 else '') + body) % 97:02}"
    return rng.choice((digits, f"{grouped(digits[:6], (2, 2, 2), '.')}-{digits[6:9]}.{digits[9:]}"))


def ch_ahv(rng: random.Random) -> str:
    body = fill(rng, "756#########")
    digits = body + str(-weighted(body, (1, 3) * 6, 10) % 10)
    return rng.choice((digits, grouped(digits, (3, 4, 4, 2), ".")))


def se_personnummer(rng: random.Random) -> str:
    year, month, day = birth(rng)
    digits = with_check(f"{year % 100:02}{month:02}{day:02}{fill(rng, '###')}", luhn) or ""
    dashed = f"{digits[:6]}-{digits[6:]}"
    return rng.choice((dashed, dashed, digits, f"{year // 100}{dashed}"))


def fi_hetu(rng: random.Random) -> str:
    year, month, day = birth(rng)
    date, number = f"{day:02}{month:02}{year % 100:02}", f"{rng.randint(2, 899):03}"
    sign = rng.choice("ABCDEF" if year >= 2000 else "-YXWVU")
    return f"{date}{sign}{number}{'0123456789ABCDEFHJKLMNPRSTUVWXY'[int(date + number) % 31]}"


def ca_sin(rng: random.Random) -> str:
    digits = with_check(rng.choice("1234567") + fill(rng, "#######"), luhn) or ""
    return rng.choice((digits, grouped(digits, (3, 3, 3), "-"), grouped(digits, (3, 3, 3), " ")))


def au_tfn(rng: random.Random) -> str:
    digits = checked(rng, "########", (1, 4, 3, 7, 5, 8, 6, 9, 10))
    return rng.choice((digits, grouped(digits, (3, 3, 3), " ")))


def br_cpf(rng: random.Random) -> str:
    digits = fill(rng, "#########")
    for size in (9, 10):
        rest = weighted(digits, tuple(range(size + 1, 1, -1)), 11)
        digits += str(0 if rest < 2 else 11 - rest)
    return rng.choice((digits, f"{grouped(digits[:9], (3, 3, 3), '.')}-{digits[9:]}"))


def sg_nric(rng: random.Random) -> str:
    lead, digits = rng.choice("STFG"), fill(rng, "#######")
    rest = (weighted(digits, (2, 7, 6, 5, 4, 3, 2), 11) + (4 if lead in "TG" else 0)) % 11
    return lead + digits + ("JZIHGFEDCBA" if lead in "ST" else "XWUTRQPNMLK")[rest]


def cn_ric(rng: random.Random) -> str:
    year, month, day = birth(rng)
    body = (
        f"{rng.choice(('11', '31', '44', '51'))}{fill(rng, '####')}{year}{month:02}{day:02}{fill(rng, '###')}"
    )
    total = sum(int(digit) * pow(2, 17 - i, 11) for i, digit in enumerate(body))
    return body + "0123456789X"[(12 - total) % 11]


def bare(value: str) -> bool:
    """No more than digits, perhaps in groups with spaces or dashes."""
    return value.replace(" ", "").replace("-", "").isdecimal()


def without_dashes(value: str) -> bool:
    return "-" not in value


def without_blanks(value: str) -> bool:
    return " " not in value


def is_bare_diners(value: str) -> bool:
    return value.isdecimal() and len(value) == 14


def is_like_a_serial(value: str) -> bool:
    """Whether it may be a date of these years and a number after it, as 270131-1234."""
    begun = value[-11:-5]
    return value.isdecimal() or (value.replace("-", "").isdecimal() and "15" <= begun[:2] <= "35")


def _kind(
    make: Make,
    *labels: str,
    spoil: Make | None = None,
    needs_label: Callable[[str], bool] = lambda value: False,
) -> Kind:
    return Kind(make.__name__.upper(), make, spoil or spoiled(make), labels, needs_label)


KINDS = (
    Kind("EMAIL_ADDRESS", email, no_email, ("e-mail", "E-Mail-Adresse", "mail", "contact", "correo")),
    Kind(
        "PHONE_NUMBER",
        phone,
        no_phone,
        (
            "phone",
            "phone number",
            "Telefon",
            "Tel.",
            "mobile",
            "fax",
            "téléphone",
            "cell",
            "teléfono",
            "telefoon",
        ),
        is_unmarked,
    ),
    Kind(
        "CREDIT_CARD",
        card,
        spoiled(card),
        ("card", "credit card", "Kreditkarte", "card number", "tarjeta"),
        is_bare_diners,
    ),
    Kind("IBAN_CODE", iban, spoiled(iban), ("IBAN", "account", "Konto", "bank account")),
    Kind("IP_ADDRESS", ip, no_ip, ("IP", "server", "address", "host", "ip_address")),
    Kind("MAC_ADDRESS", mac, no_mac, ("MAC", "MAC address", "hwaddr", "device")),
    _kind(us_ssn, "SSN", "Social Security number", "ssn", spoil=no_ssn, needs_label=without_dashes),
    _kind(uk_nino, "NINO", "National Insurance number", "NI number", spoil=no_nino, needs_label=str.islower),
    _kind(uk_nhs, "NHS number", "NHS no.", "nhs", needs_label=bare),
    _kind(de_tax_id, "Steuer-ID", "IdNr.", "steuerliche Identifikationsnummer", "tax ID", needs_label=bool),
    _kind(fr_insee, "NIR", "numéro de sécurité sociale", "n° INSEE", needs_label=str.isdigit),
    _kind(es_nif, "DNI", "NIF", "documento"),
    _kind(es_nie, "NIE", "número de extranjero"),
    _kind(it_fiscal_code, "codice fiscale", "CF", "fiscal code"),
    _kind(nl_bsn, "BSN", "burgerservicenummer", "bsn", needs_label=bare),
    _kind(in_aadhaar, "Aadhaar", "Aadhaar number", "UIDAI", needs_label=without_blanks),
    _kind(in_pan, "PAN", "PAN card", "permanent account number", spoil=no_pan),
    _kind(pl_pesel, "PESEL", "numer PESEL", needs_label=bool),
    _kind(pt_nif, "NIF", "número fiscal", "contribuinte", needs_label=bare),
    _kind(be_niss, "rijksregisternummer", "NISS", "numéro national", needs_label=str.isdecimal),
    _kind(ch_ahv, "AHV-Nummer", "AVS", "AHV", needs_label=str.isdecimal),
    _kind(se_personnummer, "personnummer", "personal identity number", needs_label=is_like_a_serial),
    _kind(fi_hetu, "henkilötunnus", "HETU", "personal identity code", needs_label=is_like_a_serial),
    _kind(ca_sin, "SIN", "Social Insurance Number", "NAS", needs_label=bool),
    _kind(au_tfn, "TFN", "tax file number", needs_label=bare),
    _kind(br_cpf, "CPF", "cpf", needs_label=str.isdecimal),
    _kind(sg_nric, "NRIC", "FIN", "NRIC/FIN"),
    _kind(cn_ric, "身份证号", "ID card", "resident identity"),
)
