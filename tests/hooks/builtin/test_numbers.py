"""Numbers and ids that programs write are nobody's: guards leave nearly all of them, and find them again once
a word or a choice says what they are."""

import pytest

from benchmarks.cases.numbers import CONTEXTS, NUMBERS, Number, share_found
from benchmarks.detection import RATED, cut_by
from hooks.builtin.pii import Pii
from tests.hooks.builtin.streams import said

COUNT = 300
PII = Pii()


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", RATED)
def test_numbers_that_programs_write_pass(name: str, kind: Number) -> None:
    """A smaller draw than that of `make bench NAME=detection`: one find more than its limit may be chance."""
    shares = share_found(RATED[name], kind, seed=4, count=COUNT)
    assert [*shares] == [*CONTEXTS]
    assert max(shares.values()) * COUNT <= kind.most * COUNT + 1, shares


def test_no_uuid_is_an_account() -> None:
    """Groups of an IBAN are of four characters, so none of a UUID's groups can be some of them."""
    [kind] = [kind for kind in NUMBERS if kind.name == "UUID 4"]
    assert max(share_found(RATED["pii"], kind, seed=5, count=4_000).values()) == 0


BARE = {
    # Bare ids with right check digits, or dates: the country, and a word for the id.
    "508508109046": ("IN", "Aadhaar"),
    "100036344188095": ("FR", "INSEE"),
    "1804223974633": ("KR", "resident registration"),
    "86095742719": ("DE", "Steuer-ID"),
    "44051401359": ("PL", "PESEL"),
    "10000000146": ("TR", "TC Kimlik No"),
    "8001015009087": ("ZA", "ID number"),
    "7569217076985": ("CH", "AHV"),
    "8112289874": ("SE", "personnummer"),
    "A123456780": ("DE", "Versichertennummer"),
    "130-692-544": ("CA", "SIN"),
    "51 824 753 556": ("AU", "ABN"),
    "876 543 210": ("AU", "TFN"),
    "2341-2341-2346": ("IN", "Aadhaar"),
    "09171234567": ("PH", "phone"),
    "004930901820": ("DE", "Tel."),
}


@pytest.mark.parametrize(("value", "country", "word"), [(value, *row) for value, row in BARE.items()])
def test_a_bare_id_counts_after_its_word_or_if_its_country_is_chosen(
    value: str, country: str, word: str
) -> None:
    text = f"It is {value}, yes"
    start = text.index(value)
    assert cut_by(PII.detector, text) == []
    for guard in (Pii(locales=[country.lower()]), Pii(entities=[country])):
        assert [span[:2] for span in cut_by(guard.detector, text)] == [(start, start + len(value))]
        assert said(guard, list(text)) == said(guard, [text])
    worded = f"{word}: {value}"
    assert [span[:2] for span in cut_by(PII.detector, worded)] == [(worded.index(value), len(worded))]


def test_locales_switch_countries_on_and_keep_entities_without_a_country() -> None:
    guard = Pii(locales=["pl"])
    text = "44051401359, ann@initech.org, DNI 12345678Z"
    assert said(guard, [text]) == "[PL_PESEL], [EMAIL_ADDRESS], DNI 12345678Z"


CARDS = {
    "4111111111111111": True,
    "4111 1111 1111 1111": True,
    "4111-1111-1111-1111": True,
    "378282246310005": True,
    "5555555555554444": True,
    "6011111111111117": True,
    "3530111333300000": True,
    '{"number": "4111111111111111"}': True,
    "card=4111111111111111": True,
    '{"card_id": 4111111111111111}': True,
    "https://pay.example/?cc=4111111111111111": True,
    "Maestro 6759649826438453": True,
    "my card is 630400000000000000": True,
    "ORD-4111111111111111": False,
    "ORD-4111-1111-1111-1111": False,
    "order 4111111111111111": False,
    '"order_id": 4111111111111111': False,
    '"orderId": "4111111111111111"': False,
    "order no. 4111111111111111": False,
    "https://x.example/videos/4111111111111111": False,
    "#4111111111111111": False,
    "ts=4111111111111111": False,
    "6759649826438453": False,
    "30569309025904": False,
    "122000000000003": False,
    "4111111111111111111": False,
}


@pytest.mark.parametrize(("text", "is_card"), CARDS.items())
def test_a_bare_card_counts_where_no_name_says_that_it_is_another_number(text: str, is_card: bool) -> None:
    assert [span[2] for span in cut_by(PII.detector, text)] == ["CREDIT_CARD"] * is_card
    assert said(PII, list(text)) == said(PII, [text])


VERSIONS = {
    "1.2.3.4": False,
    "it is 4.18.0.172 there": False,
    "bump foo from 2.3.4.4 to 2.3.4.5": False,
    "Upgraded from 8.34.2.1 to 8.34.2.2": False,
    "https://x.example/download/4.18.20.9/setup": False,
    "Chrome 120.0.0.0": False,
    "8.34.210.5": True,
    "10.1.2.3": True,
    "93.184.216.34": True,
    "connect to 1.2.3.4": True,
    "http://1.2.3.4/": True,
    "1.2.3.0/24": True,
}


@pytest.mark.parametrize(("text", "is_address"), VERSIONS.items())
def test_four_small_numbers_are_a_version_without_a_word_for_an_address(text: str, is_address: bool) -> None:
    assert bool(cut_by(Pii(reserved="find").detector, text)) == is_address
    assert said(PII, list(text)) == said(PII, [text])
