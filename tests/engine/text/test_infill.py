"""Prompts with `suffix`: each family's special tokens around the two texts."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
from transformers import PreTrainedTokenizerFast

from engine.core.input_processor import InputProcessor
from engine.protocol import RequestError
from engine.sources.model_tokenizer import ModelTokenizer
from engine.text.tokenizer import LocalTokenizer
from hooks.prompts.texts import prompt_texts
from tests.engine.conftest import completion

QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
FAMILIES = {
    "Qwen Coder": (QWEN, "<|fim_prefix|>ab<|fim_suffix|>cd<|fim_middle|>"),
    "StarCoder": (
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
        "<fim_prefix>ab<fim_suffix>cd<fim_middle>",
    ),
    "SantaCoder": (
        ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
        "<fim-prefix>ab<fim-suffix>cd<fim-middle>",
    ),
    "Code Llama": (("▁<PRE>", "▁<SUF>", "▁<MID>"), "▁<PRE>ab▁<SUF>cd▁<MID>"),
    "DeepSeek Coder": (
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
        "<｜fim▁begin｜>ab<｜fim▁hole｜>cd<｜fim▁end｜>",
    ),
    "Codestral": (("[PREFIX]", "[SUFFIX]"), "[SUFFIX]cd[PREFIX]ab"),
}


def with_tokens(fast: Tokenizer, *tokens: str) -> LocalTokenizer:
    fast = copy.deepcopy(fast)
    fast.add_special_tokens([AddedToken(token, special=True) for token in tokens])
    return LocalTokenizer(ModelTokenizer.of(PreTrainedTokenizerFast(tokenizer_object=fast)))


@pytest.fixture(scope="module")
def processor(tiny_core: Callable[..., Any], fast_tokenizer: Tokenizer) -> InputProcessor:
    """Of a model that fills in the middle."""
    tokenizer = with_tokens(fast_tokenizer, *QWEN, "<|file_sep|>")
    tokenizer.max_tokens = 512
    return replace(tiny_core().processor, tokenizer=tokenizer, vocab_size=tokenizer.fast.get_vocab_size())


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_has_its_own_prompt(family: str, fast_tokenizer: Tokenizer) -> None:
    tokens, prompt = FAMILIES[family]
    local = with_tokens(fast_tokenizer, *tokens)
    ids = local.encode_infill("ab", "cd")
    assert local.decode(ids) == prompt
    assert {local.raw(i).decode() for i in ids} >= set(tokens), "the markers are tokens"


def test_a_prefix_of_token_ids_is_taken_as_it_is(fast_tokenizer: Tokenizer) -> None:
    local = with_tokens(fast_tokenizer, *QWEN)
    assert local.encode_infill(tuple(local.encode("ab")), "cd") == local.encode_infill("ab", "cd")


def test_a_model_without_such_tokens_refuses_a_suffix(tiny_core: Callable[..., Any]) -> None:
    with pytest.raises(RequestError, match="no tokens for a text between") as caught:
        tiny_core().processor.process(completion("ab", extra={"suffix": "cd"}))
    assert (caught.value.param, caught.value.status) == ("suffix", 400)


def test_a_suffix_begins_with_no_space_of_the_tokenizers_own() -> None:
    pieces = ["<unk>", "<s>", "▁", "a", "b", "▁a", "▁b", "☺", "▁☺"]
    fast = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, [("▁", "a"), ("▁", "b"), ("▁", "☺")]))
    fast.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    fast.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    fast.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    local = with_tokens(fast, "▁<PRE>", "▁<SUF>", "▁<MID>")
    ids = [local.fast.id_to_token(i) for i in local.encode_infill("a", "b")]
    assert ids == ["<s>", "▁<PRE>", "▁a", "▁<SUF>", "b", "▁<MID>"]
    spaced = local.encode_infill("a", " b", add_special_tokens=False)
    assert [local.fast.id_to_token(i) for i in spaced][:4] == ["▁<PRE>", "▁a", "▁<SUF>", "▁"]


def test_the_middle_ends_where_another_part_would_begin(processor: InputProcessor) -> None:
    def ends(**fields: Any) -> frozenset[int]:
        (seq,) = processor.process(completion("ab", **fields)).sequences
        return seq.sampling.eos_token_ids

    plain, ids = ends(), {processor.tokenizer.fast.token_to_id(t) for t in (*QWEN, "<|file_sep|>")}
    assert ends(extra={"suffix": "cd"}) == plain | ids
    assert ends(extra={"suffix": "cd"}, ignore_eos=True) == frozenset()
    assert ends(extra={"suffix": ""}) == plain


def test_each_prompt_and_output_gets_the_suffix(processor: InputProcessor) -> None:
    group = processor.process(completion("ab", "b", n=2, extra={"suffix": "cd"}))
    texts = [processor.tokenizer.decode(seq.prompt_token_ids) for seq in group.sequences]
    assert texts == [f"<|fim_prefix|>{p}<|fim_suffix|>cd<|fim_middle|>" for p in ("ab", "ab", "b", "b")]
    assert group.num_prompt_tokens == sum(len(seq.prompt_token_ids) for seq in group.sequences[::2])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True}, "echo"),
        ({"extra": {"truncate_prompt_tokens": 5}}, "truncate_prompt_tokens"),
        ({"extra": {"suffix": 5}}, "suffix"),
        ({"extra": {"suffix": "a\ud800"}}, "suffix"),
        ({"extra": {"suffix": "ab" * 100_000}}, "suffix"),
    ],
)
def test_a_wrong_or_contradicted_suffix_is_refused(
    fields: dict[str, Any], param: str, processor: InputProcessor
) -> None:
    extra = {"suffix": "cd", **fields.pop("extra", {})}
    with pytest.raises(RequestError) as caught:
        processor.process(completion("ab", extra=extra, **fields))
    assert caught.value.param == param


def test_hooks_on_prompts_see_the_suffix() -> None:  # contract 8.1
    request = completion("ab", extra={"suffix": "a secret"})
    assert ("a secret", "extra.suffix") in [(text.text, text.place) for text in prompt_texts(request)]
