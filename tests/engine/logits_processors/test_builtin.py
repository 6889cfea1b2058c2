"""The logits processors that ship, one by one; what they do in a batch is in test_engine."""

import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import NoRepeatNGramLogitsProcessor, PreTrainedTokenizerFast

from engine.config import LogitsProcessorConfig
from engine.logits_processors import Context, TokenIds
from engine.logits_processors.builtin.thinking_budget import PRESETS
from engine.logits_processors.builtin.watermark import GreenList
from engine.logits_processors.load import (
    ParamsError,
    ProcessorLoadError,
    RegisteredProcessor,
    find_processors,
    register,
)
from engine.protocol import RequestError
from engine.text.tokenizer import LocalTokenizer
from tests.engine.conftest import SPECIAL, VOCAB_SIZE, completion
from tests.engine.logits_processors.processors import named

START, END = SPECIAL.index("<|im_start|>"), SPECIAL.index("<|im_end|>")


@pytest.fixture(scope="module")
def context(tokenizer: PreTrainedTokenizerFast) -> Context:
    return Context(LocalTokenizer(tokenizer), VOCAB_SIZE, (1,), torch.device("cpu"))


@pytest.fixture
def built(context: Context) -> Callable[..., Any]:
    """`built("bad_words", {"bad_words": [...]}, **args)`: one, as a sequence gets it."""

    def make(name: str, params: dict[str, Any] | None = None, **args: Any) -> Any:
        registered = registered_as(name, context, **args)
        return registered.build(params=registered.validate(params or {}))

    return make


def registered_as(name: str, context: Context, **args: Any) -> RegisteredProcessor:
    ((config, cls),) = find_processors([LogitsProcessorConfig(name, name, args)])
    return register(config, cls, 0, context)


def row(seed: int = 0) -> Tensor:
    return torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(seed))


def masked_by(processor: Any, ids: list[int], num_prompt_tokens: int = 1) -> list[int]:
    """What is masked; all else is left as it is."""
    logits, before = row(), row()
    processor(TokenIds(ids, num_prompt_tokens), logits)
    masked = logits.isneginf()
    assert torch.equal(logits[~masked], before[~masked])
    return masked.nonzero().flatten().tolist()


def left_by(processor: Any, ids: list[int], num_prompt_tokens: int = 1) -> list[int]:
    """What is not masked."""
    masked = set(masked_by(processor, ids, num_prompt_tokens))
    return [i for i in range(VOCAB_SIZE) if i not in masked]


def test_a_forced_sequence_comes_and_then_the_end(built: Callable[..., Any]) -> None:
    for params, end in (({}, 1), ({"eos_token_id": 77}, 77)):
        processor = built("forced_sequence", {"token_ids": [40, 50], **params})
        ids = [5, 6, 7]
        for expected in (40, 50, end, end):
            assert left_by(processor, ids, 3) == [expected]
            ids.append(expected)


def test_a_forced_sequence_needs_an_end(context: Context) -> None:
    endless = Context(context.tokenizer, VOCAB_SIZE, (), context.device)
    registered = registered_as("forced_sequence", endless)
    with pytest.raises(ValueError, match="no end-of-sequence token"):
        registered.build(params=registered.validate({"token_ids": [4]}))


def test_disallowed_and_allowed_tokens_are_each_request_s_own(built: Callable[..., Any]) -> None:
    for ids in ([3], [7, 9, 399]):
        assert masked_by(built("disallowed_tokens", {"token_ids": ids}), [5]) == ids
        assert left_by(built("allowed_tokens", {"token_ids": ids}), [5]) == ids


def ids_of(context: Context, text: str) -> list[int]:
    return context.tokenizer.encode(text, add_special_tokens=False)


def test_a_bad_word_is_stopped_at_its_last_token(built: Callable[..., Any], context: Context) -> None:
    words = ["the lazy dog", "quick"]
    processor = built("bad_words", {"bad_words": words})
    inside, at_start = ids_of(context, " the lazy dog"), ids_of(context, "the lazy dog")
    singles = {i for word in ("quick", " quick") if len(ids := ids_of(context, word)) == 1 for i in ids}
    assert singles, "one of the words is one token"
    assert len(at_start) > 1
    assert set(masked_by(processor, [5])) == singles
    for ids in (inside, at_start):
        assert ids[-1] in masked_by(processor, [5, *ids[:-1]])
        assert ids[-1] not in set(masked_by(processor, [5, *ids[:-1], 6])) - singles
        assert ids[-1] not in set(masked_by(processor, [5, *ids[1:-1]])) - singles


