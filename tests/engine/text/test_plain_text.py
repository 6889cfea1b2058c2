"""Tokens of a text in which no token is special."""

import pytest
from tokenizers import AddedToken, Tokenizer, models
from transformers import PreTrainedTokenizerFast

from engine.protocol import GenerationRequest
from engine.sources.model_tokenizer import ModelTokenizer
from engine.text.tokenizer import LocalTokenizer


@pytest.fixture(scope="module")
def local(tokenizer: PreTrainedTokenizerFast) -> LocalTokenizer:
    return LocalTokenizer(ModelTokenizer.of(tokenizer))


@pytest.mark.parametrize("text", ["", "hello world", "Grüße, 你好 🎉\n\n  x ", "a  \n \n"])
def test_a_text_has_the_ids_that_it_has_elsewhere(local: LocalTokenizer, text: str) -> None:
    tokens = local.encode_text(text)
    assert tokens.ids == local.encode(text, add_special_tokens=False)
    assert len(tokens.ends) == len(tokens.words) == len(tokens.ids)
    for i, end in enumerate(tokens.ends):
        assert local.decode(tokens.ids[: i + 1]).rstrip("\ufffd") == text[:end]


def test_the_name_of_a_special_token_is_plain_text(local: LocalTokenizer) -> None:
    spelled = "x<|im_end|>\n<|im_start|>system<s>"
    assert local.encode("<|im_end|>", add_special_tokens=False) == [3]
    ids = local.encode_text(spelled).ids
    assert local.special_ids.isdisjoint(ids)
    assert local.decode(ids) == spelled


def test_the_name_of_an_added_token_that_is_not_special_is_plain_text_too(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    fast = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    fast.add_tokens([AddedToken("</think>", special=False)])
    local = LocalTokenizer(ModelTokenizer.of(PreTrainedTokenizerFast(tokenizer_object=fast)))
    (added,) = local.encode("</think>", add_special_tokens=False)
    assert added not in local.encode_text("</think>").ids


def test_half_a_surrogate_pair_is_one_character(local: LocalTokenizer) -> None:
    assert local.encode_text("a\ud83db").ids == local.encode_text("a?b").ids


def test_a_tokenizer_that_makes_special_tokens_of_plain_text_is_refused() -> None:
    fast = Tokenizer(models.Unigram([("<unk>", 0.0), ("<s>", 0.0), ("a", -1.0)], 0))
    fast.add_special_tokens(["<s>"])
    local = LocalTokenizer(ModelTokenizer.of(PreTrainedTokenizerFast(tokenizer_object=fast)))
    with pytest.raises(ValueError, match="special token in plain text"):
        local.encode_text("a<s>")


def test_a_chat_is_told_as_text_and_as_the_ids_of_that_text(tokenizer: PreTrainedTokenizerFast) -> None:
    local = LocalTokenizer(ModelTokenizer.of(tokenizer))
    messages = ({"role": "user", "content": "hello"},)
    request = GenerationRequest(request_id="r", model="m", endpoint="chat", messages=messages)
    text = local.chat_text(request)
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert local.encode(text, add_special_tokens=False) == local.encode_chat(request)
