"""Phone numbers: a text in the form of one is compared with the numbering plans of `phonenumbers`.

A number in international form counts anywhere. A number in national form must have the digits and the groups
of its country; its area code need not be in use. Without groups and a sign of its own, as a leading 0 or
parentheses, it must also come after a word such as "phone".
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import NamedTuple

from hooks.api.extras import from_extra
from hooks.builtin.pii_rules.check_digits import digits_of
from hooks.builtin.pii_rules.family import AFTER_IBAN, END
from hooks.detect.rules import Rule, words

with from_extra("guards", "phonenumbers"):
    import phonenumbers
    from phonenumbers import COUNTRY_CODE_TO_REGION_CODE, PhoneMetadata

PHONE_COUNTRIES = (
    *("AU", "BE", "BR", "CA", "CH", "CN", "DE", "ES", "FI", "FR", "GB", "IE", "IL", "IN", "IT", "JP"),
    *("KR", "MX", "NG", "NL", "NO", "NZ", "PH", "PL", "PT", "SE", "SG", "TH", "TR", "US", "ZA"),
)
"""The countries whose numbers are found in national form."""
PHONE = words(
    *("(?:tele)?phones?", "tele?", "t[ée]l[ée](?:phone|fonn?[oi]?|foon|fax)", "fax", "ring", "sms"),
    *("call(?:ed|ing)?", "mob(?:ile?)?", "m[óo]vil", "cell(?:ulare)?", "text me", "dial", "mobiel", "handy"),
    *("reach (?:me|us|him|her|them)", "contact", "celular", "portable", "anrufen", "rufnummer", "puhelin"),
    *("komórka", "telem[óo]vel", "whatsapp", "cep", "gsm", "telefonnummer", "cellphone", "viber", "signal"),
    r"(?:my|your|his|her|their|our) (?:\w{1,12} )?(?:number|nummer|numero|número)",
)
_NUMBERED = words(
    *("orders?", "invoice", "ref(?:erence)?", "isbn(?:-1[03])?", "version", "build", "tracking", "serial"),
    *(
        "sku",
        "ids?",
        "[ug]uid",
        "ts",
        "timestamp",
        "epoch",
        "time",
        "size",
        "bytes",
        "offset",
        "seq",
        "nonce",
    ),
)
_NUMBER_OF_ELSE = rf"{_NUMBERED}[^\w]{{0,3}}(?:(?:no|nr|number|id|code)\b)?[^\w]{{0,3}}|{AFTER_IBAN}"
_NO_PHONE = rf"(?:{_NUMBER_OF_ELSE}|(?<!\d{{3}}[.-]\d{{3}})\d[ :])"
"""Text before digits that are not a phone number. A digit is not such a text after another phone number."""
_GAP = r"[ .\-/()\u00a0\u2010\u2011]{0,3}"
_BEGIN = r"(?<![^\W_])(?<![-+./])(?<![+./]\()"
_AMERICAN = (
    r"(?:1[ .-]|\d\d-)?"
    r"(?:\((?:[2-9]\d\d|\d\d\d(?=\)[ ]?555-01))\)[ ]?|(?:[2-9]\d\d|\d\d\d(?=[ -]555-01))[ -])"
    r"[2-9]\d\d[ -]\d{4}|(?:1\.)?(?:[2-9]\d\d|\d\d\d(?=\.555\.01))\.[2-9]\d\d\.\d{4}"
)
"""North American numbers: areas and exchanges begin with 2 to 9. 555-01xx is for tests, in any area."""
_GROUPED = (
    r"0\d{1,4}(?:[ ]?[-/.][ ]?|[ ])\d{2,8}(?:[ .-]\d{2,6}){0,4}",
    r"\(\d{2,5}\)[ -]?\d{3,5}(?:[ -]?\d{2,5}){1,3}",
)
"""National forms that only phone numbers have: with a trunk prefix, with an area code."""
_MOBILE = r"0[1-9]\d{8,9}"
_LABELLED = rf"(?<!\d[ .\-/()]{{1,2}})(?:\(\d{{1,5}}\)|\d)(?:{_GAP}\d){{6,14}}"
_ALONE = rf"(?<![\s\S])(?:\(\d{{1,5}}\)|\d)(?:{_GAP}\d){{6,14}}(?=\.?\s{{0,2}}\Z)"
_OTHER = re.compile(
    r"\d\d?([./-])\d\d?\1(?:19|20)\d\d(?!\d)|(?:19|20)\d\d([./-])\d\d\2\d\d(?!\d)|\d{5}-\d{4}(?!\d)"
)
"""A date, or an American postal code."""
_AMERICAN_SHAPE = re.compile(r"\(?\d{3}[) .-]{1,2}\d{3}[.-]\d{4,5}(?!\d)")
_OTHER_GROUPS = re.compile(r"0\d\d[ -]\d\d\d?[ -]\d{3,4}(?![ -]?\d)|0\d{3}(?: \d{4}){2,}(?!\d)")
"""Groups of digits that other ids and rows of numbers have too."""
_DECIMAL = re.compile(r"0\d+\.\d+(?![ .-]\d)")
"""A number such as 01131.0042: it has one point."""
_AMOUNT = re.compile(r"\d{1,2}\.\d{5,}(?![ .-]\d)|\d{1,3}0{5,}(?!\d)(?![ .-]\d)")
"""A number that no phone has, also after a word for one: 12.3456789, 1000000."""
_BREAK = re.compile(r"(?<=\d)[^\d]+(?=\d)")
_ROW = re.compile(r"\d{4}(?: \d{4})+(?!\d)")
"""A row of numbers of four digits."""
_SUMMAND = re.compile(r"\+ \d\.\d{5}")
"""A number that a program adds."""
_KINDS = (
    *("premium_rate", "toll_free", "shared_cost", "voip", "personal_number", "pager", "uan", "voicemail"),
    *("fixed_line", "mobile"),
)
_MOST_CODES = 3
"""Most digits of a country's code."""


