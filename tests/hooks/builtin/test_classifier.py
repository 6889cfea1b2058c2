"""A classifier as a guard: it finds what the model does, whatever else the model is shown with it."""

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    BertForSequenceClassification,
    Qwen2Config,
    Qwen2ForSequenceClassification,
)

from hooks.builtin.classifier import Classifier
from hooks.builtin.classifier_models.classifiers import _words, load_classifier
from hooks.builtin.classifier_models.model import ClassifierModel
from hooks.decisions.failure import HookError
from hooks.detect.detector import Match
from hooks.loading.loader import HookLoadError, HookSpec, load_hook
from hooks.testing import WAYS, assert_chunk_invariant, assert_never_released, play
from tests.helpers import examples, guard_all, make_deltas, pipeline_of, text_of
from tests.hooks.builtin.classifiers import MAX_LENGTH, VOCAB_SIZE, make_tokenizer
from tests.hooks.builtin.streams import cut, replaced, said

FINE = "A heron stood at the weir and waited. Nobody hurried it. "
SHORT = "They drank tea. You idiot! "
RUDE = "The older man said you idiot before it rained. "


@pytest.fixture(autouse=True)
def mode() -> str:
    return "both, as each test says"


def by_sentence(model: Path, **more: Any) -> Classifier:
    return Classifier(model, labels=["rude"], unit="sentences", window=1, **more)


@pytest.mark.parametrize(
    ("action", "text"), [("redact", FINE + "[rude]" + FINE), ("suppress", FINE + FINE), ("terminate", FINE)]
)
def test_a_window_that_is_rude_is_taken_out(text_classifier: Path, action: str, text: str) -> None:
    guard = by_sentence(text_classifier, action=action)
    for pieces in ([FINE + RUDE + FINE], list(FINE + RUDE + FINE)):
        assert said(guard, pieces) == text


def test_nothing_of_it_gets_out_wherever_the_stream_is_cut(text_classifier: Path) -> None:
    guard = by_sentence(text_classifier)
    assert_never_released(guard, SHORT, "idiot", not_tried=WAYS)
    assert_chunk_invariant(guard, SHORT, num_random=5)


@pytest.mark.parametrize("options", [{"window": 12}, {"window": 40, "stride": 13, "unit": "characters"}])
def test_only_rude_windows_of_tokens_or_characters_are_taken_out(
    text_classifier: Path, options: dict[str, Any]
) -> None:
    guard = Classifier(text_classifier, labels=["rude"], template="*", **options)
    text = 2 * FINE + RUDE + 2 * FINE
    released = said(guard, [text])
    before, after = released.split("*")
    assert (text.startswith(before), text.endswith(after)) == (True, True)
    assert "idiot" not in released
    assert len(before) > len(FINE)
    assert len(after) > len(FINE)
    held = [judgement.num_held for judgement in play(guard, list(text)).judgements]
    assert 20 < max(held) <= guard.windows.longest
    assert_chunk_invariant(guard, SHORT, num_random=5)


def test_entities_are_cut_out_of_windows(token_classifier: Path) -> None:
    guard = Classifier(token_classifier, window=16, stride=8)
    text = "Ada Ames told Dmitri, in Lisbon, that Chloe Dunn said Osaka Tunis.  Bruno laughed"
    wanted = "[PER] told [PER], in [LOC], that [PER] said [LOC] [LOC].  [PER] laughed"
    for pieces in ([text], list(text), cut(text, range(0, 99, 7))):
        assert said(guard, pieces) == wanted
    assert said(Classifier(token_classifier, labels=["LOC"]), [text]) == (
        "Ada Ames told Dmitri, in [LOC], that Chloe Dunn said [LOC] [LOC].  Bruno laughed"
    )
    assert_chunk_invariant(guard, text[:30], num_random=5)


@pytest.mark.parametrize("trims", [True, False])
def test_words_are_told_by_tokens_of_white_space_and_of_single_bytes_as_well(trims: bool) -> None:
    alphabet = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trims)
    text = "Zoë  (Ames),\n世界 d'Or7 \n"
    row = tokenizer.encode(text)
    words = list(_words(text, row))
    found = [text[start:end] for start, end, _ in words]
    assert found == ["Zoë", "(", "Ames", ")", ",", "世界", "d", "'", "Or", "7"]
    space, *_ = (first for start, _, first in words if text[start] == "(")
    assert [row.tokens[token] for token in space] == ["Ġ", "("]
    assert all(row.offsets[token][0] <= start for start, _, first in words for token in first)


