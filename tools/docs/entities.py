"""The entities of the guard `pii`, by country, for `docs/guards.md`."""

from collections.abc import Iterable, Iterator

from hooks.builtin.pii_rules.choice import OF_NO_COUNTRY, PHONE_NUMBER
from hooks.builtin.pii_rules.family import Family
from hooks.builtin.pii_rules.national_ids import NATIONAL_IDS
from hooks.builtin.pii_rules.phones import PHONE_COUNTRIES

HEAD = ("country", "anywhere", "after a word", "only if chosen")
"""The columns of `rows`."""


def rows() -> Iterator[tuple[str, ...]]:
    """A row for each country. An entity is where it is found the most easily."""
    general = dict.fromkeys(rule.entity for rule in OF_NO_COUNTRY)
    yield "any", _codes([*general, PHONE_NUMBER]), "", ""
    countries = sorted({line.country for line in NATIONAL_IDS} | {*PHONE_COUNTRIES})
    for country in countries:
        lines = [line for line in NATIONAL_IDS if line.country == country]
        anywhere = _names(line for line in lines if not (line.near or line.by_choice))
        behind = _names(line for line in lines if line.near) - anywhere
        chosen = _names(lines) - anywhere - behind
        yield f"`{country}`", *(_codes(sorted(names)) for names in (anywhere, behind, chosen))


def _names(lines: Iterable[Family]) -> set[str]:
    return {line.entity for line in lines}


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