def phone_rules(regions: Iterable[str], is_chosen: bool = False) -> list[Rule]:
    """`regions`: the countries (ISO 3166 codes, in upper case) whose national forms to find. `is_chosen`:
    find a number also if it is the whole text, and a bare run of digits that begins with 0."""
    codes = [region for region in regions if region in PHONE_COUNTRIES]
    rest = rf"(?:{_GAP}\d){{5,14}}(?!\d)"
    rule = partial(Rule, "PHONE_NUMBER", unless=_NO_PHONE)
    rules = [
        rule(rf"{_BEGIN}\+[1-9]{rest}", length=_international, unless=_NUMBER_OF_ELSE),
        rule(rf"{_BEGIN}(?:\+(?!\d){_GAP}[1-9]|00[1-9]\d(?!\d{{5}})){rest}", length=_international),
        rule(rf"{_BEGIN}00[1-9]\d{rest}", length=_international, near=None if is_chosen else PHONE),
    ]
    if {"US", "CA"} & set(codes):
        rules += [rule(f"{begin}(?:{_AMERICAN}){END}") for begin in (_BEGIN, "(?<=[a-z]{2})")]
    plans = [_plan(region) for region in codes]
    if plans:
        grouped, labelled = (
            lru_cache(2048)(partial(_national, plans, is_labelled=one)) for one in (False, True)
        )
        rules += [rule(_BEGIN + form + END, length=grouped) for form in _GROUPED]
        rules.append(rule(_BEGIN + _LABELLED + END, length=labelled, near=PHONE))
        if is_chosen:
            rules.append(rule(_BEGIN + _MOBILE + END, check=partial(_is_mobile, plans)))
            rules.append(rule(_ALONE, length=labelled))
    return rules


def _international(text: str) -> int:
    """Return the length of the number with a country's code that begins `text`; 0: none."""
    is_plus = text[0] == "+"
    if _SUMMAND.match(text) or (not is_plus and _ROW.match(text)):
        return 0
    for end in _ends(text):
        digits = digits_of(text[:end].replace("(0)", "", 1))[0 if is_plus else 2 :]
        for length in range(1, _MOST_CODES + 1):
            regions = COUNTRY_CODE_TO_REGION_CODE.get(int(digits[:length]), ())
            if any(_plan(region).has(digits[length:], is_plus) for region in regions if region != "001"):
                return end
    return 0


def _national(plans: Sequence["_Plan"], text: str, is_labelled: bool) -> int:
    """Return the length of the number that begins `text` in one of `plans`. A number in groups as its country
    prints them goes before one in other groups, which counts only after a word."""
    if (
        _OTHER.match(text)
        or _AMOUNT.match(text)
        or (not is_labelled and (_OTHER_GROUPS.match(text) or _DECIMAL.match(text)))
    ):
        return 0
    fewest = 7 if is_labelled else 9
    if _AMERICAN_SHAPE.match(text):
        return 0
    ends = [end for end in _ends(text) if len(digits_of(text[:end])) >= fewest]
    grouped = [(end, re.findall(r"\d+", text[:end])) for end in ends]
    likely = [
        (end, groups, [plan for plan in plans if plan.may_have("".join(groups))]) for end, groups in grouped
    ]
    for is_exact in (True, False)[: 1 + is_labelled]:
        for end, groups, able in likely:
            if any(plan.fits(groups, is_exact) for plan in able):
                return end
    return 0