def test_entities_are_replaced_within_a_tool_calls_json(token_classifier: Path) -> None:
    guard = Classifier(token_classifier)
    written = '{"who": "\\u0041da Ames", "said": "and\\nsaid \\"Lisbon\\""}'
    assert json.loads(said(guard, list(written), "tool_call")) == {
        "who": "[PER]",
        "said": 'and\nsaid "[LOC]"',
    }


def test_a_window_that_is_too_long_for_the_model_is_judged_all_the_same(
    text_classifier: Path, token_classifier: Path
) -> None:
    long = 60 * "they drank tea "
    assert len(long.split()) > 2 * MAX_LENGTH
    judge = load_classifier(text_classifier, ["rude"], 0.5)
    tokens = load_classifier(token_classifier, None, 0.5)
    for before, after in ((long, ""), ("", long), (long, long)):
        text = f"{before}moron {after}"
        assert judge([text]) == [[Match(0, len(text), "rude")]]
        text = f"{before}Ada Ames {after}"
        assert replaced(text, tokens([text])[0]) == f"{before}[PER] {after}"
    assert judge([long]) == tokens([long]) == [[]]


WORDS = ["heron", "idiot", "Ada", "Ames", "Lisbon", "the", ",", "x" * 60, "世界", "\n", " "]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=30).map(" ".join)


@pytest.fixture(scope="module")
def both(text_classifier: Path, token_classifier: Path) -> list[ClassifierModel]:
    return [load_classifier(text_classifier, ["rude"], 0.5), load_classifier(token_classifier, None, 0.5)]


def scores(judge: ClassifierModel, texts: list[str]) -> list[list[torch.Tensor]]:
    """By text and row, without those of padding."""
    found: list[list[torch.Tensor]] = [[] for _ in texts]
    for owner, row, logits in judge._rows(texts):
        found[owner].append(logits[: sum(row.attention_mask)] if logits.dim() > 1 else logits)
    return found


@examples(20)
@given(texts=st.lists(TEXTS, min_size=1, max_size=12))
def test_a_text_has_the_same_scores_whatever_it_is_judged_with(
    both: list[ClassifierModel], texts: list[str]
) -> None:
    for judge in both:
        alone = [scores(judge, [text])[0] for text in texts]
        torch.testing.assert_close(scores(judge, texts), alone, rtol=0, atol=1e-5)


