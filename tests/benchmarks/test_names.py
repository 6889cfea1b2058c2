"""The training texts of the guard `names`, and how its finds are counted."""

from pathlib import Path
from zlib import crc32

from benchmarks.names import Counted, Drawn, counted
from tools.names.drawn import KINDS, Drawer, Text
from tools.names.lists import BIG_CITY, COMMON, FIRST, Country
from tools.names.prose import blanked, digests
from tools.names.templates import TEMPLATES
from tools.names.train import sure

JUDGED = Path(__file__).parent / "judged_templates.txt"
"""Digests of presidio-evaluator's templates, of which the judged texts are drawn. `make bench NAME=names`
also compares the texts themselves, and the prose."""


def test_no_template_of_the_training_is_a_judged_one() -> None:
    judged = {bytes.fromhex(line) for line in JUDGED.read_text().split()}
    assert len(judged) > 200
    assert not judged & digests(blanked(text for texts in TEMPLATES.values() for text in texts))


def test_a_text_is_known_whatever_its_spaces_case_and_fields() -> None:
    one, other = ["My name  is {{person}}"], ["my name is\n{first}"]
    assert digests(blanked(one)) == digests(blanked(other))
    assert digests(blanked(one)) != digests(blanked(["My name is {first}."]))


def test_drawn_texts_say_where_their_names_are() -> None:
    country = Country(male=["Ada"], female=["Ada"], last=["Bell"], cities=["Rome"], words=["tree"])
    countries = {f"{language}_XX": country for language in TEMPLATES}
    drawer = Drawer(countries, ["Acme"], ["Rome"], seed=1)
    kinds = set()
    for _ in range(300):
        text, spans = drawer.text("en")
        for start, end, kind in spans:
            kinds.add(kind)
            named = text[start:end].casefold()
            assert kind != "PERSON" or "ada" in named or "bell" in named
    assert kinds == set(KINDS.values())


def test_a_label_counts_where_the_lists_agree() -> None:
    lists = {crc32(b"anna"): FIRST, crc32(b"oslo"): BIG_CITY, crc32(b"will"): FIRST | COMMON}
    text = Text("Anna, Will, Oslo, Graph", [(0, 4, "PERSON"), (6, 10, "PERSON"), (18, 23, "LOCATION")])
    spans = sure(text, lists).spans
    assert spans == [(0, 4, "PERSON"), (6, 10, "?"), (18, 23, "?")]


def test_a_find_that_touches_no_name_of_its_kind_is_false() -> None:
    texts = [Drawn("Ada Bell in Rome", [(0, 8, "PERSON"), (12, 16, "LOCATION")])]
    found = [[(0, 3, "PERSON"), (12, 16, "PERSON")]]
    assert counted(texts, found, "PERSON") == Counted(names=1, found=1, whole=0, false=1)
    assert counted(texts, found, "LOCATION") == Counted(names=1, found=0, whole=0, false=0)
