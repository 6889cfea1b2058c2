"""vLLM's fields `allowed_token_ids` and `bad_words`, which need no registered processor."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.core.input_processor import InputProcessor
from engine.protocol import EngineError, RequestError
from tests.engine.conftest import completion

PROMPTS = [(5, i) for i in range(6, 22)]


@pytest.fixture(scope="module")
def processor(tiny_core: Callable[..., Any]) -> InputProcessor:
    found: InputProcessor = tiny_core().processor
    return found


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@pytest.mark.parametrize("n", [1, 2])
async def test_only_allowed_tokens_come(engine: Any, temperature: float, n: int) -> None:  # contract 7.5
    allowed = [11, 22, 33, 1]
    sampling = {"temperature": temperature, "seed": 3, "max_tokens": 12, "n": n}
    biased = {"logit_bias": {7: 100.0}}
    answers = await engine.complete(*PROMPTS, **sampling, **biased, extra={"allowed_token_ids": allowed})
    ids = {i for answer in answers for i in answer.ids}
    assert ids <= set(allowed)
    assert len(ids) > 1


async def test_bad_words_never_come(engine: Any) -> None:
    sampling = {"temperature": 1.0, "seed": 5, "max_tokens": 40, "ignore_eos": True}
    free = await engine.complete(*PROMPTS, **sampling)
    alphabet = sorted({c for answer in free for c in answer.text if c.isascii() and c.isalpha()})
    assert alphabet
    kept = await engine.complete(*PROMPTS, **sampling, extra={"bad_words": alphabet})
    single = {f"{space}{letter}" for letter in alphabet for space in ("", " ")}
    assert single & {token.text for answer in free for token in answer.tokens}
    assert not single & {token.text for answer in kept for token in answer.tokens}


async def test_limits_that_leave_no_token_fail_the_request_closed(engine: Any) -> None:  # contract 7.5
    (first, second) = engine.tokenizer.encode("the lazy dog", add_special_tokens=False)[:2]
    word = engine.tokenizer.decode((first, second))
    extra = {"allowed_token_ids": [second], "bad_words": [word]}
    with pytest.raises(EngineError, match="logits processor failed"):
        await engine.complete((5, first), max_tokens=2, extra=extra)


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": 5}, "allowed_token_ids"),
        ({"allowed_token_ids": [5, 400]}, "allowed_token_ids[1]"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids[0]"),
        ({"allowed_token_ids": ["5"]}, "allowed_token_ids[0]"),
        ({"bad_words": "fox"}, "bad_words"),
        ({"bad_words": [5]}, "bad_words[0]"),
        ({"bad_words": [" "]}, "bad_words"),
        ({"bad_words": ["x" * 1001]}, "bad_words[0]"),
        ({"bad_words": ["a\ud800"]}, "bad_words[0]"),
    ],
)
def test_a_wrong_limit_is_refused_by_name(
    extra: dict[str, Any], param: str, processor: InputProcessor
) -> None:
    with pytest.raises(RequestError) as caught:
        processor.process(completion("hello", extra=extra))
    assert (caught.value.param, caught.value.status) == (param, 400)
    assert param in str(caught.value)


def test_words_that_forbid_all_allowed_tokens_are_refused(processor: InputProcessor) -> None:
    (a,) = processor.tokenizer.encode("a", add_special_tokens=False)
    with pytest.raises(RequestError, match="leaves none") as caught:
        processor.process(completion("hello", extra={"allowed_token_ids": [a], "bad_words": ["a"]}))
    assert caught.value.param == "bad_words"


def test_a_least_length_that_forbids_all_allowed_tokens_is_refused(
    processor: InputProcessor,
) -> None:  # contract 7.5
    """No token could be drawn: the caller is at fault."""
    end = processor.tokenizer.eos_token_id
    (a,) = processor.tokenizer.encode("a", add_special_tokens=False)
    fields: dict[str, Any] = {"stop_token_ids": (a,), "max_tokens": 5}
    limited: dict[str, Any] = {"extra": {"allowed_token_ids": [a, end]}}
    processor.process(completion("hello", **fields, **limited))
    processor.process(completion("hello", min_tokens=2, max_tokens=5, **limited))
    with pytest.raises(RequestError, match="forbids each") as caught:
        processor.process(completion("hello", min_tokens=2, **fields, **limited))
    assert caught.value.param == "min_tokens"


def test_an_empty_list_of_words_is_no_limit(processor: InputProcessor) -> None:
    (seq,) = processor.process(completion("hello", extra={"bad_words": []})).sequences
    assert not seq.sampling.processors


@pytest.mark.parametrize("extra", [{"allowed_token_ids": [5, 6]}, {"bad_words": ["fox"]}])
async def test_beam_search_refuses_limits_by_name(extra: dict[str, Any], engine: Any) -> None:  # contract 7.7
    with pytest.raises(RequestError, match="cannot be combined with") as caught:
        await engine.complete((5, 6), n=2, extra={"use_beam_search": True, **extra})
    assert caught.value.param in extra