def test_a_decoder_that_has_no_token_to_pad_with_pads_with_its_last(tmp_path: Path) -> None:
    """Its last token is where it judges, wherever padding begins."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    tokenizer.pad_token, tokenizer.eos_token = None, "[SEP]"
    tokenizer.save_pretrained(tmp_path)
    small: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "vocab_size": VOCAB_SIZE,
    }
    heads: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = Qwen2Config(**small, **heads, id2label={0: "fine", 1: "rude"})
    Qwen2ForSequenceClassification(config).save_pretrained(tmp_path)
    judge = load_classifier(tmp_path, ["rude"], 0.5)
    texts = ["a heron", "stood at the weir and waited", "tea"]
    alone = [scores(judge, [text])[0] for text in texts]
    torch.testing.assert_close(scores(judge, texts), alone, rtol=0, atol=1e-5)
    assert len({round(float(one[0]), 5) for (one,) in alone}) == 3


def test_a_text_that_spells_a_special_token_hides_nothing(both: list[ClassifierModel]) -> None:
    for judge in both:
        ((_, row, _),) = judge._rows(["a [SEP] idiot [PAD][PAD]"])
        assert [row.tokens.count(token) for token in ("[CLS]", "[SEP]", "[PAD]")] == [1, 1, 0]
    assert both[0](["[PAD] you idiot [PAD]"]) != [[]]


def altered(model: Path, folder: Path, **fields: Any) -> Path:
    """The same model, with another configuration."""
    if folder != model:
        shutil.copytree(model, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    return folder


def test_a_model_with_a_score_for_each_label(text_classifier: Path, tmp_path: Path) -> None:
    folder = altered(text_classifier, tmp_path, problem_type="multi_label_classification")
    judge = load_classifier(folder, ["fine", "rude"], 0.999)
    assert [one[0].entity for one in judge([FINE, RUDE]) if one] == []  # of shares, one would be 1
    assert [one[0].entity for one in load_classifier(folder, ["fine", "rude"], 0.9)([FINE, RUDE])] == [
        "fine",
        "rude",
    ]


def test_a_model_for_regression_is_refused(text_classifier: Path, tmp_path: Path) -> None:
    folder = altered(text_classifier, tmp_path, problem_type="regression")
    with pytest.raises(ValueError, match="not probabilities"):
        load_classifier(folder, ["rude"], 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "labels are needed, some of fine, rude"),
        ({"labels": ["rood"]}, "labels are some of fine, rude, not rood"),
        ({"labels": "rude"}, "labels: Input should be a valid array"),
        ({"labels": []}, "labels: Value should have at least 1 item"),
        ({"labels": ["rude"], "threshold": 50}, "threshold: Input should be less than or equal to 1"),
        ({"labels": ["rude"], "window": MAX_LENGTH}, f"takes {MAX_LENGTH - 2} tokens, not a window of"),
        ({"labels": ["rude"], "window": 8, "stride": 9}, "stride is from 1 up to window"),
        (
            {"labels": ["rude"], "unit": "words"},
            "unit: Input should be 'characters', 'tokens' or 'sentences'",
        ),
        (
            {"labels": ["rude"], "action": "mask"},
            "action: Input should be 'redact', 'suppress', 'terminate', 'rewind' or 'suspect'",
        ),
        (
            {"labels": ["rude"], "max_batch_size": 0},
            "max_batch_size: Input should be greater than or equal to 1",
        ),
        ({"labels": ["rude"], "model": "./nowhere"}, "folder ./nowhere not found"),
    ],
)
def test_what_cannot_be_keeps_the_server_from_starting(
    text_classifier: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(HookLoadError, match=re.escape(message)):
        load_hook(HookSpec("classifier", {"model": str(text_classifier), **arguments}))


def test_an_entity_that_the_model_does_not_know_keeps_the_server_from_starting(
    token_classifier: Path,
) -> None:
    with pytest.raises(HookLoadError, match="labels are some of LOC, PER, not ORG"):
        load_hook(HookSpec("classifier", {"model": token_classifier, "labels": ["PER", "ORG"]}))


def test_a_model_that_is_no_classifier_is_refused(text_classifier: Path, tmp_path: Path) -> None:
    plain = altered(text_classifier, tmp_path / "plain", architectures=["BertModel"])
    with pytest.raises(HookLoadError, match="is BertModel, which classifies neither texts nor tokens"):
        load_hook(HookSpec("classifier", {"model": plain, "labels": ["rude"]}))


def test_a_model_whose_head_is_missing_is_refused(text_classifier: Path, tmp_path: Path) -> None:
    """transformers would judge with random weights, and warn."""
    headless = altered(text_classifier, tmp_path / "headless")
    BertForSequenceClassification.from_pretrained(text_classifier).bert.save_pretrained(headless)
    altered(headless, headless, architectures=["BertForSequenceClassification"])
    with pytest.raises(HookLoadError, match=r"has no weights for classifier.bias, classifier.weight"):
        load_hook(HookSpec("classifier", {"model": headless, "labels": ["rude"]}))


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hooks.builtin.classifier")
    monkeypatch.delitem(sys.modules, "hooks.builtin.classifier_models.classifiers")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(HookLoadError, match=re.escape("install the extra 'engine' of weir-proxy")):
        load_hook(HookSpec("classifier", {"model": "x"}))


@pytest.mark.parametrize("how", ["raises", "gives no numbers"])
async def test_a_model_that_fails_fails_its_own_request_closed(
    text_classifier: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    forward = BertForSequenceClassification.forward
    (heron,) = AutoTokenizer.from_pretrained(text_classifier).encode("heron", add_special_tokens=False)

    def fails(self: Any, input_ids: torch.Tensor, **more: Any) -> Any:
        result = forward(self, input_ids=input_ids, **more)
        if (input_ids == heron).any():
            if how == "raises":
                raise RuntimeError("out of memory")
            result.logits[:] = torch.nan
        return result

    monkeypatch.setattr(BertForSequenceClassification, "forward", fails)
    pipeline = pipeline_of(by_sentence(text_classifier))
    texts = ["they drank tea. ", "a heron. ", "and waited. "]
    results = await asyncio.gather(
        *(guard_all(pipeline, make_deltas([text])) for text in texts), return_exceptions=True
    )
    assert isinstance(results[1], HookError)
    assert [text_of(cast(Any, results[i])) for i in (0, 2)] == [texts[0], texts[2]]
