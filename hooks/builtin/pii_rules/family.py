"""Families of personal data: the lines of the tables, and the rules that they become."""

import re
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
BEHIND_IBAN = r"(?<![^\W_])(?-i:[A-Z]{2}\d\d(?: [A-Z\d]{4}){0,7} )"
"""The first groups of what looks like a bank account, for `Rule.unless`."""
_ALONE = r"(?<![\s\S])"
_TO_THE_END = r"(?=\.?\s{0,2}\Z)"
_ENDINGS = "(?:e?s|(?:s|en)?nummer|[ _-]?(?:number|num|nr|no|id|code))?"
"""What a word for an id may end with: passports, Passnummer, passport_no."""


@dataclass(frozen=True, slots=True)
class Family:
    """One line of a table: what an entity looks like."""

    country: str
    """The country (ISO 3166 code); empty: of no country."""
    entity: str
    form: str
    """A pattern with a bound, for a text that is not part of a longer word or number."""
    check: Check | str | None = None
    """What the matched text must pass: a function, or the name of a module of `python-stdnum`."""
    near: str = ""
    """Words, separated by `|`, of which one must stand in the 64 characters before it. Empty: none must."""
    by_choice: bool = False
    """The line is used only if its entity or its country is chosen."""

    @property
    def needs_ids(self) -> bool:
        """Whether the line needs the extra `ids`."""
        return isinstance(self.check, str)

    def rules(self, is_chosen: bool) -> Iterator[Rule]:
        """`is_chosen`: the entity or its country was chosen. Then a text that is nothing but the value needs
        no word if it has a check or a letter."""
        check = _stdnum(self.check) if isinstance(self.check, str) else self.check
        is_any_case = self.near and " " not in self.form  # otherwise "is 16 to 2024" could be a plate
        form = f"(?i:{self.form})" if is_any_case else f"(?:{self.form})"
        if self.is_grouped:
            form = NO_GROUP_BEFORE + form + NO_GROUP_AFTER
        near = words_near(self.near) if self.near else None
        unless = BEHIND_IBAN if self.is_grouped else None
        yield Rule(self.entity, BEGIN + form + END, check, near=near, unless=unless, country=self.country)
        if is_chosen and near:
            alone = f"{_ALONE}(?i:{self.form}){_TO_THE_END}"
            yield Rule(self.entity, alone, check or _has_letter, country=self.country)

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
    found = [_word(word) for word in text.lower().split("|")]
    return "|".join(found)


def _word(word: str) -> str:
    pattern = "[ _-]?".join(map(re.escape, word.split(" ")))
    return rf"(?<![^\W_]){pattern}{_ENDINGS}(?![^\W_])" if word.isascii() else pattern


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


def _stdnum(name: str) -> Check:
    is_valid: Check = import_module(f"stdnum.{name}").is_valid
    return lambda text: is_valid(plain(text))