def test_a_bad_word_that_the_model_cannot_say_is_passed_over(context: Context) -> None:
    (last,) = {ids_of(context, text)[-1] for text in ("the quick", " the quick")}
    narrow = Context(context.tokenizer, last, (1,), context.device)
    registered = registered_as("bad_words", narrow)
    processor = registered.build(params=registered.validate({"bad_words": ["the quick"]}))
    assert last not in masked_by(processor, [5, *ids_of(context, " the quick")[:-1]])


def test_a_bad_word_that_is_no_token_at_all_is_refused(context: Context) -> None:
    class Deaf:
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return []

    deaf = Context(Deaf(), VOCAB_SIZE, (1,), context.device)  # type: ignore[arg-type]
    with pytest.raises(ParamsError, match="has no tokens for 'fox'"):
        registered_as("bad_words", deaf).validate({"bad_words": ["fox"]})


@pytest.mark.parametrize("temperature", [0.0, 1.5])
async def test_no_bad_word_s_tokens_come(temperature: float, start_engine: Any) -> None:
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


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_no_ngram_comes_twice_as_transformers_has_it(size: int, built: Callable[..., Any]) -> None:
    rng = random.Random(size)
    for _ in range(30):
        processor = built("no_repeat_ngram", {"ngram_size": size, "window_size": 10**6})
        ids: list[int] = []
        for _ in range(40):
            ids.append(rng.randrange(5))
            theirs = NoRepeatNGramLogitsProcessor(size)(torch.tensor([ids]), row()[None].clone())
            assert masked_by(processor, ids) == theirs[0].isneginf().nonzero().flatten().tolist()


def test_an_ngram_s_window_and_whitelist(built: Callable[..., Any]) -> None:
    """Against a plain search, as DeepSeek-OCR has it."""
    rng = random.Random(0)
    for _ in range(200):
        size, window = rng.randint(1, 4), rng.randint(1, 25)
        whitelist = rng.sample(range(5), rng.randint(0, 2))
        params = {"ngram_size": size, "window_size": window, "whitelist_token_ids": whitelist}
        processor = built("no_repeat_ngram", params)
        ids: list[int] = []
        for _ in range(rng.randint(1, 40)):
            ids.append(rng.randrange(5))
            last = ids[len(ids) - size + 1 :]
            begins = range(max(0, len(ids) - window), len(ids) - size + 1)
            banned = {ids[i + size - 1] for i in begins if ids[i : i + size - 1] == last}
            if len(ids) >= size - 1:
                assert masked_by(processor, ids) == sorted(banned - set(whitelist))


@pytest.mark.parametrize("name", ["no_repeat_ngram", "thinking_budget"])
def test_what_a_processor_has_read_is_forgotten_where_the_sequence_got_shorter(
    name: str, built: Callable[..., Any]
) -> None:
    rng = random.Random(1)
    params: dict[str, Any] = {
        "no_repeat_ngram": {"ngram_size": 2, "window_size": 9},
        "thinking_budget": {"thinking_budget": 4},
    }[name]
    args = THINKING if name == "thinking_budget" else {}
    lasting, ids = built(name, params, **args), [5, START]
    for _ in range(300):
        ids = [*ids[: rng.randint(2, len(ids))], rng.choice([4, 5, START, END, 6])]
        fresh = built(name, params, **args)
        for _ in range(2):
            assert masked_by(lasting, ids, 2) == masked_by(fresh, ids, 2)


# The thinking budget.

THINKING = {"start": "<|im_start|>", "end": "<|im_end|>"}


@pytest.fixture(scope="module")
def newline(context: Context) -> int:
    (found,) = ids_of(context, "\n")
    return found


