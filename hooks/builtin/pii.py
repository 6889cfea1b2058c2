"""Personal data: addresses, phone numbers, cards, accounts and national ids: `--hook pii`.

Entities are named as Presidio names them. What has check digits is one only if they hold.
"""

from collections.abc import Iterable
from typing import Unpack

from hooks.builtin.accounts import CARD, IBAN
from hooks.builtin.addresses import EMAIL, IPV4, IPV6, MAC
from hooks.builtin.national_ids import NATIONAL_IDS
from hooks.builtin.phones import phone_rules
from hooks.builtin.rules import Rule, RuleDetector, chosen
from hooks.builtin.spans import Options, SpanGuard

LOCALES = tuple(NATIONAL_IDS)
"""The countries, as ISO 3166 has them, whose national ids and phone numbers are known."""


class Pii(SpanGuard):
    def __init__(
        self,
        *,
        entities: Iterable[str] | None = None,
        locales: Iterable[str] = LOCALES,
        **options: Unpack[Options],
    ) -> None:
        """`entities`: which to find (None: all). `locales`: the countries, of `LOCALES`, whose national ids
        to find, and whose phone numbers in the form that is used at home.

        Raises `ValueError` for an entity or a country that is not known.
        """
        super().__init__(RuleDetector(chosen(_rules(locales), entities)), **options)


def _rules(locales: Iterable[str]) -> list[Rule]:
    countries = [locale.lower() for locale in locales]
    if unknown := set(countries) - set(LOCALES):
        raise ValueError(f"locales are some of {', '.join(LOCALES)}, not {', '.join(sorted(unknown))}")
    national = [rule for country in countries for rule in NATIONAL_IDS[country]]
    phones = phone_rules(country.upper() for country in countries)
    return [EMAIL, IBAN, CARD, *national, IPV4, IPV6, MAC, *phones]
