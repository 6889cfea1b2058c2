"""Which rules the guard `pii` uses, by entity and by country."""

from collections.abc import Collection, Iterable

from engine.protocol.parts import how_to_install
from hooks.builtin.pii_rules.accounts import CARDS, CHOSEN_CARDS, CRYPTO, IBAN, UATP_CARDS
from hooks.builtin.pii_rules.addresses import EMAIL, IPV4, IPV6, MAC
from hooks.builtin.pii_rules.family import Family, has_ids
from hooks.builtin.pii_rules.national_ids import NATIONAL_IDS, countries
from hooks.builtin.pii_rules.phones import PHONE_COUNTRIES, phone_rules
from hooks.detect.rules import Rule

PHONE_NUMBER = "PHONE_NUMBER"
LAST = (*UATP_CARDS, *IPV4, *IPV6, MAC, *CHOSEN_CARDS)
OF_NO_COUNTRY = (EMAIL, IBAN, *CARDS, CRYPTO, *UATP_CARDS, *IPV4, *IPV6, MAC)
LOCALES = tuple(sorted({code.lower() for code in (*countries(), *PHONE_COUNTRIES)}))
"""The countries (ISO 3166 codes, in lower case) whose national ids or phone numbers are known."""
SAME_ENTITY = {"SG_NRIC_FIN": "SG_NRIC", "FI_PERSONAL_IDENTITY_CODE": "FI_HETU", "IP": "IP_ADDRESS"}
"""Other names of entities."""


def chosen_rules(entities: Collection[str] | None, locales: Iterable[str] | None) -> list[Rule]:
    """Return the rules of `entities`, which are names and countries, for the countries in `locales` (None:
    all). Without `entities`: those of no country, and those of `locales`. Without either: those that stay
    quiet on any text.

    Raises `ValueError` for an unknown entity or country, and if an entity needs the extra `ids`.
    """
    regions = _regions(LOCALES if locales is None else locales)
    if entities is None:
        is_chosen = locales is not None
        offered = [one for one in NATIONAL_IDS if one.country in regions and (is_chosen or not one.by_choice)]
        if is_chosen:
            _check_ids(offered)
        usable = offered if has_ids() else [one for one in offered if not one.needs_ids]
        return _all_rules(
            OF_NO_COUNTRY,
            [rule for one in usable for rule in one.rules(is_chosen)],
            phone_rules(sorted(regions), is_chosen),
        )
    wanted = {SAME_ENTITY.get(entity, entity) for entity in entities}
    _check(wanted, regions)
    families = [one for one in NATIONAL_IDS if one.entity in wanted or one.country in wanted]
    families = [one for one in families if one.country in regions]
    _check_ids(families)
    anywhere = [rule for rule in (*OF_NO_COUNTRY, *CHOSEN_CARDS) if rule.entity in wanted]
    phones = regions if PHONE_NUMBER in wanted else regions & wanted
    phone_forms = phone_rules(sorted(phones), is_chosen=True) if phones else []
    return _all_rules(anywhere, [rule for one in families for rule in one.rules(is_chosen=True)], phone_forms)


def entity_names(families: Iterable[Family] = NATIONAL_IDS) -> list[str]:
    """Return the names of all entities, those of no country first."""
    names = [rule.entity for rule in OF_NO_COUNTRY] + [PHONE_NUMBER] + [one.entity for one in families]
    return list(dict.fromkeys(names))


def _all_rules(anywhere: Iterable[Rule], national: Iterable[Rule], phones: Iterable[Rule]) -> list[Rule]:
    others = list(anywhere)
    first = [rule for rule in others if rule not in LAST]
    last = [rule for rule in others if rule in LAST]
    # Of rules that find the same text, the first one names it: one that saw a word for the id is surer.
    of_countries = sorted([*national, *phones], key=lambda rule: rule.near is None)
    return [*first, *of_countries, *last]


def _regions(locales: Iterable[str]) -> set[str]:
    given = [locale.lower() for locale in locales]
    if unknown := set(given) - set(LOCALES):
        raise ValueError(f"locales are some of {', '.join(LOCALES)}, not {', '.join(sorted(unknown))}")
    return {locale.upper() for locale in given}


def _check(wanted: set[str], regions: set[str]) -> None:
    names, codes = entity_names(), {locale.upper() for locale in LOCALES}
    if unknown := wanted - {*names, *codes}:
        known = f"{', '.join(names)}, and countries ({', '.join(sorted(codes))})"
        raise ValueError(f"entities are some of {known}, not {', '.join(sorted(unknown))}")
    left_out = {one.entity for one in NATIONAL_IDS if one.country not in regions}
    left_out |= codes - regions
    left_out -= {one.entity for one in NATIONAL_IDS if one.country in regions}
    if foreign := wanted & left_out:
        raise ValueError(f"entities: {', '.join(sorted(foreign))} is of a country that locales leave out")


def _check_ids(families: Iterable[Family]) -> None:
    """An entity or a country that was chosen may not be found in part."""
    if has_ids():
        return
    if missing := sorted({one.entity for one in families if one.needs_ids}):
        raise ValueError(f"entities: {', '.join(missing)}: {how_to_install('ids')}")
