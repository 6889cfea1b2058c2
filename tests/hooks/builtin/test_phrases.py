"""Phrases: what is found in folded text, and that it is found wherever the stream is cut."""

import re
import unicodedata
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, FinishReason
from hooks.builtin.phrases import PhraseDetector, Phrases
from hooks.detect.detector import Match
from hooks.detect.folding import FOLDS, Fold, Folding
from tests.helpers import examples, finish_of, guard_all, make_deltas, pipeline_of, text_of
from tests.hooks.builtin.streams import PLACES, Watch, assert_untouched, cut, replaced, run, said

ROOT = Path(__file__).parents[3]
SECRET = ["project bluebird", "hunter2"]


def found(text: str, *phrases: str, **arguments: Any) -> list[str]:
    matches, _ = PhraseDetector(phrases, **arguments).scan(text)
    return [text[match.start : match.end] for match in matches]


def test_phrases_are_redacted() -> None:
    assert said(Phrases(SECRET), ["It is project blue", "bird. hun", "ter2!"]) == "It is [phrase]. [phrase]!"


def test_phrases_come_from_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "phrases.txt").write_text("project bluebird\n\nprojet été\n", encoding="utf-8")
    guard = Phrases(["hunter2"], file=tmp_path / "phrases.txt", template="*")
    assert said(guard, list("Projet Été, hunter2, project bluebird")) == "*, *, *"


@pytest.mark.parametrize("cuts", [[], [7, 9, 12], range(60)])
def test_suppressing_takes_them_out_and_goes_on(cuts: Any) -> None:
    text = "Call project bluebird now, hunter2."
    assert said(Phrases(SECRET, action="suppress"), cut(text, cuts)) == "Call  now, ."


@pytest.mark.parametrize("cuts", [[], [7, 9, 12], range(60)])
def test_terminating_ends_before_the_first(cuts: Any) -> None:
    guard = Phrases(SECRET, action="terminate", text="I cannot say.")
    out = run(guard, cut("Call project bluebird now, hunter2.", cuts))
    assert text_of(out) == "Call I cannot say."
    assert finish_of(out) == ("content_filter", "phrase")


def test_only_the_channels_asked_for_are_guarded() -> None:
    guard = Phrases(SECRET, channels=["reasoning"])
    assert said(guard, ["hun", "ter2"]) == "hunter2"
    assert said(guard, ["hun", "ter2"], "reasoning") == "[phrase]"
    everywhere = Phrases(SECRET)
    for channel in ("content", "reasoning", "tool_call", "echo"):
        assert said(everywhere, ["x hun", "ter2"], channel) == "x [phrase]"


@pytest.mark.parametrize(
    "text",
    [
        "PROJECT BlueBird",
        "project \n\t bluebird",
        "pro\u200bject blue\u200d\ufeffbird",
        "ｐｒｏｊｅｃｔ　ｂｌｕｅｂｉｒｄ",
        "рrоjесt bluеbіrd",  # Cyrillic letters among the Latin ones
        "ΡRΟJΕCΤ ΒLUΕΒΙRD",  # Greek ones
        "𝐩𝐫𝐨𝐣𝐞𝐜𝐭 𝕓𝕝𝕦𝕖𝕓𝕚𝕣𝕕",
        "prøjéct blûęb\u0338ird",
        "🅿🆁🅾🅹🅴🅲🆃 ʙʟᴜᴇʙɪʀᴅ",
        "p\u00adroject\u00a0bluebird",
        "ⓟⓡⓞⓙⓔⓒⓣ bluebird",
    ],
)
def test_folded_text_is_matched_and_the_original_cut(text: str) -> None:
    for pieces in ([f"<{text}>"], list(f"<{text}>")):
        assert said(Phrases(SECRET), pieces) == "<[phrase]>"


@pytest.mark.parametrize(("phrase", "folds"), [("한국 비밀", FOLDS), ("café", ["case"])])
def test_how_letters_are_composed_makes_no_difference(phrase: str, folds: list[Fold]) -> None:
    composed, decomposed = unicodedata.normalize("NFC", phrase), unicodedata.normalize("NFD", phrase)
    for listed in (composed, decomposed):
        for text in (composed, decomposed):
            assert found(f"{text} {text.upper()}", listed, fold=folds) == [text, text.upper()]


