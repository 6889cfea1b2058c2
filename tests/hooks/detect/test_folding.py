"""Folding: which characters become equal, and the places in the original that folded characters come from."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks.detect.folding import FOLDS, Fold, Folding, forms


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


WRITINGS: dict[Fold, tuple[str, str]] = {
    "case": ("HuNTer ß", "hunter ss"),
    "compatibility": ("ｈｕｎｔｅｒ²", "hunter2"),
    "invisible": ("hun\u200bt\u00ader\u2800\x07", "hunter"),
    "lookalikes": ("huntеr–′٣", "hunter-'3"),
    "space": ("a \n\t\u00a0b", "a b"),
}


@pytest.mark.parametrize("fold", FOLDS)
def test_each_fold_changes_its_own_characters_alone(fold: Fold) -> None:
    for other, (text, folded) in WRITINGS.items():
        assert Folding([fold]).fold(text)[0] == (folded if other == fold else text), other
    assert Folding([]).fold(WRITINGS[fold][0])[0] == WRITINGS[fold][0]


def test_all_folds_together_make_disguised_text_plain() -> None:
    assert Folding().fold("ＰRО\u200bJÉCT \n 🅱lueＢIRD")[0] == "project bluebird"


def test_each_folded_character_has_its_place_in_the_original() -> None:
    folded, places = Folding().fold("a  ﬃ\u200bB")
    assert folded == "a ffib"
    assert list(places) == [0, 1, 3, 3, 3, 5]
    assert list(Folding().fold("Plain")[1]) == [0, 1, 2, 3, 4]


def test_plain_folded_text_keeps_its_number_of_spaces() -> None:
    assert Folding().plain("A \n\tB") == "a   b"


def test_letters_of_other_scripts_stay_themselves() -> None:
    for text in ("각 가", "世界", "яд", "नमस्ते"):
        assert Folding().fold(text)[0] == text
    assert Folding().character("\u0301") == ""


def test_a_text_has_a_composed_and_a_decomposed_form() -> None:
    assert forms("plain") == {"plain"}
    assert forms("가é") == {"가é", unicodedata.normalize("NFD", "가é")}


TEXTS = (
    st.text(max_size=20)
    | st.text(st.characters(max_codepoint=127))
    | st.text(" \nAß\u200bé½²¨\ufc5e\x00", max_size=9)
)


@given(TEXTS, TEXTS, st.sets(st.sampled_from(FOLDS)))
def test_a_text_folds_character_by_character(one: str, other: str, folds: set[Fold]) -> None:
    folding = Folding(folds)
    assert folding.plain(one + other) == folding.plain(one) + folding.plain(other)
    parts = [(char, i) for i, one_ in enumerate(one + other) for char in folding.character(one_)]
    if "space" in folds:
        doubled = [pair[0][0] == pair[1][0] == " " for pair in pairwise([("", 0), *parts])]
        parts = [part for part, is_double in zip(parts, doubled, strict=True) if not is_double]
    folded, places = folding.fold(one + other)
    assert list(zip(folded, places, strict=True)) == parts
    assert folding.evenly(one + other) == (folded if list(places) == [*range(len(one + other))] else None)
