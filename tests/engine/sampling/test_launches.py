"""A draw calls as many of torch's operators for many rows as for one: on a GPU, each is a launch. No draw
takes more memory than the one for which the engine leaves room."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from engine.core.input_processor import InputProcessor
from engine.execution import warm_up
from engine.sampling.sampler import SampledToken, Sampler
from engine.sampling.sampling_state import SamplingState
from tests.engine.conftest import VOCAB_SIZE, completion
from tests.engine.sampling.logits_processors.processors import ALL, BUILTIN, named

ROWS = 1, 16, 64


class CountOperators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(function)] += 1
        return function(*args, **kwargs or {})


@pytest.fixture(scope="module")
def processor(tiny_core: Callable[..., Any]) -> InputProcessor:
    found: InputProcessor = tiny_core(logits_processors=(*ALL, *BUILTIN)).processor
    return found


@pytest.fixture(params=["as on a CPU", "as on a GPU"])
def sampler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Sampler:
    monkeypatch.setattr("engine.sampling.sampler.is_on_cpu", lambda logits: request.param == "as on a CPU")
    return Sampler(torch.device("cpu"), seed=0)


RANDOM = {"temperature": 0.7}
ASKED: dict[str, dict[str, Any]] = {
    "greedy": {},
    "random": RANDOM,
    "seeds": RANDOM | {"seed": 1},
    "top-k": RANDOM | {"top_k": 5},
    "top-p": RANDOM | {"top_p": 0.9},
    "top-p behind top-k": RANDOM | {"top_p": 0.9, "top_k": 5},
    "min-p": RANDOM | {"min_p": 0.1},
    "repetition": {"repetition_penalty": 1.2},
    "frequency": {"frequency_penalty": 0.2},
    "presence": {"presence_penalty": 0.2},
    "logit_bias": {"logit_bias": {7: 1.0, 9: -100.0}},
    "min_tokens": {"min_tokens": 50, "stop_token_ids": (7, 8)},
    "bad words": {"extra": {"bad_words": ["the", "lazy dog", "hidden"]}},
    "no repeat": {"logits_processors": named(no_repeat_ngram={"ngram_size": 1, "window_size": 9})},
    "batch form": {"logits_processors": named(fails={"how": ""})},
    "logprobs": {"logprobs": 3},
    "logprobs by id": {"logprobs": 1, "logprob_token_ids": (4, 5)},
}


def states_of(processor: InputProcessor, rows: int, asked: dict[str, Any]) -> list[SamplingState]:
    found = []
    for row in range(rows):
        request = completion(tuple(range(20, 30 + row % 3)), max_tokens=90, ignore_eos=True, **asked)
        (seq,) = processor.process(request).sequences
        found.append(seq.sampling)
    return found


def operators_of(sampler: Sampler, states: list[SamplingState]) -> Counter[str]:
    """Of the third draw: what is made once for a request is made."""
    for step in range(3):
        logits = torch.randn(len(states), VOCAB_SIZE, generator=torch.Generator().manual_seed(step))
        with CountOperators() as operators:
            drawn = sampler.draw(logits, states)
        for state, token in zip(states, drawn.read(), strict=True):
            assert isinstance(token, SampledToken)
            state.token_ids._ids.append(token.id)  # type: ignore[attr-defined]
    return operators.counts


@pytest.mark.parametrize("kind", [*ASKED, "all in one batch"])
def test_the_operators_of_a_draw_are_as_many_for_many_rows_as_for_one(
    kind: str, sampler: Sampler, processor: InputProcessor
) -> None:
    asked = [ASKED[kind]] if kind in ASKED else list(ASKED.values())
    counts = [
        operators_of(sampler, [state for one in asked for state in states_of(processor, rows, one)])
        for rows in ROWS
    ]
    assert counts[0] == counts[1] == counts[2]
    assert counts[0]


def test_top_p_behind_top_k_never_sorts_the_vocabulary(
    processor: InputProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.sampling.sampler.is_on_cpu", lambda logits: False)
    sampler = Sampler(torch.device("cpu"), seed=0)
    for kind, sorts in (("top-p", True), ("top-p behind top-k", False)):
        operators = operators_of(sampler, states_of(processor, 4, ASKED[kind]))
        assert any("sort" in name for name in operators) is sorts


class PeakMemory(TorchDispatchMode):
    """The most bytes that results of operators take at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.num_bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **kwargs or {})
        for storage in (t.untyped_storage() for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)):
            self._live.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self._live = {at: one for at, one in self._live.items() if not one[0].expired()}
        self.num_bytes = max(self.num_bytes, sum(num_bytes for _, num_bytes in self._live.values()))
        return out


@pytest.mark.parametrize("kind", ASKED)
def test_the_warm_up_s_draw_takes_the_most_memory(
    kind: str, processor: InputProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache gets what this draw leaves. The memory of processors is their own."""
    monkeypatch.setattr("engine.sampling.sampler.is_on_cpu", lambda logits: False)
    peaks = []
    for states in ([warm_up._state() for _ in range(8)], states_of(processor, 8, ASKED[kind])):
        logits, sampler = torch.randn(8, VOCAB_SIZE), Sampler(torch.device("cpu"), seed=0)
        with PeakMemory() as memory:
            sampler.draw(logits, states)
        peaks.append(memory.num_bytes)
    costliest, other = peaks
    assert other <= costliest
