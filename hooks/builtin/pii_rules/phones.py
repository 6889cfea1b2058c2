"""Phone numbers: a text in the form of one is looked up in the numbering plans of `phonenumbers`.

A number in international form counts anywhere. A number in national form must have the groups of its country.
Without a sign of its own, as a leading 0 or parentheses, it must also come after a word such as "phone".
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial

from hooks.api.extras import from_extra
from hooks.builtin.pii_rules.check_digits import digits_of
from hooks.detect.rules import END, Rule, words

with from_extra("guards", "phonenumbers"):
    import phonenumbers
    from phonenumbers import Leniency, PhoneNumberMatcher

PHONE = words(
    *("(?:tele)?phones?", "tele?", "t[ée]l[ée](?:phone|fonn?[oi]?|foon|fax)", "fax", "ring", "sms"),
    *("call(?:ed|ing)?", "mob(?:ile?)?", "m[óo]vil", "cell(?:ulare)?", "text me", "dial", "mobiel", "handy"),
    *("reach (?:me|us|him|her|them)", "contact", "celular", "portable", "anrufen", "rufnummer", "puhelin"),
    *("komórka", "telem[óo]vel", "whatsapp"),
)
_NUMBERED = words(
    *("orders?", "invoice", "ref(?:erence)?", "isbn(?:-1[03])?", "version", "build", "tracking", "serial"),
    "sku",
)
_NO_PHONE = rf"{_NUMBERED}[^\w]{{0,3}}(?:(?:no|nr|number|id|code)\b)?[^\w]{{0,3}}"
_GAP = r"[ .\-/()\u00a0\u2010\u2011]{0,3}"
_BEGIN = r"(?<![^\W_])(?<![-+./])(?<![+./]\()"
_GROUPED = (
    r"(?:1[ .-])?(?:\(\d{3}\)[ ]?|\d{3}[ .-])\d{3}[ .-]\d{4}",
    r"0\d{1,4}(?:[ ]?[-/.][ ]?|[ ])\d{2,8}(?:[ .-]\d{2,6}){0,4}",
    r"\(\d{2,5}\)[ -]?\d{3,5}(?:[ -]?\d{2,5}){1,3}",
)
"""National forms that only phone numbers have: North American, with a trunk prefix, with an area code."""
_LABELLED = rf"(?<!\d[ .\-/()]{{1,2}})(?:\(\d{{1,5}}\)|\d)(?:{_GAP}\d){{6,14}}"
_OTHER = re.compile(
    r"\d\d?([./-])\d\d?\1(?:19|20)\d\d(?!\d)|(?:19|20)\d\d([./-])\d\d\2\d\d(?!\d)|\d{5}-\d{4}(?!\d)"
)
"""A date, or an American postal code."""
_AMERICAN = re.compile(r"\(?\d{3}[) .-]{1,2}\d{3}[.-]\d{4}(?!\d)")
_BREAK = re.compile(r"[/(. \u00a0\u2010-\u2015]|(?<=[ \u00a0])-|-(?=[ \u00a0])")
"""The places at which `PhoneNumberMatcher` cuts a text that as a whole is not a number."""
_KINDS = (
    *("premium_rate", "toll_free", "shared_cost", "voip", "personal_number", "pager", "uan", "voicemail"),
    *("fixed_line", "mobile"),
)


def phone_rules(regions: Iterable[str]) -> list[Rule]:
    """`regions`: the countries (ISO 3166 codes, in upper case) whose national forms to find."""
    plans = [_Plan(region) for region in regions]
    abroad = rf"{_BEGIN}(?:\+{_GAP}[1-9]|00[1-9]\d)(?:{_GAP}\d){{5,14}}(?!\d)"
    rule = partial(Rule, "PHONE_NUMBER", unless=_NO_PHONE)
    rules = [rule(abroad, length=_international)]
    if plans:
        seven, nine = (partial(_national, plans, fewest=fewest) for fewest in (7, 9))
        rules += [rule(_BEGIN + form + END, length=nine) for form in _GROUPED]
        rules.append(rule(_BEGIN + _LABELLED + END, length=seven, near=PHONE))
    return rules


def _international(text: str) -> int:
    if text[0] == "+":
        return _matched(text, None, Leniency.VALID)
    end = _matched("+" + text[2:], None, Leniency.VALID)
    return end + 1 if end else 0  # 00 is one character longer than +


def _national(plans: list["_Plan"], text: str, fewest: int) -> int:
    """Return the length of the number that begins `text`, of `fewest` digits or more, in one of `plans`."""
    if _OTHER.match(text):
        return 0
    is_american = _AMERICAN.match(text) is not None
    beginnings = [digits for digits in _beginnings(text) if len(digits) >= fewest]
    for plan in plans:
        if is_american and plan.country_code != 1:
            continue
        if any(map(plan.may_have, beginnings)):
            end = _matched(text, plan.region, Leniency.STRICT_GROUPING)
            if len(digits_of(text[:end])) >= fewest:
                return end
    return 0


def _beginnings(text: str) -> set[str]:
    """Return the digits of every beginning of `text` that `_matched` may find."""
    breaks = {found[0]: found.start() for found in reversed([*_BREAK.finditer(text, 1)])}
    return {digits_of(text), *(digits_of(text[:place]) for place in breaks.values())}


def _matched(text: str, region: str | None, leniency: int) -> int:
    """Return the end of the number at the beginning of `text`; 0 without one."""
    found = next(iter(PhoneNumberMatcher(text, region, leniency=leniency, max_tries=3)), None)
    return found.end if found is not None and found.start == 0 else 0


class _Plan:
    """A country's numbering plan, for a quick first check: a full check takes 50 to 200 µs."""

    def __init__(self, region: str) -> None:
        metadata = phonenumbers.PhoneMetadata.metadata_for_region(region)
        if metadata is None or metadata.country_code is None:
            raise ValueError(f"no country {region!r} has phone numbers")
        self.region = region
        self.country_code = metadata.country_code
        kinds = "|".join(sorted(set(_patterns(metadata.country_code))))
        self.may_have = re.compile(rf"(?:{metadata.national_prefix or ''})?(?:{kinds})").fullmatch
        """Matches the digits that may be a number of this country."""


def _patterns(country_code: int) -> Iterator[str]:
    """Yield the patterns of the numbers with this code, for all regions that share it."""
    for region in phonenumbers.region_codes_for_country_code(country_code):
        metadata = phonenumbers.PhoneMetadata.metadata_for_region(region)
        for kind in _KINDS:
            about = getattr(metadata, kind)
            if about is not None and about.national_number_pattern:
                yield about.national_number_pattern
