"""A request with logits processors gets the same outputs, whatever runs beside it."""

import gc
import random
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

from engine.protocol import GenerationRequest, LogitsProcessorError, RequestError
from engine.protocol.demo import MODEL_DIR
from engine.protocol.import_path import find_class
from engine.protocol.options import LogitsProcessorConfig
from engine.sampling.guided.guide import Guide
from engine.sampling.logits_processors import ForcedTokenSequenceSpec, PythonProcessorSpec, Req
from engine.sampling.logits_processors.started import StartedProcessor
from tests.engine.conftest import TinyCore, answers, completion, cramped_core, random_prompts
from tests.engine.sampling.logits_processors.processors import (
    ALL,
    EVERYTHING,
    HERE,
    LIMITED,
    config,
    kinds,
    named,
)
from tests.helpers import slow

EOS = 1


def with_the_model_that_ships(family: str, **settings: Any) -> TinyCore:
    return TinyCore(MODEL_DIR, **settings)


def request_of(kind: dict[str, Any], prompt: list[int], **fields: Any) -> GenerationRequest:
    kind = dict(kind)
    processors = kind.pop("processors", ())
    return completion(tuple(prompt), logits_processors=processors, **{"max_tokens": 20} | kind | fields)


def thinking(core: TinyCore, kind: dict[str, Any], prompt: list[int]) -> list[int]:
    """The prompt, with the marker that opens thinking if the request has a budget for it."""
    is_thinking = any(spec.name == "thinking_budget" for spec in kind.get("processors", ()))
    opening = core.processor.tokenizer.encode("<|im_start|>", add_special_tokens=False)
    return prompt + opening * is_thinking


@pytest.mark.parametrize("family", ["llama", slow("gemma2"), slow("the model that ships")])
def test_every_processor_changes_some_output(family: str, tiny_core: Callable[..., Any]) -> None:
    """Otherwise the tests below would prove nothing about that processor."""
    make = with_the_model_that_ships if family == "the model that ships" else tiny_core
    core: Any = make(family, logits_processors=EVERYTHING)
    for kind in kinds(core.processor.tokenizer.eos_token_id):
        processors = kind.get("processors", ())
        for without in processors:
            left = tuple(spec for spec in processors if spec is not without)
            groups = [
                core.add(request_of({**kind, "processors": some}, thinking(core, kind, prompt)))
                for prompt in random_prompts(6, longest=30, seed=2)
                for some in (processors, left)
            ]
            core.run()
            found = [core.answers(group)[0].ids for group in groups]
            assert found[::2] != found[1::2], without


@pytest.mark.parametrize(
    ("family", "setting"),
    [
        *(("llama", setting) for setting in ("cramped", "drafting")),
        *(("gemma2", "cramped"), ("the model that ships", "speculative")),
        *(slow("llama", setting) for setting in ("roomy", "speculative")),
        *(slow("gemma2", setting) for setting in ("roomy", "speculative")),
        *(slow("the model that ships", setting) for setting in ("roomy", "cramped")),
    ],
)
def test_each_request_of_a_mixed_batch_gets_the_same_outputs_as_alone(
    setting: str, family: str, tiny_core: Callable[..., Any], tiny_model: Callable[[str], Any]
) -> None:  # contract 7.6, 7.7
    if family == "the model that ships":
        tiny_core = with_the_model_that_ships
    rng = random.Random(family + setting)
    settings: dict[str, Any] = {"logits_processors": EVERYTHING}
    if setting in ("speculative", "drafting"):
        settings["num_speculative_tokens"] = 4
    if setting == "drafting":
        settings |= {"speculative_model": str(tiny_model(family).path), "speculative_method": "draft_model"}
    core = (
        cramped_core(tiny_core, family, **settings) if setting == "cramped" else tiny_core(family, **settings)
    )
    requests = []
    asked = kinds(core.processor.tokenizer.eos_token_id) * 3 + LIMITED * 3
    for kind, prompt in zip(asked, random_prompts(len(asked), longest=30, seed=1), strict=True):
        prompt = prompt * (2 if setting == "speculative" else 1)
        sizes = {"n": rng.choice([1, 1, 2]), "max_tokens": rng.randint(1, 20)}
        requests.append(request_of(kind, thinking(core, kind, prompt), **sizes))
    rng.shuffle(requests)
    groups = core.serve(requests, rng)
    assert not core.errors
    assert core.core.block_manager.num_used == 0
    assert (core.core.stats().spec_decode_accepted_tokens_total > 0) == ("num_speculative_tokens" in settings)
    alone = tiny_core(family, logits_processors=EVERYTHING)
    for request, group in zip(requests, groups, strict=True):
        solo = alone.add(request)
        alone.run()
        for found, expected in zip(core.answers(group), alone.answers(solo), strict=True):
            assert (found.ids, found.text) == (expected.ids, expected.text)
            assert found.finish_reason == expected.finish_reason


