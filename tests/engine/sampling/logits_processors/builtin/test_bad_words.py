"""Bad words never come in the tokens that the tokenizer gives them."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from engine.protocol.options import LogitsProcessorConfig
from engine.sampling.logits_processors import Context
from engine.sampling.logits_processors.load import ParamsError
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.sampling.logits_processors.builtin.rows import ids_of, masked_by, registered_as
from tests.engine.sampling.logits_processors.processors import named


def test_the_last_token_of_a_bad_word_is_masked(built: Callable[..., Any], context: Context) -> None:
    words = ["the lazy dog", "quick"]
    processor = built("bad_words", {"bad_words": words})
    inside, at_start = ids_of(context, " the lazy dog"), ids_of(context, "the lazy dog")
    singles = {i for word in ("quick", " quick") if len(ids := ids_of(context, word)) == 1 for i in ids}
    assert singles, "one of the words has a single token"
    assert len(at_start) > 1
    assert set(masked_by(processor, [5])) == singles
    for ids in (inside, at_start):
        assert ids[-1] in masked_by(processor, [5, *ids[:-1]])
        assert ids[-1] not in set(masked_by(processor, [5, *ids[:-1], 6])) - singles
        assert ids[-1] not in set(masked_by(processor, [5, *ids[1:-1]])) - singles


def test_a_bad_word_that_the_model_cannot_say_is_ignored(context: Context) -> None:
    (last,) = {ids_of(context, text)[-1] for text in ("the quick", " the quick")}
    narrow = Context(context.tokenizer, last, (1,), context.device)
    registered = registered_as("bad_words", narrow)
    processor = registered.build(params=registered.validate({"bad_words": ["the quick"]}))
    assert last not in masked_by(processor, [5, *ids_of(context, " the quick")[:-1]])


def test_a_bad_word_without_tokens_is_refused(context: Context) -> None:
    class Deaf:
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return []

    deaf = Context(Deaf(), VOCAB_SIZE, (1,), context.device)  # type: ignore[arg-type]
    with pytest.raises(ParamsError, match="has no tokens for 'fox'"):
        registered_as("bad_words", deaf).validate({"bad_words": ["fox"]})


@pytest.mark.parametrize("temperature", [0.0, 1.5])
async def test_the_tokens_of_a_bad_word_never_come(temperature: float, start_engine: Any) -> None:
    engine = await start_engine(logits_processors=(LogitsProcessorConfig("bad_words", "bad_words"),))
    sampling = {"temperature": temperature, "seed": 5, "max_tokens": 40, "ignore_eos": True}
    prompts = [(5, i) for i in range(6, 30)]
    free = await engine.complete(*prompts, **sampling)
    pairs = [pair for answer in free for pair in pairwise(answer.ids)]
    words = {engine.tokenizer.decode(pair).strip() for pair in pairs}
    words = {word for word in words if word.isprintable() and word and "\ufffd" not in word}
    encoded = {w: tuple(engine.tokenizer.encode(w, add_special_tokens=False)) for w in words}
    bad = {word: ids for word, ids in encoded.items() if ids in pairs}
    assert bad
    processors = named(bad_words={"bad_words": list(bad)})
    kept = await engine.complete(*prompts, logits_processors=processors, **sampling)
    assert not {pair for answer in kept for pair in pairwise(answer.ids)}.intersection(bad.values())
