"""Families of personal data: the lines of the tables, and the rules that they become."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from hooks.builtin.pii_rules.check_digits import plain
from hooks.detect.rules import Rule

Check = Callable[[str], bool]
_OTHER_LETTER = r"[^\W_\u0e00-\u0e7f\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]"
"""A letter or a digit, but of the scripts that write words without spaces, or join endings to numbers."""
BEGIN = rf"(?<!{_OTHER_LETTER})(?<!\d[-./])"
END = rf"(?!{_OTHER_LETTER})(?![-./]\d)"
"""Patterns around a text that is not part of a longer word or number."""
NO_GROUP_BEFORE, NO_GROUP_AFTER = r"(?<!\d[ :])", r"(?![ :]\d)"
"""Patterns around groups of digits that are not some of more groups."""
_PART = re.compile(r"\(\?[^:]*:|\{[^}]*\}|\\.|\[[^\]]*\]|\d")
"""The parts of a form that `loose` changes or has to skip."""
_SAME = re.compile(r"\(\?:\\d\\d(?:\|\\d\\d)+\)")
"""Alternatives that became the same."""
AFTER_IBAN = r"(?<![^\W_])(?-i:[A-Z]{2}\d\d(?: [A-Z\d]{4}){0,7} )"
"""The first groups of a text that looks like a bank account, for `Rule.unless`."""
_LETTER = re.compile(r"(?<!\\)(?<!\(\?)[A-Za-z]")
"""A letter that a form asks for."""
_ALONE = r"(?<![\s\S])"
_TO_THE_END = r"(?=\.?\s{0,2}\Z)"
_ENDINGS = "(?:e?s|(?:s|en)?nummer|[ _-]?(?:number|num|nr|no|id|code))?"
"""Endings of a word for an id: passports, Passnummer, passport_no."""


@dataclass(frozen=True, slots=True)
class Family:
    """One line of a table: the form of an entity."""

    country: str
    """The country (ISO 3166 code); empty: of no country."""
    entity: str
    form: str
    """A pattern with a bound, for a text that is not part of a longer word or number."""
    check: Check | str | None = None
    """The check that the matched text must pass: a function, or the name of a module of `python-stdnum`."""
    near: str = ""
    """Words, separated by `|`, of which one must be in the 64 characters before it. Empty: none must."""
    by_choice: bool = False
    """The line is used only if its entity or its country is chosen."""

    @property
    def needs_ids(self) -> bool:
        """Whether the line needs the extra `ids`."""
        return isinstance(self.check, str)

    def rules(self, is_chosen: bool) -> Iterator[Rule]:
        """`is_chosen`: the entity or its country was chosen. Then an id after its word may be in lower
        case, and a text that is nothing but the value needs no word if it has a check or a letter."""
        check = self.full_check()
        form = loose(self.form)
        # Otherwise "is 16 to 2024" could be a plate, and each word in lower case could begin an id.
        is_any_case = is_chosen and self.near and " " not in form
        body = f"(?i:{form})" if is_any_case else f"(?:{form})"
        if self.is_grouped:
            body = NO_GROUP_BEFORE + body + NO_GROUP_AFTER
        near = words_near(self.near) if self.near else None
        unless = AFTER_IBAN if self.is_grouped else None
        yield Rule(self.entity, BEGIN + body + END, check, near=near, unless=unless, country=self.country)
        if is_chosen and near and (self.check or _LETTER.search(self.form)):
            alone = check if self.check else lambda text: check(text) and any(map(str.isalpha, text))
            yield Rule(self.entity, f"{_ALONE}(?i:{form}){_TO_THE_END}", alone, country=self.country)

    def full_check(self) -> Check:
        """Return a function: whether a text has the form and passes the check."""
        has_form = re.compile(self.form, re.IGNORECASE if self.near else 0).fullmatch
        check = _stdnum(self.check) if isinstance(self.check, str) else self.check
        if check is None:
            return lambda text: has_form(_ascii(text)) is not None
        known: Check = check
        return lambda text: has_form(_ascii(text)) is not None and known(text)

    @property
    def is_grouped(self) -> bool:
        """Whether the form may be found without a word and is mostly digits in groups, which a longer number
        may also have."""
        return not self.near and " " in self.form


def has_ids() -> bool:
    """Whether the extra `ids` is installed."""
    return find_spec("stdnum") is not None


def words_near(text: str) -> str:
    """Return a pattern for `Rule.near`: one of the words, which `|` separates, in upper or lower case.

    A space stands for a space, a hyphen, an underscore or nothing. An ASCII word may not be part of another
    one, but may have an ending such as `number`.
    """
    spelled = {word: "[ _-]?".join(map(re.escape, word.split(" "))) for word in text.lower().split("|")}
    ascii_words = [pattern for word, pattern in spelled.items() if word.isascii()]
    other = [pattern for word, pattern in spelled.items() if not word.isascii()]
    whole = [rf"(?<![^\W_])(?:{'|'.join(ascii_words)}){_ENDINGS}(?![^\W_])"] if ascii_words else []
    return "|".join([*whole, *other])


def loose(form: str) -> str:
    """Return the form with any digit for digits of some kind, and any letter for letters of some kind.

    All families are read in one pass. Forms that ask for other signs at each place would make it slow on long
    rows of digits; the exact form is checked where a loose one matches.
    """
    return _SAME.sub(r"(?:\\d\\d)", _PART.sub(_loosened, form))


def _loosened(part: re.Match[str]) -> str:
    text = part[0]
    if text.isdecimal():
        return r"\d"
    signs = text[1:-1].replace(r"\d", "0-9")
    if text[0] != "[" or not signs.replace("-", "").isalnum() or signs[0] == "-" or signs[-1] == "-":
        return text
    letters = "".join(
        span for span, one in (("A-Z", str.isupper), ("a-z", str.islower)) if any(map(one, signs))
    )
    digits = r"\d" if any(map(str.isdecimal, signs)) else ""
    other = "".join(sign for sign in signs if not sign.isascii())
    return f"[{letters}{digits}{other}]" if letters else r"\d"


def _ascii(text: str) -> str:
    """Return the text with digits of other scripts and look-alike letters as ASCII."""
    return text if text.isascii() else "".join(map(_ascii_sign, text))


def _ascii_sign(sign: str) -> str:
    if sign.isascii():
        return sign
    return str(int(sign)) if sign.isdecimal() else unicodedata.normalize("NFKD", sign)[0]


def _stdnum(name: str) -> Check:
    is_valid: Check = import_module(f"stdnum.{name}").is_valid
    return lambda text: is_valid(plain(text))
