"""Personal data: what each entity is, what only looks like it, and the same wherever a stream is cut."""

import random
import re
import time
from typing import Any

import pytest

from benchmarks.detection import cut_by, samples_of
from benchmarks.pii_samples import KINDS
from hooks.builtin.pii import Pii
from hooks.builtin.pii_rules import phones
from tests.helpers import finish_of, text_of
from tests.hooks.builtin.streams import cut, run, said

ALL = Pii()
RESERVED_TOO = Pii(reserved="find")
TEXT = "Ann: ann@initech.org, +1 202-555-0142 or 4111 1111 1111 1111."


@pytest.mark.parametrize("cuts", [[], [8, 24, 31, 47], range(70)])
def test_each_action_is_the_same_wherever_the_stream_is_cut(cuts: Any) -> None:
    pieces = cut(TEXT, cuts)
    assert said(ALL, pieces) == "Ann: [EMAIL_ADDRESS], [PHONE_NUMBER] or [CREDIT_CARD]."
    assert (
        said(Pii(template="<{entity}>"), pieces) == "Ann: <EMAIL_ADDRESS>, <PHONE_NUMBER> or <CREDIT_CARD>."
    )
    assert said(Pii(action="suppress"), pieces) == "Ann: ,  or ."
    out = run(Pii(action="terminate", text="(private)"), pieces)
    assert (text_of(out), finish_of(out)) == ("Ann: (private)", ("content_filter", "EMAIL_ADDRESS"))
    assert said(Pii(channels=["reasoning"]), pieces) == TEXT
    assert said(ALL, pieces, "tool_call") == said(ALL, pieces)


def test_entities_and_locales_can_be_chosen() -> None:
    assert said(Pii(entities=["CREDIT_CARD"]), list(TEXT)) == TEXT.replace(
        "4111 1111 1111 1111", "[CREDIT_CARD]"
    )
    text = "SSN 536-90-4399, DNI 12345678Z, (020) 7946 0018, +44 20 7946 0018"
    assert said(Pii(locales=["us"]), [text]) == "SSN [US_SSN], DNI 12345678Z, (020) 7946 0018, [PHONE_NUMBER]"
    assert (
        said(Pii(locales=["ES", "gb"]), [text])
        == "SSN 536-90-4399, DNI [ES_NIF], [PHONE_NUMBER], [PHONE_NUMBER]"
    )
    assert (
        said(Pii(locales=["fr"]), [text]) == "SSN 536-90-4399, DNI 12345678Z, (020) 7946 0018, [PHONE_NUMBER]"
    )


PUBLISHED = {
    # As their publishers, or those who explain them, print them.
    "EMAIL_ADDRESS": ["a@b.co", "o'brien+x@mail.example.co.uk", "иван@пример.рф", "x_1%y@xn--bcher.museum"],
    "PHONE_NUMBER": ["+44 (0)20 7946 0018", "0049 30 901820", "(202) 456-1111", "01 42 68 53 00"],
    "CREDIT_CARD": ["4111111111111111", "5555 5555 5555 4444", "3782 822463 10005", "Diners 30569309025904"],
    "IBAN_CODE": ["GB29 NWBK 6016 1331 9268 19", "NO9386011117947", "MT84MALT011000012345MTLCAST001S"],
    "IP_ADDRESS": ["81.2.69.142", "2a00:1450::ff00:42:8329", "2a02:26f0::1", "::ffff:81.2.69.128"],
    "MAC_ADDRESS": ["00:1B:44:11:3A:B7", "00-1b-44-11-3a-b7", "001b.4411.3ab7"],
    "AU_TFN": ["TFN 123 456 782"],
    "BE_NISS": ["85.07.30-033.28", "NISS 85073003328"],
    "BR_CPF": ["111.444.777-35", "CPF 11144477735"],
    "CA_SIN": ["SIN 130-692-544", "SIN 130 692 544"],
    "CH_AHV": ["756.9217.0769.85", "AHV 7569217076985"],
    "CN_RIC": ["11010519491231002X"],
    "DE_TAX_ID": ["Steuer-ID 86095742719", "IdNr. 65 929 970 489"],
    "ES_NIE": ["X1234567L", "Y-1234567-X"],
    "ES_NIF": ["12345678Z", "54362315-K"],
    "FI_HETU": ["131052-308T", "131052A308T"],
    "FR_INSEE": ["2 95 10 99 126 111 93", "253072B07300470"],
    "IN_AADHAAR": ["2341 2341 2346"],
    "IN_PAN": ["ABCPL1234C"],
    "IT_FISCAL_CODE": ["RCCMNL83S18D969H", "rssmra85t10a562s"],
    "NL_BSN": ["1112.22.333", "BSN 111222333"],
    "PL_PESEL": ["PESEL 44051401359"],
    "PT_NIF": ["NIF 501442600"],
    "SE_PERSONNUMMER": ["811228-9874", "19670919-9530", "personnummer 8112289874"],
    "SG_NRIC": ["S1234567D", "F1234567N"],
    "UK_NHS": ["NHS number 943 476 5919"],
    "UK_NINO": ["AB 12 34 56 C", "AB123456C"],
    "US_SSN": ["536-90-4399", "Social Security number 536904399"],
}  # fmt: skip


