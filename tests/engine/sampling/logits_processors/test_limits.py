"""vLLM's fields `allowed_token_ids` and `bad_words`, which need no registered processor."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.core.input_processor import InputProcessor
from engine.protocol import RequestError
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


async def test_limits_that_leave_no_token_fail_the_request_closed(
    engine: Any, caplog: pytest.LogCaptureFixture
) -> None:  # contract 7.5
    (first, second) = engine.tokenizer.encode("the lazy dog", add_special_tokens=False)[:2]
    word = engine.tokenizer.decode((first, second))
    extra = {"allowed_token_ids": [second], "bad_words": [word]}
    with pytest.raises(RequestError, match="allowed_token_ids and bad_words leave no token") as caught:
        await engine.complete((5, first), max_tokens=2, extra=extra)
    assert caught.value.param == "bad_words"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("after", [0, 3])
async def test_limits_that_leave_no_token_later_fail_the_request_closed(
    engine: Any, after: int, caplog: pytest.LogCaptureFixture
) -> None:  # contract 7.5
    """The caller is at fault, whenever it is found. The texts that came before are delivered."""
    (letter,) = engine.tokenizer.encode("q", add_special_tokens=False)
    extra = {"allowed_token_ids": [letter], "guided_regex": "q" * after + "[zx]"}
    deltas: list[Any] = []
    with pytest.raises(RequestError) as caught:
        async for delta in engine.generate(completion((5, 6), max_tokens=9, extra=extra)):
            deltas.append(delta)
    assert str(caught.value).startswith("guided_regex and allowed_token_ids leave no token")
    assert caught.value.param == "allowed_token_ids"
    assert "".join(delta.text for delta in deltas) == "q" * after
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert engine.stats().kv_blocks_used == 0


async def test_penalties_that_leave_no_token_are_the_callers_fault(engine: Any) -> None:
    """A number beyond the range of floats takes the only allowed token away."""
    extreme: dict[str, Any] = {"logit_bias": {22: -1e30}, "repetition_penalty": 1e30, "max_tokens": 4}
    with pytest.raises(RequestError, match="sampling parameters leave no token"):
        await engine.complete((5, 22), **extreme, ignore_eos=True, extra={"allowed_token_ids": [22]})


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
    with pytest.raises(RequestError, match="allowed_token_ids and bad_words leave no token") as caught:
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
    with pytest.raises(RequestError, match="allowed_token_ids and min_tokens leave no token") as caught:
        processor.process(completion("hello", min_tokens=2, **fields, **limited))
    assert caught.value.param == "min_tokens"


SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}


@pytest.mark.parametrize(
    ("grammar", "name", "first"),
    [
        ({"guided_choice": ["x"]}, "guided_choice", "x"),
        ({"guided_regex": "x[yz]"}, "guided_regex", "x"),
        ({"structured_outputs": {"grammar": 'root ::= "x"'}}, "structured_outputs.grammar", "x"),
        ({"response_format": {"type": "json_object"}}, "response_format", "{"),
        ({"response_format": SCHEMA}, "response_format.json_schema.schema", "{"),
    ],
)
def test_a_grammar_that_other_limits_leave_no_first_token_is_refused(
    grammar: dict[str, Any], name: str, first: str, processor: InputProcessor
) -> None:
    """Contract 7.5: the caller is at fault, and each field is named."""
    (token_id,) = processor.tokenizer.encode(first, add_special_tokens=False)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"allowed_token_ids": [token_id + 1]}, "allowed_token_ids"),
        ({"bad_words": [first, f"{first}}}", f'{first}"']}, "bad_words"),
        ({"allowed_token_ids": [token_id, token_id + 1], "bad_words": [first]}, "bad_words"),
    ]
    for limits, param in wrong:
        with pytest.raises(RequestError) as caught:
            processor.process(completion("hello", extra={**grammar, **limits}))
        names = " and ".join([name, *limits])
        assert str(caught.value) == f"{names} leave no token that may come next."
        assert (caught.value.param, caught.value.status) == (param, 400)
    processor.process(completion("hello", extra={**grammar, "allowed_token_ids": [token_id]}))
    processor.process(completion("hello", extra={**grammar, "bad_words": ["fox"]}))


def test_an_empty_list_of_words_is_no_limit(processor: InputProcessor) -> None:
    (seq,) = processor.process(completion("hello", extra={"bad_words": []})).sequences
    assert not seq.sampling.processors


@pytest.mark.parametrize("extra", [{"allowed_token_ids": [5, 6]}, {"bad_words": ["fox"]}])
async def test_beam_search_refuses_limits_by_name(extra: dict[str, Any], engine: Any) -> None:  # contract 7.7
    with pytest.raises(RequestError, match="cannot be combined with") as caught:
        await engine.complete((5, 6), n=2, extra={"use_beam_search": True, **extra})
    assert caught.value.param in extra