@pytest.mark.parametrize("setting", ["cramped", "speculative"])
def test_a_processor_sees_committed_tokens_and_each_length_once(
    setting: str, tiny_core: Callable[..., Any]
) -> None:  # contract 7.1
    made: list[Any] = []

    class Watches:
        def __init__(self) -> None:
            self.shown: list[list[int]] = []
            made.append(self)

        def __call__(self, input_ids: Any, logits: torch.Tensor) -> None:
            self.shown.append(input_ids[:])

    ways: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "cramped": (partial(cramped_core, tiny_core), {}),
        "speculative": (tiny_core, {"num_speculative_tokens": 4}),
    }
    make, speculation = ways[setting]
    core = make("llama", logits_processors=ALL, **speculation)
    prompt = tuple(range(20, 30)) * 2
    specs = (*named(likes={"back": 2, "by": 9.0}), PythonProcessorSpec(Watches))
    asked: dict[str, Any] = {"n": 2, "max_tokens": 24, "ignore_eos": True, "logits_processors": specs}
    groups = [core.add(completion((*prompt, i), **asked)) for i in range(4)]
    core.run()
    stats = core.core.stats()
    assert (stats.preemptions_total > 0) == (setting == "cramped")
    assert (stats.spec_decode_accepted_tokens_total > 0) == (setting == "speculative")
    whole = [seq.token_ids for group in groups for seq in group.sequences]
    for one, ids in zip(made, whole, strict=True):
        assert one.shown == [ids[:length] for length in range(21, 21 + 24)]


@pytest.fixture(scope="module")
def alone(tiny_core: Callable[..., Any]) -> Callable[[GenerationRequest], list[int]]:
    """The output of a request that runs alone. Each is generated once."""
    core, known = tiny_core(logits_processors=EVERYTHING), dict[str, list[Any]]()

    def answer(request: GenerationRequest) -> list[int]:
        if (key := repr(request)) not in known:
            group = core.add(request)
            core.run()
            known[key] = answers(core.deltas.pop(group))[0].ids
        return known[key]

    return answer


FAILING = ("fails", "failsalone", "failsmask")
HOWS = ("raise", "exit", "panic", "nan", "shape", "sparse", "empty")


@pytest.mark.parametrize(
    ("name", "how", "num_drafted"), [*product(FAILING, HOWS, [0]), *product(FAILING, ["raise"], [4])]
)
def test_a_failure_midway_ends_only_its_own_request(
    num_drafted: int,
    how: str,
    name: str,
    tiny_core: Callable[..., Any],
    alone: Callable[[GenerationRequest], list[int]],
) -> None:  # contract 7.6
    core = tiny_core(logits_processors=EVERYTHING, num_speculative_tokens=num_drafted)
    good = [request_of(kind, [5, 6, 7]) for kind in kinds(EOS)]
    good.append(completion((5, 6, 7), max_tokens=20, logits_processors=named(**{name: {"how": ""}})))
    given: dict[str, dict[str, Any]] = {"likes": {"back": 2, "by": 9.0}, name: {"how": how, "after": 5}}
    processors = named(**given)
    bad = completion((8, 9, 8, 9), n=2, max_tokens=20, logits_processors=processors)
    groups = [core.add(request) for request in good[::2]]
    failing = core.add(bad)
    groups += [core.add(request) for request in good[1::2]]
    core.run()
    (error,) = core.errors.values()
    assert isinstance(error, LogitsProcessorError)
    assert core.errors == {failing: error}
    assert max(d.index for d in core.deltas[failing]) == 1, "both outputs had begun"
    assert not any(d.finish_reason for d in core.deltas[failing])
    assert (core.core.stats().spec_decode_accepted_tokens_total > 0) == (num_drafted > 0)
    assert core.core.block_manager.num_used == 0
    for request, group in zip(good[::2] + good[1::2], groups, strict=True):
        assert core.answers(group)[0].ids == alone(request)