def test_published_examples_are_found() -> None:
    assert {kind.entity for kind in KINDS} == set(PUBLISHED)
    for entity, examples in PUBLISHED.items():
        for example in examples:
            assert [one[2] for one in cut_by(ALL.detector, f"It is {example}, yes")] == [entity], example


LOOKS = """
    4111 1111 1111 1112;GB29 NWBK 6016 1331 9268 18;000-12-3456;12345678A;GDZZZ 12 34 56 C;123456789;§4.2.3.2
    version 1.2.3.4;1.2.3.4.5;Chrome/120.0.0.0;logo@2x.png;lodash@4.17.21;@decorator;12:30:45;12345-6789
    std::vector<int>;x[::2];550e8400-e29b-41d4-a716-446655440000;978-3-16-148410-0;0-306-40615-2;#a1b2c3d4
    $1,234,567.89;2024-11-21T12:30:45Z;01.02.2024;order 48213345;da39a3ee5e6b4b0d3255bfef95601890afd80709
    call 123-456-7890;aa:bb:cc:dd:ee:ff:00:11;3.14159265358979;8.6270183987866146;ORD-4111-1111
"""


@pytest.mark.parametrize(
    "text", [text for line in LOOKS.split("\n") for text in line.strip().split(";") if text]
)
def test_what_only_looks_like_it_passes(text: str) -> None:
    assert cut_by(ALL.detector, f"It is {text}, yes") == []


def test_a_word_to_the_left_can_rule_out_what_it_looks_like() -> None:
    for text in ("Invoice 020 7946 0018", "order number: +44 20 7946 0018", "firmware 10.0.0.1"):
        assert said(ALL, [text]) == said(ALL, list(text)) == text
    assert said(ALL, ["Invoices by 020 7946 0018"]) == "Invoices by [PHONE_NUMBER]"


def test_letters_and_digits_of_other_scripts_do_no_harm() -> None:
    """A regular expression's s is a ſ too, and its digits are those of every script."""
    changes = str.maketrans({"s": "ſ", "k": "\u212a", "i": "ı", "3": "٣", "7": "𝟟", "0": "०", "1": "１"})
    rng = random.Random(14)
    for _, sample in samples_of(KINDS, seed=12, count=20):
        i, j = sorted(rng.choices(range(len(sample.text) + 1), k=2))
        ALL.detector.scan(sample.text[:i] + sample.text[i:j].lower().translate(changes) + sample.text[j:])
    assert cut_by(ALL.detector, "RSSMRA85T1०A562S") == [(0, 16, "IT_FISCAL_CODE")]
    assert cut_by(ALL.detector, "GB29 NWB\u212a 6016 1331 9268 19") == [(0, 27, "IBAN_CODE")]


def test_text_after_a_card_number_is_not_part_of_it() -> None:
    assert said(ALL, list("4111 1111 1111 1111 123 12/27")) == "[CREDIT_CARD] 123 12/27"
    assert said(ALL, list("BE68 5390 0754 7034 and")) == "[IBAN_CODE] and"
    assert said(ALL, list("202-555-0142 2024")) == "[PHONE_NUMBER] 2024"


def test_a_word_to_the_left_counts_though_it_was_released() -> None:
    for text in ("my BSN: 111222333", "BSN " + "x" * 40 + " 111222333"):
        assert said(ALL, list(text)) == text.replace("111222333", "[NL_BSN]")
    far = "BSN " + "x" * 80 + " 111222333"
    assert said(ALL, list(far)) == far == said(ALL, [far])