def test_each_fold_can_be_left_out() -> None:
    assert found("HUNTER2 ｈunter2 hun\u200bter2 huntеr2", "hunter2", fold=[]) == []
    assert found("HUNTER2 ｈunter2", "hunter2", fold=["case"]) == ["HUNTER2"]
    assert found("HUNTER2 ｈunter2", "hunter2", fold=["compatibility"]) == ["ｈunter2"]
    assert found("hun\u200bter2 huntеr2", "hunter2", fold=["invisible"]) == ["hun\u200bter2"]
    assert found("hun\u200bter2 huntеr2", "hunter2", fold=["lookalikes"]) == ["huntеr2"]
    assert found("a  b", "a b", fold=["space"]) == ["a  b"]
    assert found("pécher", "pêcher", fold=["case", "compatibility"]) == []


def test_words_of_other_scripts_match_in_either_case() -> None:
    assert found("ВОВА вова Вова", "вова") == ["ВОВА", "вова", "Вова"]
    assert found("ΝΊΚΗ νίκη Νίκη", "Νίκη") == ["ΝΊΚΗ", "νίκη", "Νίκη"]
    assert found("STRASSE straße", "Straße") == ["STRASSE", "straße"]


def test_a_part_of_a_longer_word_is_none() -> None:
    assert found("cat concat cats cat_s cat-like (cat) ca\u200bt\u200bs", "cat") == ["cat", "cat", "cat"]
    assert found("concatenate", "cat", word_boundaries=False) == ["cat"]
    assert found("a++ x++ ++x", "++", word_boundaries=True) == ["++", "++", "++"]


@pytest.mark.parametrize("text", ["_hunter2_", "__hunter2__", "*hunter2*", "_hunter2,_", "hunter2_\u200b_."])
def test_emphasis_is_no_part_of_a_word(text: str) -> None:
    for pieces in ([text], list(text)):
        assert said(Phrases(SECRET), pieces) == text.replace("hunter2", "[phrase]")


def test_underscores_join_words() -> None:
    text = "my_key_ _my_key__ my_key_2 my__key a_my_key"
    assert said(Phrases(["my_key"]), list(text)) == text.replace("my_key_", "[phrase]_", 2)
    for text in ("x_hunter2_", "x__hunter2", "hunter2_x", "hunter2__\u200b__x"):
        assert said(Phrases(SECRET), list(text)) == text


def test_scripts_without_spaces_have_no_words_to_be_part_of() -> None:
    assert found("世界你好吗", "你好") == ["你好"]
    assert found("서울은 좋다", "서울") == ["서울"]
    assert found("각", "가") == []


def test_the_longest_counts_and_overlaps_are_one() -> None:
    guard = Phrases(["blue", "blue bird", "bird song"])
    assert said(guard, list("blue bird song, blue sky")) == "[phrase], [phrase] sky"
    assert said(Phrases(["aa"], word_boundaries=False), list("xaaaaax")) == "x[phrase]x"


def test_it_holds_just_what_could_still_become_a_phrase() -> None:
    guard = Phrases(["project bluebird"])
    for text, held in [
        ("a project ", "project "),
        ("a subproject", ""),
        ("project bluebir", "project bluebir"),
        ("project bluebird", "project bluebird"),  # "birds" is another word
        ("project blues", ""),
        ("the pro", "pro"),
        ("the end.", ""),
    ]:
        _, undecided = guard.detector.scan(text, 0, False)
        assert text[undecided:] == held, text
    _, undecided = PhraseDetector(["bluebird"], word_boundaries=False).scan("a bluebird", 0, False)
    assert undecided == 10


def test_what_is_held_has_a_bound() -> None:
    watch = Watch(Phrases(["a b"]))
    text = "a" + " " * 500 + "b a" + "\u200b" * 500 + " b"
    assert said(watch, list(text)) == text
    assert watch.most_held <= PhraseDetector(["a b"]).longest < 100


PHRASES = ["ab", "abc d", "b c", "d\u00e9", "cab", "a.b"]
TEXTS = st.lists(
    st.sampled_from([*"abcd .", "A", "\n", "\u200b", "а", "é", "e\u0301", "ab", "abc d", "b  c", "ca", "ß"]),
    max_size=24,
).map("".join)


def expected(text: str, phrases: list[str], bounded: bool) -> str:
    """By trying every phrase at every place of the folded text, character by character."""
    folding = Folding()
    chars = [(piece, i) for i, char in enumerate(text) for piece in folding.character(char)]
    chars = [c for k, c in enumerate(chars) if not (c[0] == " " and k and chars[k - 1][0] == " ")]
    folded = "".join(char for char, _ in chars)
    spans = []
    for phrase in phrases:
        edge = r"\b" if bounded else ""
        for match in re.finditer(f"(?={edge}({re.escape(folding.fold(phrase)[0])}){edge})", folded):
            spans.append(Match(chars[match.start(1)][1], chars[match.end(1) - 1][1] + 1, "phrase"))
    return replaced(text, spans)


