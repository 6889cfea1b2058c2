"""Presidio's recognisers on whole sentences: with a fake of its two calls, and itself where it is installed.

The fake stands in because Presidio brings a language model along, which no test should download.
"""

import json
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hooks.loading.loader import HookLoadError, HookSpec, load_hook
from tests.hooks.builtin.streams import PLACES, Watch, cut, said


class FakeAnalyzer:
    """Takes a capitalised word after "Dr" in the same sentence for a person."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def get_supported_entities(self, language: str) -> list[str]:
        return ["PERSON", "LOCATION", "NRP"]

    def analyze(self, text: str, entities: list[str], language: str, score_threshold: float) -> list[Any]:
        self.sentences.append(text)
        found = re.finditer(r"(?<=Dr )[A-Z]\w*", text)
        return [SimpleNamespace(start=m.start(), end=m.end(), entity_type="PERSON") for m in found]


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """The guard's module is imported by the test itself."""
    sys.modules.pop("hooks.builtin.presidio", None)
    yield
    sys.modules.pop("hooks.builtin.presidio", None)


@pytest.fixture
def analyzer(monkeypatch: pytest.MonkeyPatch) -> FakeAnalyzer:
    fake, module = FakeAnalyzer(), ModuleType("presidio_analyzer")

    class Provider:
        def __init__(self, analyzer_engine_conf_file: Any = None) -> None:
            pass

        def create_engine(self) -> FakeAnalyzer:
            return fake

    module.AnalyzerEngineProvider = Provider  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "presidio_analyzer", module)
    return fake


def test_it_judges_whole_sentences(analyzer: FakeAnalyzer) -> None:
    guard = load_hook(HookSpec("presidio")).call
    assert (
        said(guard, list("Ask Dr Ames. Dr \nBell, or Dr Cole!"))
        == "Ask Dr [PERSON]. Dr \nBell, or Dr [PERSON]!"
    )
    assert analyzer.sentences == ["Ask Dr Ames. ", "Dr \n", "Bell, or Dr Cole!"]


def test_a_sentence_has_a_bound(analyzer: FakeAnalyzer) -> None:
    watch = Watch(load_hook(HookSpec("presidio", {"max_sentence": 20})).call)
    said(watch, list("a " * 40))
    assert watch.most_held == 19


def test_an_entity_that_there_is_not_keeps_the_server_from_starting(analyzer: FakeAnalyzer) -> None:
    with pytest.raises(HookLoadError, match="Presidio has no recogniser for SHOE in 'en'"):
        load_hook(HookSpec("presidio", {"entities": ["SHOE"]}))


# The fixture is the same for every example: none changes it.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.sampled_from(["Dr ", "Ames", "x", ". ", "!", "\n", "。", '" ', " "])).map("".join), PLACES)
def test_where_a_stream_is_cut_changes_nothing(analyzer: FakeAnalyzer, text: str, places: list[int]) -> None:
    guard = load_hook(HookSpec("presidio", {"max_sentence": 12})).call
    assert said(guard, cut(text, places)) == said(guard, [text])


def test_a_number_in_arguments_that_a_sentences_bound_cuts_in_two_changes_nothing(
    analyzer: FakeAnalyzer,
) -> None:
    guard = load_hook(HookSpec("presidio", {"max_sentence": 12})).call
    text = '["xxxxxx",12345,"Dr Ames Dr Ames Dr Ames"]'
    (released,) = {said(guard, cut(text, [place]), "tool_call") for place in range(len(text))}
    assert json.loads(released)[1] == 12345


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(find_spec("presidio_analyzer") is None, reason="presidio-analyzer is not installed")
def test_presidio_itself_finds_what_it_is_asked_for(tmp_path: Path) -> None:
    import spacy

    spacy.blank("en").to_disk(tmp_path / "blank")  # a model that knows nothing, and needs no download
    model = f"{{lang_code: en, model_name: '{tmp_path / 'blank'}'}}"
    (tmp_path / "presidio.yaml").write_text(
        f"nlp_configuration: {{nlp_engine_name: spacy, models: [{model}]}}"
    )
    arguments = {"entities": ["CREDIT_CARD", "IP_ADDRESS"], "configuration": str(tmp_path / "presidio.yaml")}
    guard = load_hook(HookSpec("presidio", arguments)).call
    assert (
        said(guard, list("Card 4111 1111 1111 1111. At 10.0.0.1!")) == "Card [CREDIT_CARD]. At [IP_ADDRESS]!"
    )


def test_without_presidio_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "presidio_analyzer", None)
    with pytest.raises(HookLoadError, match=re.escape("install the extra 'presidio' of weir-proxy")):
        load_hook(HookSpec("presidio"))