def _is_mobile(plans: Sequence["_Plan"], text: str) -> bool:
    """Whether a run of digits that begins with 0 is the number of a mobile phone."""
    digits = digits_of(text)[1:]
    return any(plan.prefix == "0" and plan.is_mobile(digits) for plan in plans)


def _ends(text: str) -> list[int]:
    """Return the places at which a number may end: at the end and before each gap, the last first."""
    return [len(text), *(found.start() for found in reversed([*_BREAK.finditer(text)]))]


class _Format(NamedTuple):
    """One way to print a country's numbers."""

    leading: re.Pattern[str] | None
    groups: re.Pattern[str]


class _Plan:
    """A country's numbering plan."""

    def __init__(self, region: str) -> None:
        metadata = PhoneMetadata.metadata_for_region(region)
        if metadata is None or metadata.general_desc is None:
            raise ValueError(f"no country {region!r} has phone numbers")
        shape = metadata.general_desc.national_number_pattern or r"\d{7,12}"
        self.prefix = metadata.national_prefix or ""
        prefix = f"(?:{self.prefix})?" if self.prefix else ""
        self.may_have = re.compile(f"{prefix}(?:{shape})").fullmatch
        """Matches the digits that may be a number of this country, with a trunk prefix or without."""
        self._has = re.compile(shape).fullmatch
        mobile = metadata.mobile.national_number_pattern if metadata.mobile else None
        self.is_mobile = re.compile(mobile or "(?!)").fullmatch
        """Matches the digits of a mobile phone's number, without the trunk prefix."""
        self._is_in_use = re.compile("|".join(sorted({*_patterns(metadata)})) or "(?!)").fullmatch
        self._formats = [*_formats(metadata)]

    def has(self, digits: str, is_shape_enough: bool) -> bool:
        """Whether `digits` after the country's code are a number of this country: of its shape, or of an
        area that is in use."""
        known = self._has if is_shape_enough else self._is_in_use
        return bool(known(digits) or (self.prefix == "0" and digits[:1] == "0" and known(digits[1:])))

    def fits(self, groups: Sequence[str], is_exact: bool) -> bool:
        """Whether the groups of digits are those of a number's format; or else the first of
        them, if a trunk prefix shows where it begins, and the other ones have two digits or more."""
        digits = "".join(groups)
        for rest in dict.fromkeys((digits, digits.removeprefix(self.prefix))):
            num_trunk = len(digits) - len(rest)
            has_trunk = num_trunk > 0 or not self.prefix
            if self._has(rest) and self._fits(rest, _without(groups, num_trunk), is_exact, has_trunk):
                return True
        return False

    def _fits(self, digits: str, groups: Sequence[str], is_exact: bool, has_trunk: bool) -> bool:
        for leading, pattern in self._formats:
            if (leading is None or leading.match(digits)) and (found := pattern.fullmatch(digits)):
                wanted = {*accumulate(map(len, found.groups()))}
                breaks = [*accumulate(map(len, groups))]
                if is_exact:
                    return wanted.issuperset(breaks)
                return has_trunk and breaks[0] in wanted and min(map(len, groups)) > 1
        return False


def _patterns(metadata: "PhoneMetadata") -> Iterator[str]:
    """Yield the patterns of the numbers that are in use."""
    for kind in _KINDS:
        about = getattr(metadata, kind)
        if about is not None and about.national_number_pattern:
            yield about.national_number_pattern


_plan = lru_cache(None)(_Plan)


def _formats(metadata: "PhoneMetadata") -> Iterator[_Format]:
    code = metadata.country_code
    main = phonenumbers.region_code_for_country_code(code) if code else ""
    shared = PhoneMetadata.metadata_for_region(main)
    for one in metadata.number_format or (shared.number_format if shared else ()):
        leading = one.leading_digits_pattern[-1] if one.leading_digits_pattern else None
        yield _Format(re.compile(leading) if leading else None, re.compile(str(one.pattern)))


def _without(groups: Sequence[str], num_digits: int) -> list[str]:
    left = list(groups)
    while num_digits and left:
        cut = min(num_digits, len(left[0]))
        left[0], num_digits = left[0][cut:], num_digits - cut
        if not left[0]:
            left.pop(0)
    return left