@pytest.mark.parametrize("row", ["01 ", "01 02 03 04 05 06 07 ", "10 01 11 00 ", "+1 ", "0049 ", "1.1.1.1."])
def test_rows_of_numbers_are_seldom_looked_up(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[object] = []
    fits = phones._Plan.fits

    def counted(plan: phones._Plan, groups: Any, is_exact: bool) -> bool:
        looked_up.append(groups)
        return fits(plan, groups, is_exact)

    monkeypatch.setattr(phones._Plan, "fits", counted)
    said(Pii(entities=["PHONE_NUMBER"]), [row] * 100)
    assert len(looked_up) < 100 * row.count(" ") + 20, "about once for each place where one could begin"
    looked_up.clear()
    assert said(Pii(), ["Ring 01 42 68 53 00."]) == "Ring [PHONE_NUMBER]."
    assert looked_up


@pytest.mark.parametrize(
    "row", ["1.1.1.1.", "a@", "+1 ", "7 ", "2341 ", "::", "phone 0171 2345 ", "1A", "(0) "]
)
def test_no_row_takes_long(row: str) -> None:
    """A tenth of a megabyte, in a tenth of what a megabyte may take on a busy machine."""
    began = time.process_time()
    ALL.detector.scan((row * 40_000)[:100_000])
    assert time.process_time() - began < 2


RESERVED = (
    "(212) 555-0142",
    "555-555-0123",
    "123-555-0199",
    "+1 999-555-0100",
    "1 800 555-0142",
    "(990) 234-5678",
    "91-415-555-0132",
)


def test_a_phone_number_is_found_without_a_space_before_it() -> None:
    assert said(ALL, ["My number is415-555-0132."]) == "My number is[PHONE_NUMBER]."


@pytest.mark.parametrize("number", RESERVED)
def test_numbers_of_manuals_and_of_areas_that_are_not_in_use_are_found(number: str) -> None:
    assert said(ALL, [f"It is {number}, yes"]) == "It is [PHONE_NUMBER], yes"


NO_FINDS = """
    blk_-6008397446568765070;00:13:03.104 25746;051 824 753;brotlicffi>=1.2.0.0;brotli==1.2.30.40
    policy 3.3.0.3;192.168.1.1.1;at 10.192.168.1.1;lib_10.2.3.4;name-10.20.30.40
    length 100::;x = -4111111111111111;[.1FD7.0020.0002];U+0390 => 0399 0308 0301;0031 2044 0031 0030
    log_p4, + 1.4249322787E-1;b + 3.1415926535;100 2000 300 400 5000
    NL91 ABNA 0417 1643 01;00:00:00:00:00:00;FF:FF:FF:FF:FF:FF;078-05-0000;252.227-7013;Chrome/120.0.0.0
"""


@pytest.mark.parametrize(
    "text", [text.strip() for line in NO_FINDS.split("\n") for text in line.split(";") if text]
)
def test_what_real_files_have_passes(text: str) -> None:
    assert cut_by(ALL.detector, text) == []


FINDS = {
    "IP_ADDRESS": """
        host/10.1.2.3;src: /10.250.19.102:54106;ping ::1;http://[::1]:8080/;fe80::1%eth0;[2001:db8::7]:443
        2001:db8::/32;10.0.0.0/8;::ffff:192.0.2.128;64:ff9b::192.0.2.33;word/1.2.3.4;web01/::1;web01/::
    """,
    "CREDIT_CARD": "UATP 122000000000003;1220 000000 00003;4111-1111-1111-1111;3782 822463 10005",
    "CRYPTO": "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa;bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
}  # fmt: skip


@pytest.mark.parametrize(
    ("entity", "text"),
    [(name, one.strip()) for name, all_ in FINDS.items() for one in re.split(r"[;\n]", all_) if one.strip()],
)
def test_what_is_found_in_its_writings(entity: str, text: str) -> None:
    assert entity in {one[2] for one in cut_by(RESERVED_TOO.detector, text)}
    assert said(RESERVED_TOO, [text]) == said(RESERVED_TOO, list(text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # An OID begins with 0 or 1 and a number below 40, or with 2 and any number.
        ("1.39.83.91.7", "1.39.83.91.7"),
        ("0.39.83.91.7", "0.39.83.91.7"),
        ("2.40.83.91.7", "2.40.83.91.7"),
        ("1.3.6.1.4.1.311.21.20", "1.3.6.1.4.1.311.21.20"),
        ("1.40.83.91.7", "[IP_ADDRESS]"),
        ("3.39.83.91.7", "[IP_ADDRESS]"),
        ("83.12.4.91.127.0.0.1", "[IP_ADDRESS]"),
        ("127.0.0.1.83.12.4.91", "[IP_ADDRESS]"),
        ("83.12.4.91.84.13.5.92.85.14.6.93", "[IP_ADDRESS]"),
        ("83.12.4.91.443 > 84.13.5.92.51234: Flags", "[IP_ADDRESS] > [IP_ADDRESS]: Flags"),
        ("from 12.5.6.7.443", "from [IP_ADDRESS]"),
        ("83.12.4.91-83.12.4.99", "[IP_ADDRESS]"),
        ("1.2.3.4-83.12.4.91", "[IP_ADDRESS]"),
        ("10.0.0.1.443, 127.0.0.1.8080", "10.0.0.1.443, 127.0.0.1.8080"),
        ("version 83.12.4.91.7", "version 83.12.4.91.7"),
        ("12.5.6.7.1 and 10.4.22621.1.2", "12.5.6.7.1 and 10.4.22621.1.2"),
        ("83.12.4.91-rc1", "83.12.4.91-rc1"),
    ],
)
def test_addresses_among_more_numbers_are_found_unless_they_are_an_oid(text: str, shown: str) -> None:
    guard = Pii()
    assert said(guard, [text]) == said(guard, list(text)) == shown


@pytest.mark.parametrize("number", ["+12025550142", "+49 30 901820", "202-555-0142", "(202) 555-0142"])
def test_a_phone_number_after_another_one_is_found(number: str) -> None:
    for pieces in ([f"{number} {number}"], list(f"{number} {number}")):
        assert said(ALL, pieces) == "[PHONE_NUMBER] [PHONE_NUMBER]"


def test_texts_and_patterns_can_be_allowed() -> None:
    guard = Pii(allow=["Help@initech.org", r"/@initech\.com$/"])
    text = "help@initech.org, ann@initech.com, ann@initech.org"
    assert (
        said(guard, [text]) == said(guard, list(text)) == "help@initech.org, ann@initech.com, [EMAIL_ADDRESS]"
    )