def drawn(processor: Any, prompt: list[int], wants: list[int]) -> list[int]:
    """An output, of which the model wants these tokens one after the other, whatever it got before."""
    ids = list(prompt)
    for wanted in wants:
        logits = torch.zeros(VOCAB_SIZE)
        logits[wanted] = 9.0
        processor(TokenIds(ids, len(prompt)), logits)
        ids.append(int(logits.argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("prompt", [[5, START], [START, 8, END, 7, START]])
@pytest.mark.parametrize("budget", [0, 1, 3])
def test_thinking_ends_with_a_new_line_and_the_end_once(
    budget: int, prompt: list[int], built: Callable[..., Any], newline: int
) -> None:
    processor = built("thinking_budget", {"thinking_budget": budget}, **THINKING)
    output = drawn(processor, prompt, [30] * 9)
    assert output == [*[30] * budget, newline, END, *[30] * (7 - budget)]


def test_a_new_line_that_is_there_is_not_forced_again(built: Callable[..., Any], newline: int) -> None:
    processor = built("thinking_budget", {"thinking_budget": 2}, **THINKING)
    assert drawn(processor, [START], [30, newline, 31, 32]) == [30, newline, END, 32]
    processor = built("thinking_budget", {"thinking_budget": 0}, **THINKING)
    assert drawn(processor, [START, newline], [31, 32]) == [END, 32]


def test_what_the_prompt_has_thought_counts_and_its_earlier_turns_do_not(
    built: Callable[..., Any], newline: int
) -> None:
    prompt = [START, 8, 8, 8, 8, 8, END, 7, START, 30, 30]
    processor = built("thinking_budget", {"thinking_budget": 3}, **THINKING)
    assert drawn(processor, prompt, [30] * 4) == [30, newline, END, 30]
    processor = built("thinking_budget", {"thinking_budget": 3}, **THINKING)
    assert drawn(processor, prompt[:8], [30] * 9) == [30] * 9, "no block is open"


def test_thinking_that_ends_in_time_is_left_alone(built: Callable[..., Any]) -> None:
    processor = built("thinking_budget", {"thinking_budget": 3}, **THINKING)
    wants = [30, 31, END, 40, 41, 42, 43, 44]
    assert drawn(processor, [START], wants) == wants


def test_thinking_again_gets_no_new_budget(built: Callable[..., Any], newline: int) -> None:
    processor = built("thinking_budget", {"thinking_budget": 2}, **THINKING)
    output = drawn(processor, [START], [30, 30, 30, 30, START, 31, 31, 40, START, 31, 31, 41])
    assert output == [30, 30, newline, END, START, newline, END, 40, START, newline, END, 41]
    processor = built("thinking_budget", {"thinking_budget": 3}, **THINKING)
    output = drawn(processor, [5], [START, 30, END, 40, START, 31, START, 31, 31, 40])
    assert output == [START, 30, END, 40, START, 31, START, newline, END, 40], "what was left of it"


@pytest.mark.parametrize("model", PRESETS)
def test_a_preset_s_markers_are_looked_up_in_the_model_s_own_tokenizer(model: str, context: Context) -> None:
    ids = {text: 200 + i for i, text in enumerate((*PRESETS[model], "\n"))}

    class WithMarkers:
        """Knows the model's markers by ids of its own, and encodes a new line as SentencePiece does."""

        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return [ids[text]] if text != "\n" else [6, 7]

        def raw(self, token_id: int) -> bytes:
            return next((text.encode() for text, i in ids.items() if i == token_id), b"?")

    known = Context(WithMarkers(), VOCAB_SIZE, (1,), context.device)  # type: ignore[arg-type]
    assert registered_as("thinking_budget", known, model=model).shared == (200, 201, 202)
    with pytest.raises(ProcessorLoadError, match="no token for"):
        registered_as("thinking_budget", context, model=model)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"model": "qwen9"}, "there is no preset 'qwen9'; there are deepseek-r1, glm-4"),
        ({"start": "<|im_start|>", "end": "</end>"}, "no token for '</end>'"),
        ({"start": ""}, "no token for '<think>'"),
    ],
)
def test_a_model_that_cannot_have_a_thinking_budget_is_refused_at_start(
    args: dict[str, Any], reason: str, context: Context
) -> None:
    with pytest.raises(ProcessorLoadError, match=reason):
        registered_as("thinking_budget", context, **args)


# What the sampler does by itself.


def test_min_tokens_and_logit_bias_are_the_sampler_s_own(tiny_core: Callable[..., Any]) -> None:
    configs = (
        LogitsProcessorConfig("min_tokens", "min_tokens", mandatory=True, params={"min_tokens": 7}),
        LogitsProcessorConfig("logit_bias", "logit_bias"),
    )
    core = tiny_core(logits_processors=configs)
    bias = named(logit_bias={"logit_bias": {"1": 50.0, "4": 2.0}})
    request = completion((5, 6), max_tokens=20, logit_bias={4: 1.0, 9: -1.0}, logits_processors=bias)
    group = core.add(request)
    (seq,) = group.sequences
    assert seq.sampling.processors == ()
    assert seq.sampling.params.logit_bias == {4: 3.0, 9: -1.0, 1: 50.0}
    core.run()
    assert len(core.answers(group)[0].ids) == 8, "seven tokens, and the end"
    for own, most, expected in ((0, 3, 3), (9, 20, 9), (0, None, 7)):
        (seq,) = core.processor.process(completion((5, 6), min_tokens=own, max_tokens=most)).sequences
        assert seq.sampling.params.min_tokens == expected


