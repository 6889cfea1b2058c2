"""Personal data: addresses, phone numbers, cards, accounts and national ids: `--hook pii`.

Entities have Presidio's names. A number that has check digits is a match only if they are right.
"""

from collections.abc import Iterable
from typing import Unpack

from hooks import checked
from hooks.builtin.pii_rules.accounts import CARD, IBAN
from hooks.builtin.pii_rules.addresses import EMAIL, IPV4, IPV6, MAC
from hooks.builtin.pii_rules.national_ids import NATIONAL_IDS
from hooks.builtin.pii_rules.phones import phone_rules
from hooks.detect.acting_guard import Options
from hooks.detect.argument_types import Names
from hooks.detect.readings import VALUES, Reader
from hooks.detect.rules import Rule, RuleDetector, chosen
from hooks.detect.span_guard import SpanGuard

LOCALES = tuple(NATIONAL_IDS)
"""The countries (ISO 3166 codes) whose national ids and phone numbers are known."""


class Pii(SpanGuard):
    """Finds personal data: addresses, phone numbers, cards, accounts and national ids."""

    thread_safe = True

    @checked
    def __init__(
        self, *, entities: Names | None = None, locales: Names = LOCALES, **options: Unpack[Options]
    ) -> None:
        """`entities`: the kinds to find (None: all). `locales`: the countries, out of `LOCALES`, whose
        national ids and phone numbers in national form to find.

        Raises `ValueError` for an unknown entity or country.
        """
        rules = _rules(locales)
        known = {rule.entity for rule in rules}
        if foreign := {*(entities or ())} & {rule.entity for rule in _rules(LOCALES)} - known:
            raise ValueError(f"entities: {', '.join(sorted(foreign))} is of a country that locales leave out")
        super().__init__(Reader(RuleDetector(chosen(rules, entities)), VALUES), **options)


def _rules(locales: Iterable[str]) -> list[Rule]:
    countries = [locale.lower() for locale in locales]
    if unknown := set(countries) - set(LOCALES):
        raise ValueError(f"locales are some of {', '.join(LOCALES)}, not {', '.join(sorted(unknown))}")
    national = [rule for country in countries for rule in NATIONAL_IDS[country]]
    phones = phone_rules(country.upper() for country in countries)
    return [EMAIL, IBAN, CARD, *national, IPV4, IPV6, MAC, *phones]
