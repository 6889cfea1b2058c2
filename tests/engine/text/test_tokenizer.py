"""The tokenizer of a model: ids, texts and bytes."""

import sys
import threading
from typing import Any, cast

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from engine.protocol import RequestError
from engine.sources.model_tokenizer import ModelTokenizer
from engine.text.tokenizer import LocalTokenizer
from tests.helpers import make_request
from tests.processes import WAIT_LIMIT


@pytest.fixture(scope="module")
def local(tokenizer: PreTrainedTokenizerFast) -> LocalTokenizer:
    return LocalTokenizer(ModelTokenizer.of(tokenizer))


def test_encode_and_decode_are_inverse(local: LocalTokenizer) -> None:
    for text in ("hello world", "Grüße, 你好 🎉", "<|im_start|>user\n", ""):
        assert local.decode(local.encode(text)) == text


def test_the_bytes_of_all_tokens_are_the_text_s(local: LocalTokenizer) -> None:
    text = "Grüße, 你好 🎉\t\0 hello<|im_end|>"
    assert b"".join(map(local.raw, local.encode(text))) == text.encode()
    assert local.raw(2) == b"<|im_start|>"
    assert local.raw(123456) == b""


def test_bytes_of_metaspace_and_byte_tokens() -> None:
    vocab = {"▁hello": 0, "<0xE4>": 1, "world": 2, "<0x>": 3}
    fast = Tokenizer(models.WordLevel(vocab, "world"))
    fast.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    local = LocalTokenizer(ModelTokenizer.of(PreTrainedTokenizerFast(tokenizer_object=fast)))
    assert [local.raw(i) for i in range(4)] == [b" hello", b"\xe4", b"world", b"<0x>"]


def test_a_lone_surrogate_is_refused(local: LocalTokenizer) -> None:
    with pytest.raises(RequestError, match="Unicode"):
        local.encode("a\ud800b")


@pytest.fixture
def limited(tokenizer: PreTrainedTokenizerFast) -> LocalTokenizer:
    limited = LocalTokenizer(ModelTokenizer.of(tokenizer))
    limited.max_tokens = 10
    return limited


def test_a_text_with_too_many_bytes_is_not_tokenized(limited: LocalTokenizer) -> None:
    cast(Any, limited).fast = None  # nothing can tokenize
    most = limited.max_prompt_bytes
    assert most == 10 * len("<|im_start|>"), "the longest token"
    for text in ("a" * (most + 1), "é" * (most // 2 + 1)):
        with pytest.raises(RequestError, match=f"is 10 tokens. However, .* than {most} bytes") as caught:
            limited.encode(text)
        assert (caught.value.param, caught.value.code) == ("prompt", "context_length_exceeded")
    with pytest.raises(RequestError) as caught:
        limited.encode_chat(make_request(messages=({"role": "user", "content": "a" * most},)))
    assert (caught.value.param, caught.value.code) == ("messages", "context_length_exceeded")


def test_no_token_has_more_bytes_than_the_bound_says(limited: LocalTokenizer) -> None:
    assert max(len(limited.raw(token_id)) for token_id in range(400)) * 10 == limited.max_prompt_bytes
    longest = "<|im_start|>" * 10
    assert len(limited.encode(longest)) == 10


def test_a_normalizer_may_shrink_a_text() -> None:
    fast = Tokenizer(models.WordLevel({"ab": 0, "x": 1}, "x"))
    fast.normalizer = normalizers.NFKC()
    limited = LocalTokenizer(ModelTokenizer.of(PreTrainedTokenizerFast(tokenizer_object=fast)))
    limited.max_tokens = 1
    assert limited.encode("𝐚𝐛") == [0]


@pytest.mark.parametrize("method", ["encode", "decode"])
def test_other_threads_run_while_a_long_text_is_read(local: LocalTokenizer, method: str) -> None:
    argument: Any = "hello world " * 50_000 if method == "encode" else [300] * 500_000
    may_begin = threading.Lock()
    is_done = False
    seen: list[bool] = []

    def look() -> None:
        with may_begin:
            seen.append(is_done)

    may_begin.acquire()
    thread = threading.Thread(target=look)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # no thread has to give way to another one
    try:
        may_begin.release()
        getattr(local, method)(argument)
        is_done = True
    finally:
        sys.setswitchinterval(interval)
    thread.join(WAIT_LIMIT)
    assert seen == [False]
