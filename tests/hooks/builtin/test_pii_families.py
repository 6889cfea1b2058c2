"""Every line of the table of national ids: made values are found at every cut, and near misses are not."""

import random
import re
from collections.abc import Iterator

import pytest

from benchmarks.cases.strings import drawn
from benchmarks.detection import cut_by
from hooks.builtin.pii import ENTITIES, LOCALES, Pii
from hooks.builtin.pii_rules import choice
from hooks.builtin.pii_rules.family import Family
from hooks.builtin.pii_rules.national_ids import NATIONAL_IDS
from tests.helpers import draws, slow
from tests.hooks.builtin.streams import cut, said

pytest.importorskip("stdnum")
LINES = [pytest.param(line, id=f"{line.entity}-{i}") for i, line in enumerate(NATIONAL_IDS)]
UNCHECKED = {line.entity for line in NATIONAL_IDS if not line.check}
RANGES = {
    *("CZ_BIRTH_NUMBER", "DK_CPR", "ID_NIK", "KR_FRN", "KR_RRN", "MX_RFC", "MY_NRIC", "PK_CNIC"),
    *("UK_DRIVING_LICENCE", "UK_NINO", "US_EIN", "US_SSN", "US_SSN_UNISSUED"),
}
"""Entities whose check is of dates, areas or prefixes: they have no check digit, or old ones have none."""
CHECKED = {line.entity for line in NATIONAL_IDS} - UNCHECKED - RANGES


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


def values(line: Family, count: int) -> Iterator[str]:
    """Texts of the line's form whose check digits are right. A look-ahead may exclude a made text."""
    check = next(line.rules(is_chosen=False)).check
    rng = random.Random(line.form)
    made = (drawn(line.form, rng, check or bool, tries=300_000) for _ in range(20 * count))
    fitting = (value for value in made if re.fullmatch(line.form, value))
    return (value for _, value in zip(range(count), fitting, strict=False))


def sentence(line: Family, value: str) -> str:
    label = f" {line.near.split('|')[0]}" if line.near else ""
    return f"I think that the{label} is {value}, yes."


@pytest.mark.parametrize("line", LINES)
def test_a_made_value_is_found_in_a_sentence(line: Family) -> None:
    guard = Pii(entities=[line.entity])
    for value in values(line, draws(3)):
        text = sentence(line, value)
        start = text.index(value)
        assert cut_by(guard.detector, text) == [(start, start + len(value), line.entity)], text
        released = said(guard, [text])
        assert value not in released
        assert said(guard, list(text)) == released


@pytest.mark.parametrize("line", [slow(line) for line in NATIONAL_IDS])
def test_a_made_value_is_found_at_every_cut(line: Family) -> None:
    guard = Pii(entities=[line.country])
    for value in values(line, 1):
        text = sentence(line, value)
        released = said(guard, [text])
        assert {said(guard, cut(text, [i])) for i in range(1, len(text))} == {released}


@pytest.mark.parametrize("entity", sorted(CHECKED))
def test_a_value_with_a_wrong_digit_passes(entity: str) -> None:
    """A check digit finds every change of one digit, or nearly every one."""
    lines = [line for line in NATIONAL_IDS if line.entity == entity]
    guard = Pii(entities=[entity])
    found = tried = 0
    for line in lines:
        for value in values(line, draws(3)):
            for i in [i for i, sign in enumerate(value) if sign.isdecimal()]:
                changed = f"{value[:i]}{(int(value[i]) + 1) % 10}{value[i + 1 :]}"
                tried += 1
                found += cut_by(guard.detector, sentence(line, changed)) != []
    assert found <= tried / 3


@pytest.mark.parametrize("line", [line for line in LINES if line.values[0].near])
def test_an_id_that_needs_a_word_passes_without_one(line: Family) -> None:
    bare = [one for one in NATIONAL_IDS if one.entity == line.entity and not one.near]
    rules = choice.chosen_rules([line.entity], [line.country])
    assert sum(rule.near is None for rule in rules) >= len(bare)
    if not bare:
        guard = Pii(entities=[line.entity])
        assert all(cut_by(guard.detector, f"Take {value} of them.") == [] for value in values(line, draws(2)))


def test_a_text_that_is_only_the_value_needs_no_word_once_its_entity_was_chosen() -> None:
    assert said(Pii(entities=["AU_ACN"]), ["004 085 616"]) == "[AU_ACN]"
    assert said(Pii(entities=["AU"]), list("004 085 616.\n")) == "[AU_ACN].\n"
    assert said(Pii(entities=["AU_ACN"]), ["004 085 617"]) == "004 085 617"
    assert said(Pii(entities=["AU_ACN"]), ["Take 004 085 616"]) == "Take 004 085 616"
    assert said(Pii(), ["004085616"]) == "004085616"


def test_a_country_stands_for_its_entities() -> None:
    text = "DNI 12345678Z, SSN 536-90-4399, (020) 7946 0018, (202) 456-1111, ann@initech.org"
    assert said(Pii(entities=["ES", "US"]), [text]) == (
        "DNI [ES_NIF], SSN [US_SSN], (020) 7946 0018, [PHONE_NUMBER], ann@initech.org"
    )
    assert said(Pii(entities=["GB", "EMAIL_ADDRESS"]), [text]) == (
        "DNI 12345678Z, SSN 536-90-4399, [PHONE_NUMBER], (202) 456-1111, [EMAIL_ADDRESS]"
    )
    with pytest.raises(ValueError, match="entities: DE is of a country that locales leave out"):
        Pii(entities=["DE"], locales=["us"])


def test_a_line_by_choice_is_off_until_its_entity_or_country_is_chosen() -> None:
    text = "The number is 987-12-3456."
    assert said(Pii(), [text]) == text
    assert said(Pii(entities=["US"]), [text]) == "The number is [US_SSN_UNISSUED]."
    assert said(Pii(entities=["US_SSN"]), [text]) == text


def test_entities_have_presidios_names_too() -> None:
    assert said(Pii(entities=["SG_NRIC_FIN"]), ["S1234567D"]) == "[SG_NRIC]"
    assert {"US_ITIN", "CRYPTO", "AU_ABN", "KR_RRN", "PHONE_NUMBER"} <= {*ENTITIES}
    assert {"de", "tr", "za"} <= {*LOCALES}


def test_without_the_library_what_needs_it_is_absent_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "has_ids", lambda: False)
    assert said(Pii(), ["DNI 12345678Z, ABN 51 824 753 556"]) == "DNI [ES_NIF], ABN 51 824 753 556"
    for chosen in ("AU_ABN", "AU"):
        with pytest.raises(ValueError, match=r"AU_ABN.*install the extra 'ids'"):
            Pii(entities=[chosen])