def test_chunked_and_cached_prompts_do_not_bypass_processors(tiny_core: Callable[..., Any]) -> None:
    """Contract 7.7: the first token is the same if the prompt is computed in pieces, or found in the
    cache."""
    for settings in ({}, {"max_num_batched_tokens": 7}):
        core = tiny_core(logits_processors=EVERYTHING, **settings)
        for _ in range(2):
            group = core.add(
                completion(
                    tuple(range(10, 60)),
                    max_tokens=4,
                    logits_processors=named(forced_sequence={"token_ids": [9, 8]}),
                )
            )
            core.run()
            assert core.answers(group)[0].ids == [9, 8, 1]
        assert core.core.scheduler.num_cache_hits > 0


def test_candidates_of_best_of_run_through_the_processors(tiny_core: Callable[..., Any]) -> None:
    core = tiny_core(logits_processors=EVERYTHING)
    processors = named(allowed_tokens={"token_ids": [30, 40]})
    group = core.add(
        completion((5, 6), n=2, best_of=5, temperature=1.0, max_tokens=9, logits_processors=processors)
    )
    core.run()
    assert {i for answer in core.answers(group) for i in answer.ids} <= {30, 40}


@pytest.mark.parametrize(
    "settings",
    [
        {"logits_processors": (config("Likes", mandatory=True),)},
        {
            "logits_processors": (
                LogitsProcessorConfig("logit_bias", "logit_bias", {}, True, {"logit_bias": {5: -9.0}}),
            )
        },
        {"enable_test_logits_processor": True},
        {"logits_processors": ALL, "asked": named(likes={})},
    ],
)
async def test_beam_search_refuses_processors(
    settings: dict[str, Any], start_engine: Any
) -> None:  # contract 7.7
    processors = settings.pop("asked", ())
    engine = await start_engine(**settings)
    with pytest.raises(RequestError, match="cannot be combined with"):
        await engine.complete((5, 6), n=2, extra={"use_beam_search": True}, logits_processors=processors)
    assert (await engine.complete((5, 6), max_tokens=3, logits_processors=processors))[0].ids


@pytest.mark.slow
async def test_1000_requests_leave_no_processor_state(start_engine: Any) -> None:  # contract 7.4
    engine = await start_engine(max_num_seqs=64, logits_processors=EVERYTHING)
    before = num_alive()
    likes = find_class(HERE + "Likes")
    processors = named(likes={}, counts={}, no_repeat_ngram={"ngram_size": 2, "window_size": 50})
    for i in range(50):
        requests = [
            completion(
                (5, 6, j % 7 + 4),
                max_tokens=1 + j % 3,
                logits_processors=processors,
                extra={"guided_regex": "[a-z ]+"} if j % 5 == 0 else {},
            )
            for j in range(20)
        ]
        streams = [engine.generate(request) for request in requests]
        first = [await anext(stream) for stream in streams[: 1 + i % 5]]
        assert all(first)
        assert likes.live  # type: ignore[attr-defined]
        assert i != 25 or num_alive() > before
        for stream in streams[: i % 3]:
            await stream.aclose()
        for stream in streams[i % 3 :]:
            async for _ in stream:
                pass
    await engine.complete((5, 6), max_tokens=1)  # now the thread has forgotten the aborted requests
    del streams, stream
    assert num_alive() <= before
    assert not list(likes.live)  # type: ignore[attr-defined]


def num_alive() -> int:
    """The number of live objects that belong to one sequence."""
    gc.collect()
    return sum(type(one) in (StartedProcessor, Req, Guide) for one in gc.get_objects())


# Processors from an embedding program.


async def test_a_python_processor_is_made_for_each_sequence(engine: Any) -> None:
    class Rises:
        def __init__(self) -> None:
            self.next = 30

        def __call__(self, input_ids: Any, logits: torch.Tensor) -> None:
            logits[self.next] = 1000.0
            self.next += 1

    found = await engine.complete((5, 6), n=3, max_tokens=4, logits_processors=(PythonProcessorSpec(Rises),))
    assert [answer.ids for answer in found] == [[30, 31, 32, 33]] * 3


async def test_a_forced_token_sequence_needs_nothing_registered(engine: Any) -> None:
    spec = ForcedTokenSequenceSpec((40, 41), 1)
    (answer,) = await engine.complete((5, 6), max_tokens=9, temperature=1.0, logits_processors=(spec,))
    assert (answer.ids, answer.finish_reason) == ([40, 41, 1], "stop")


# HelloWorld.
