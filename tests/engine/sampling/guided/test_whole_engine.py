"""A guided request gets the same outputs, whatever runs beside it and however tokens are drawn."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from engine.protocol import GenerationRequest, LogitsProcessorError, RequestError
from engine.sampling.guided.grammar import Grammar
from tests.engine.conftest import VOCAB_SIZE, completion, cramped_core, random_prompts
from tests.engine.sampling.guided.conftest import EOS
from tests.engine.sampling.logits_processors.processors import ALL, named
from tests.helpers import slow

PLAIN = 70
"""A token of one letter."""
PAIR = {
    "type": "object",
    "properties": {
        "a": {"enum": ["yes", "no"]},
        "b": {"type": "array", "items": {"type": "boolean"}, "maxItems": 5},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
}
KINDS: list[dict[str, Any]] = [
    {},
    {"extra": {"guided_regex": "[a-f]{3,9}( [a-f]{2})*"}},
    {"extra": {"guided_choice": ["hello world", "hello", "the lazy dog"]}, "temperature": 1.0, "seed": 5},
    {"extra": {"guided_json": PAIR}, "temperature": 1.3, "seed": 7, "logprobs": 2},
    {"extra": {"guided_json": PAIR}, "repetition_penalty": 1.2, "min_tokens": 35, "max_tokens": 40},
    {
        "extra": {"structured_outputs": {"grammar": 'root ::= "(" root ")" | "x"'}},
        "temperature": 0.7,
        "seed": 1,
    },
    {"extra": {"structured_outputs": {"grammar": 'start: ("the " | "fox ")+'}}, "logit_bias": {EOS: 3.0}},
    {"extra": {"guided_regex": "[a-z ]+"}, "logits_processors": named(ban={"ban": list(range(70, 90))})},
    {"extra": {"guided_regex": "(the quick brown fox )+"}, "ignore_eos": True, "max_tokens": 30},
    {"logits_processors": named(likes={"back": 2, "by": 6.0})},
]


def request_of(kind: dict[str, Any], prompt: list[int], **fields: Any) -> GenerationRequest:
    # The prompt ends with a whole character. Otherwise the output would begin with the rest of one.
    return completion((*prompt, PLAIN), **{"max_tokens": 20} | kind | fields)


@pytest.mark.parametrize(
    ("family", "setting"),
    [
        *(("llama", setting) for setting in ("roomy", "cramped", "speculative", "drafting")),
        *(slow("gemma2", setting) for setting in ("roomy", "cramped", "speculative")),
    ],
)
def test_each_request_of_a_mixed_batch_gets_the_same_outputs_as_alone(
    setting: str, family: str, tiny_core: Callable[..., Any], tiny_model: Callable[[str], Any]
) -> None:
    rng = random.Random(setting)
    settings: dict[str, Any] = {"logits_processors": ALL}
    if setting in ("speculative", "drafting"):
        settings["num_speculative_tokens"] = 4
    if setting == "drafting":
        settings |= {"speculative_model": str(tiny_model(family).path), "speculative_method": "draft_model"}
    core = (
        cramped_core(tiny_core, family, **settings) if setting == "cramped" else tiny_core(family, **settings)
    )
    requests = [
        request_of(kind, prompt, n=rng.choice([1, 1, 3]))
        for kind, prompt in zip(KINDS * 3, random_prompts(3 * len(KINDS), longest=30, seed=1), strict=True)
    ]
    rng.shuffle(requests)
    groups = core.serve(requests, rng)
    assert not core.errors
    stats = core.core.stats()
    assert (stats.spec_decode_accepted_tokens_total > 0) == ("num_speculative_tokens" in settings)
    assert (stats.preemptions_total > 0) == (setting == "cramped")
    alone = tiny_core(family, logits_processors=ALL)
    for request, group in zip(requests, groups, strict=True):
        solo = alone.add(request)
        alone.run()
        found = [(a.ids, a.text, a.finish_reason) for a in core.answers(group)]
        assert found == [(a.ids, a.text, a.finish_reason) for a in alone.answers(solo)]
        check(request, found)


def check(request: GenerationRequest, found: list[Any]) -> None:
    for ids, text, finish_reason in found:
        assert finish_reason == "length" or ids[-1] == EOS
        if finish_reason == "length":
            continue
        match dict(request.extra):
            case {"guided_regex": regex}:
                assert re.fullmatch(regex, text)
            case {"guided_choice": choices}:
                assert text in choices
            case {"guided_json": _}:
                assert json.loads(text)["a"] in ("yes", "no")
            case {"structured_outputs": _}:
                assert re.fullmatch(r"\(*x\)*|(the |fox )+", text)


# The end of an output.


@pytest.mark.parametrize(
    "fields", [{}, {"ignore_eos": True}, {"min_tokens": 30}, {"logit_bias": {EOS: -100.0}}]
)
async def test_an_output_ends_where_its_grammar_ends(fields: dict[str, Any], engine: Any) -> None:
    extra = {"guided_choice": ["hello world", "the lazy dog"]}
    found = await engine.complete((5, 6), n=4, max_tokens=60, temperature=1.0, seed=3, extra=extra, **fields)
    assert {a.text for a in found} <= set(extra["guided_choice"])
    assert {(a.finish_reason, a.ids[-1]) for a in found} == {("stop", EOS)}


async def test_an_output_does_not_end_before_its_grammar_allows(engine: Any) -> None:
    extra = {"guided_regex": "(the ){5}(the )*"}
    (answer,) = await engine.complete((5, 6), max_tokens=60, extra=extra, logit_bias={EOS: 100.0})
    assert re.fullmatch("(the ){5,6}", answer.text)  # a token may span two words
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize("fields", [{"ignore_eos": True}, {"min_tokens": 20}])
async def test_an_output_goes_on_past_a_possible_end_if_the_request_says_so(
    fields: dict[str, Any], engine: Any
) -> None:
    extra = {"guided_regex": "(the )+"}
    (answer,) = await engine.complete((5, 6), max_tokens=20, extra=extra, logit_bias={EOS: 100.0}, **fields)
    assert (len(answer.ids), answer.finish_reason) == (20, "length")


async def test_a_stop_string_ends_an_output_anywhere_in_its_grammar(engine: Any) -> None:
    extra = {"guided_choice": ["hello world"]}
    (answer,) = await engine.complete((5, 6), max_tokens=60, extra=extra, stop=("wor",))
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("hello ", "stop", "wor")


async def test_a_stop_id_comes_only_where_the_grammar_allows(engine: Any) -> None:
    ids = engine.tokenizer.encode("hello world")
    for stop_id, text in (
        (ids[-1], "hello world"[: -len(engine.tokenizer.decode([ids[-1]]))]),
        (2, "hello world"),
    ):
        extra, bias = {"guided_choice": ["hello world"]}, {ids[-1]: 50.0}
        fields = {"stop_token_ids": (stop_id,), "logit_bias": bias, "temperature": 0.0}
        (answer,) = await engine.complete((5, 6), max_tokens=60, extra=extra, **fields)
        assert answer.finish_reason == "stop"
        assert "hello world".startswith(answer.text)
        assert stop_id != 2 or answer.text == text


def test_a_sequence_left_without_a_token_fails_alone(tiny_core: Callable[..., Any]) -> None:  # contract 7.5
    core = tiny_core(logits_processors=ALL)
    extra = {"guided_regex": "[ab]+"}
    good = core.add(completion((5, 6), max_tokens=9, extra=extra))
    letters = [core.processor.tokenizer.encode(text)[0] for text in ("a", "b")]
    everything = [i for i in range(VOCAB_SIZE) if i not in (EOS, 50)]
    assert not {50, EOS} & set(letters)
    bad = core.add(
        completion((5, 6), max_tokens=9, extra=extra, logits_processors=named(ban={"ban": everything}))
    )
    core.run()
    assert isinstance(core.errors.pop(bad), LogitsProcessorError)
    assert not core.errors
    assert re.fullmatch("[ab]+", core.answers(good)[0].text)


def test_a_request_whose_grammar_takes_too_long_fails_alone(
    tiny_core: Callable[..., Any],
) -> None:  # contract 7.6
    core = tiny_core()
    slow, quick = {"guided_regex": "[a-z]+"}, {"guided_regex": "[a-y ]+"}
    bad = core.add(completion((5, 6), n=3, max_tokens=9, extra=slow))
    good = core.add(completion((5, 6), max_tokens=9, extra=quick))
    core.processor.guidance._compiler.compile(Grammar("regex", slow["guided_regex"])).seconds = 1e6
    core.run()
    error = core.errors.pop(bad)
    assert isinstance(error, RequestError)
    assert error.param == "guided_regex"
    assert not core.errors
    assert re.fullmatch("[a-y ]+", core.answers(good)[0].text)
    with pytest.raises(RequestError, match="guided_regex: it takes too long to follow"):
        core.add(completion((5, 6), extra=slow))


# One sequence's guide.


# What may not be had, and what must not be held up.
