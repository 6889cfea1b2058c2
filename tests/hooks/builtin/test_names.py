"""The guard `names`: the model that ships, runs of words, and spaCy where it is installed."""

import json
import re
import sys
from array import array
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks.builtin.name_model.features import NUM_ROWS, rows, shown
from hooks.builtin.name_model.model import OFFSET, NameModel, packed, read, shipped
from hooks.builtin.name_model.runs import LEFT, LONGEST, Run, runs
from hooks.loading.loader import HookLoadError, HookSpec, load_hook
from hooks.testing import play, stream_of
from hooks.testing.streams import request_for
from tests.hooks.builtin.streams import PLACES, Watch, cut, said

ALL = ["PERSON", "LOCATION", "ORGANIZATION"]
PIECES = [
    *("Anna", "Kowalska", "MÜLLER", "J", "O'Neil", "d'Arc", "Ив", "ан", "X" * 45, "Y" * 39, "é"),
    *(" ", "   ", "      ", "\n", "\t", "\u00a0", "\u200b", "\u00ad", "*", "**", "_"),
    *(" de ", " van der ", " of ", "the", "a", "12", ".", ". ", ", ", "-", "'", "’", "&", " & ", "(", ")"),
]


def guard(**arguments: Any) -> Any:
    return load_hook(HookSpec("names", arguments)).call


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My name is John Smith.", "My name is [PERSON]."),
        ("Ask Maria Rossi, please.", "Ask [PERSON], please."),
        ("Herr Müller wohnt in Berlin.", "Herr [PERSON] wohnt in [LOCATION]."),
        ("Меня зовут Иван Петров.", "Меня зовут [PERSON]."),
        ("Je m'appelle Pierre Dubois et j'habite à Lyon.", "Je m'appelle [PERSON] et j'habite à [LOCATION]."),
    ],
)
def test_it_finds_names_of_several_languages(text: str, expected: str) -> None:
    assert said(guard(entities=ALL), list(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "A heron stood at the weir. The River was high, and Nobody hurried.",
        "Use `TypeError` and JSON: see RFC 9110 on Monday.",
        "Das Haus hat einen Garten und eine Tür.",
    ],
)
def test_it_leaves_words_that_are_no_names(text: str) -> None:
    assert said(guard(entities=ALL), list(text)) == text


def test_it_finds_only_the_kinds_that_it_is_asked_for() -> None:
    text = "Sarah Miller lives in London."
    assert said(guard(entities=["LOCATION"]), [text]) == "Sarah Miller lives in [LOCATION]."


def test_allowed_names_pass() -> None:
    text = "Sarah Miller met Peter Brown."
    assert said(guard(allow=["sarah miller"]), list(text)) == "Sarah Miller met [PERSON]."


def test_a_name_in_a_tool_calls_arguments_leaves_them_json() -> None:
    released = said(guard(), list(r'{"to": "J\u00fcrgen M\u00fcller", "n": 3}'), "tool_call")
    assert json.loads(released) == {"to": "[PERSON]", "n": 3}


def test_a_name_comes_back_to_the_caller_that_sent_it(restore_key: None) -> None:
    one = guard(prompt="redact", restore=True)
    prompt = [{"role": "user", "content": "My name is Sarah Miller."}]
    shown = one.on_request(request_for(prompt), {})
    (placeholder,) = re.findall(r"\[PERSON_\w+\]", shown.messages[0]["content"])
    assert "Sarah" not in shown.messages[0]["content"]
    released = play(one, stream_of(f"Hello {placeholder}!", prompt=prompt))
    assert released.content == "Hello Sarah Miller!"


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), PLACES)
def test_where_a_stream_is_cut_changes_nothing(text: str, places: list[int]) -> None:
    one = guard(entities=ALL, threshold=0.3)
    assert said(one, cut(text, places)) == said(one, [text])


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.data())
def test_runs_depend_on_no_more_than_they_say(text: str, data: st.DataObject) -> None:
    whole, _ = runs(text, 0, True)
    middle = data.draw(st.integers(0, len(text)))
    early, undecided = runs(text[:middle], 0, False)
    assert middle - undecided <= LONGEST
    gone = max(0, undecided - LEFT)
    late, _ = runs(text[gone:], undecided - gone, True)
    moved = [
        run._replace(words=[w._replace(start=w.start + gone, end=w.end + gone) for w in run.words])
        for run in late
    ]
    assert [*early, *moved] == whole


def test_prose_waits_for_a_run_and_the_word_after_it() -> None:
    watch = Watch(guard(entities=ALL))
    said(watch, list("the old boats lay in the harbour and nobody hurried. " * 5))
    assert watch.most_held == 0
    said(watch, list("We met Anna Maria Kowalska yesterday."))
    assert len("Anna Maria Kowalska") <= watch.most_held <= len("Anna Maria Kowalska yesterday.")


def test_no_text_is_held_longer_than_the_bound() -> None:
    watch = Watch(guard(entities=ALL))
    said(watch, list("Anna van der " * 200))
    assert 40 < watch.most_held <= LONGEST <= watch.guard.max_hold


def test_a_model_is_read_as_it_was_written() -> None:
    run = Run(runs("Anna Bell", 0, True)[0][0].words, ["\n", "\n"], "\n")
    (row, *_), _ = rows(run, lambda token: shown(token, 1 if token == "Anna" else 0))
    flat = OFFSET | OFFSET << 16 | OFFSET << 32 | OFFSET << 48
    weights = array("Q", [flat]) * NUM_ROWS
    weights[row] = flat + (100 << 16)
    words = {shown("Anna", 0).word: 1}
    model = read(packed(weights, 0.1, words))
    share = model.shares(run)[0][0]
    assert share > 0.99
    assert NameModel(weights, 0.1, words).shares(run)[0][0] == share


def test_the_model_is_small() -> None:
    from importlib.resources import files

    assert len(files("hooks.builtin.name_model").joinpath("names.bin").read_bytes()) < 8_000_000
    assert shipped() is shipped()


@pytest.fixture
def spacy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake of the one call of spaCy, because it brings a pipeline along, which no test should download."""
    module = ModuleType("spacy")

    def load(name: str) -> Any:
        if name != "en_small":
            raise OSError(name)
        return lambda text: SimpleNamespace(
            ents=[
                SimpleNamespace(start_char=m.start(), end_char=m.end(), label_=m[1], text=m[0])
                for m in re.finditer(r"(PERSON|GPE|DATE)-\w+", text)
            ]
        )

    module.load = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spacy", module)


def test_a_pipeline_of_spacy_finds_names_in_whole_sentences(spacy: None) -> None:
    one = guard(pipeline="en_small", entities=ALL, allow=["GPE-b"])
    text = "PERSON-a is in GPE-b. Then GPE-c, DATE-d."
    assert said(one, list(text)) == "[PERSON] is in GPE-b. Then [LOCATION], DATE-d."


def test_a_pipeline_that_is_not_there_keeps_the_server_from_starting(spacy: None) -> None:
    with pytest.raises(HookLoadError, match="pipeline: spaCy has no pipeline 'de_small'"):
        guard(pipeline="de_small")


def test_without_spacy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(HookLoadError, match=re.escape("install the extra 'names' of weir-proxy")):
        guard(pipeline="en_small")
