"""Accounts: each country of the registry has its form."""

import random
import re

import pytest

from benchmarks.detection import cut_by
from hooks.builtin.pii import Pii
from hooks.builtin.pii_rules.accounts import iban_patterns
from tests.hooks.builtin.streams import said

GUARD = Pii()
DRAWN = {
    r"\d": "0123456789",
    "[A-Z]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    r"[A-Z\d]": "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
}
COUNTRIES = [pytest.param(country, pattern, id=country) for country, _, pattern in iban_patterns()]

WITH_DIGITS = [one for one in COUNTRIES if r"\d" in str(one.values[1]).replace(r"[A-Z\d]", "")]
"""The countries that have digits alone at some places."""


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


def account(country: str, pattern: str, rng: random.Random) -> str:
    """An account drawn at random, with right check digits."""
    parts = re.findall(r"(\\d|\[A-Z\]|\[A-Z\\d\])\{(\d+)\}", pattern)
    body = "".join("".join(rng.choices(DRAWN[signs], k=int(count))) for signs, count in parts)
    number = int("".join(str(int(sign, 36)) for sign in f"{body}{country}00"))
    return f"{country}{98 - number % 97:02}{body}"


@pytest.mark.parametrize(("country", "pattern"), COUNTRIES)
def test_an_account_of_each_country_is_found(country: str, pattern: str) -> None:
    rng = random.Random(country)
    whole = account(country, pattern, rng)
    for written in (whole, whole.lower(), *(sep.join(re.findall(".{1,4}", whole)) for sep in " -")):
        text = f"Send it to {written}, thanks."
        assert cut_by(GUARD.detector, text) == [(11, 11 + len(written), "IBAN_CODE")], text
    text = f"Send it to {whole}, thanks."
    assert said(GUARD, list(text)) == "Send it to [IBAN_CODE], thanks."


@pytest.mark.parametrize(("country", "pattern"), WITH_DIGITS)
def test_a_form_of_another_country_is_no_account(country: str, pattern: str) -> None:
    """A letter where the country has digits: the check digits are right."""
    rng = random.Random(country)
    other = re.sub(r"(?<!Z)\\d", "[A-Z]", pattern)
    assert cut_by(GUARD.detector, f"Send it to {account(country, other, rng)}, thanks.") == []


def test_the_table_is_that_of_the_registry() -> None:
    """`python-stdnum` has the registry of ISO 13616, by country."""
    numdb = pytest.importorskip("stdnum.numdb")
    for country, length, pattern in iban_patterns():
        [(_, known)] = numdb.get("iban").info(country + "00")[:1]
        parts = re.findall(r"(\d+)!([nac])", known["bban"])
        signs = "".join(
            {"n": r"\d", "a": "[A-Z]", "c": r"[A-Z\d]"}[kind] + ";"
            for n, kind in parts
            for _ in range(int(n))
        )
        mine = re.findall(r"(\\d|\[A-Z\]|\[A-Z\\d\])\{(\d+)\}", pattern)
        assert "".join(f"{sign};" * int(count) for sign, count in mine) == signs, country
        assert length == sum(int(n) for n, _ in parts)


@pytest.mark.parametrize(
    "text",
    [
        "de893704-0044-0532-0130-00",
        "DE89 37040044 0532 0130 00",
        "DE89-3704 0044-0532 0130-00",
        "DE89370400440532013001",
    ],
)
def test_other_groups_and_wrong_check_digits_are_no_account(text: str) -> None:
    assert cut_by(GUARD.detector, f"Send it to {text}, thanks.") == []