LISTS = st.lists(
    st.sampled_from([*PHRASES, "b", "a_b", "_b", "b-", "-a", "\u4f60", "a\u4f60", "ffi a"]),
    min_size=1,
    max_size=6,
)
WRITINGS = st.lists(
    st.sampled_from(
        [
            *"abcd _.-",
            "A",
            "\n",
            "ab",
            " ab",
            "_ab",
            "\u200b",
            "\u200b" * 20,
            "\u0430",
            "\ufb03",
            "\u4f60",
            "\uff3f",
        ]
    ),
    min_size=4,
    max_size=20,
).map("".join)


def plain_scan(text: str, start: int, is_final: bool, phrases: list[str], bounded: bool) -> Any:
    """The findings, by trying every phrase at every place."""
    folding = Folding()
    wanted = {folding.fold(phrase)[0] for phrase in phrases}
    most = 2 * max(map(len, wanted)) + 64
    chars = [(piece, i) for i in range(start, len(text)) for piece in folding.character(text[i])]
    chars = [c for k, c in enumerate(chars) if not (c[0] == " " and k and chars[k - 1][0] == " ")]
    folded = "".join(char for char, _ in chars)

    def of_word(char: str) -> bool:
        return bounded and (char.isalnum() or char == "_") and char != "\u4f60"

    def folded_near(near: str) -> str:
        return "".join("" if char == "_" else folding.character(char) for char in near)

    matches, undecided = set(), len(text)
    for i, phrase in ((i, phrase) for i in range(len(folded)) for phrase in wanted):
        begin, rest = chars[i][1], folded[i:]
        if of_word(folded[i]) and of_word(folded_near(text[max(0, begin - 16) : begin])[-1:]):
            continue
        if phrase.startswith(rest) and phrase != rest and len(text) - begin < most + 16:
            undecided = min(undecided, begin)
        end = chars[i + len(phrase) - 1][1] + 1 if rest.startswith(phrase) else begin + most + 1
        near = text[end : end + 16]
        if end - begin > most or (of_word(phrase[-1]) and of_word(folded_near(near)[:1])):
            continue
        if of_word(phrase[-1]) and not folded_near(near) and len(near) < 16 and not is_final:
            undecided = min(undecided, begin)
        else:
            matches.add(Match(begin, end, "phrase"))
    if is_final:
        return matches, len(text)
    return {match for match in matches if match.start < undecided}, undecided


@examples(300)
@given(WRITINGS, LISTS, st.integers(0, 4))
def test_a_scan_is_what_trying_every_phrase_at_every_place_gives(
    text: str, phrases: list[str], start: int
) -> None:
    for bounded in (True, False):
        detector = PhraseDetector(phrases, bounded)
        for end, is_final in product(range(start, len(text) + 1), (False, True)):
            matches, undecided = detector.scan(text[:end], start, is_final)
            assert (set(matches), undecided) == plain_scan(text[:end], start, is_final, phrases, bounded)


@examples(400)
@given(TEXTS, PLACES, st.booleans())
def test_where_a_stream_is_cut_changes_nothing(text: str, places: list[int], bounded: bool) -> None:
    guard = Watch(Phrases(PHRASES, word_boundaries=bounded))
    assert said(guard, cut(text, places)) == expected(text, PHRASES, bounded)
    assert guard.most_held <= guard.guard.detector.longest


@examples(200)
@given(TEXTS, PLACES, st.sampled_from(["content", "reasoning", "echo"]))
def test_nothing_withheld_gets_out_by_ids_or_logprobs(text: str, places: list[int], channel: str) -> None:
    pieces = cut(text, places)
    matches, _ = PhraseDetector(PHRASES).scan(text)
    out = run(Phrases(PHRASES), pieces, channel)
    assert_untouched(out, pieces, matches)
    for token in (token for delta in out for token in delta.tokens):
        assert token.text == pieces[token.id]


def test_one_of_a_hundred_thousand_phrases_is_found() -> None:
    phrases = [f"code name {i:06d}" for i in range(100_000)]
    assert said(Phrases(phrases), list("say code name 099999 or code name 1000000")) == (
        "say [phrase] or code name 1000000"
    )


@pytest.mark.parametrize(("finish", "stop"), [("length", None), ("stop", "bird")])
async def test_what_may_become_a_phrase_is_withheld_at_a_cut_that_the_client_chose(
    finish: FinishReason, stop: str | None
) -> None:  # contract 3.12
    deltas = make_deltas(["It is ", "project ", "blue"], finish=False)
    end = Delta(finish_reason=finish, stop_reason=stop)
    assert text_of(await guard_all(pipeline_of(Phrases(SECRET)), [*deltas, end])) == "It is "