def test_a_bias_of_no_token_is_refused(tiny_core: Callable[..., Any]) -> None:
    core = tiny_core(logits_processors=(LogitsProcessorConfig("logit_bias", "logit_bias"),))
    for bias in ({"400": 1.0}, {"x": 1.0}, {"4": math.inf}, {"4": math.nan}, {"4": 1e31}):
        with pytest.raises(RequestError) as caught:
            core.add(completion((5, 6), logits_processors=named(logit_bias={"logit_bias": bias})))
        assert caught.value.param is not None
        assert caught.value.param.startswith("logits_processors[0].params.logit_bias")


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("bad_words", {"bad_words": [" "]}),
        ("bad_words", {"bad_words": "fox"}),
        ("bad_words", {"bad_words": ["x" * 1001]}),
        ("bad_words", {"bad_words": ["x"] * 1001}),
        ("allowed_tokens", {"token_ids": []}),
        ("disallowed_tokens", {"token_ids": [400]}),
        ("forced_sequence", {"token_ids": [True]}),
        ("no_repeat_ngram", {"ngram_size": 0, "window_size": 3}),
        ("no_repeat_ngram", {"ngram_size": 2}),
        ("thinking_budget", {"thinking_budget": -1}),
        ("watermark", {"delta": 3}),
    ],
)
def test_parameters_that_make_no_sense_are_refused(
    name: str, params: dict[str, Any], context: Context
) -> None:
    args: dict[str, dict[str, Any]] = {"thinking_budget": THINKING, "watermark": {"key": "k"}}
    with pytest.raises(ParamsError):
        registered_as(name, context, **args.get(name, {})).validate(params)


# The watermark.


def test_the_green_list_of_the_logits_is_the_detector_s(built: Callable[..., Any]) -> None:
    processor = built("watermark", key="secret", gamma=0.4, delta=1.5)
    green = GreenList("secret", 0.4)
    for previous in (0, 5, 399):
        logits = torch.zeros(VOCAB_SIZE)
        processor(TokenIds([3, previous], 1), logits)
        assert logits.tolist() == [1.5 * green.is_green(previous, i) for i in range(VOCAB_SIZE)]


def test_green_is_gamma_of_all_pairs_and_another_list_behind_each_token_and_key() -> None:
    """Shares of 40,000 pairs lie within 5 standard deviations: wrong once in a million."""
    one, other = GreenList("one", 0.25), GreenList("other", 0.25)
    lists = {
        key: [[g.is_green(p, t) for t in range(200)] for p in range(200)]
        for key, g in (("one", one), ("other", other))
    }
    for found in lists.values():
        assert abs(sum(map(sum, found)) - 10_000) < 5 * math.sqrt(40_000 * 0.25 * 0.75)
        assert len({tuple(line) for line in found}) == 200
    both = sum(a and b for x, y in zip(*lists.values(), strict=True) for a, b in zip(x, y, strict=True))
    assert abs(both - 2_500) < 5 * math.sqrt(40_000 * 0.0625 * 0.9375)


def test_a_text_without_a_watermark_has_none() -> None:
    """200 z-scores of random texts: nearly all below 3, and together those of chance."""
    rng, green = random.Random(0), GreenList("secret")
    scores = [green.detect([rng.randrange(2000) for _ in range(150)]).z_score for _ in range(200)]
    assert abs(sum(scores) / 200) < 0.35
    assert max(scores) < 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_a_watermark_is_found_by_its_key_and_no_other(temperature: float, start_engine: Any) -> None:
    args = {"key": "secret", "delta": 6.0}
    engine = await start_engine(logits_processors=(LogitsProcessorConfig("watermark", "watermark", args),))
    sampling = {"max_tokens": 150, "ignore_eos": True, "temperature": temperature, "seed": 1}
    prompts = [(5, 6, i) for i in range(10, 18)]
    scores: dict[tuple[bool, str], float] = {}
    for is_marked in (True, False):
        processors = named(watermark={}) if is_marked else ()
        found = await engine.complete(*prompts, logits_processors=processors, **sampling)
        pairs = [i for answer in found for i in answer.ids]
        for key in ("secret", "another"):
            scores[is_marked, key] = GreenList(key).detect(pairs).z_score
    assert scores[True, "secret"] > 8
    assert max(score for which, score in scores.items() if which != (True, "secret")) < 5


def test_repeated_pairs_count_once_and_nothing_scores_nothing() -> None:
    green = GreenList("secret")
    assert green.detect([4, 5] * 100).num_scored == 2
    nothing = green.detect([4])
    assert (nothing.num_scored, nothing.z_score, nothing.p_value) == (0, 0.0, 0.5)


@pytest.mark.parametrize("args", [{}, {"key": ""}, {"key": "k", "gamma": 1.0}])
def test_a_watermark_that_could_not_be_found_is_refused_at_start(
    args: dict[str, Any], context: Context
) -> None:
    with pytest.raises(ProcessorLoadError):
        registered_as("watermark", context, **args)
