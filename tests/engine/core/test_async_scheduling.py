"""The scheduler is one step ahead of the tokens that were read back, and nobody can tell.

The device of these tests works only when the engine waits for it. So a step that is said to go ahead has
computed nothing when the tokens of the step before are read, and when requests leave or go back.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core import engine_core
from engine.core.in_flight import InTurn
from engine.device import cuda
from engine.protocol import GenerationRequest, Rewind
from engine.protocol.errors import DeviceLostError
from engine.protocol.options import LogitsProcessorConfig
from engine.scheduling.sequence import SequenceGroup
from engine.scheduling.step_budget import StepBudget
from tests.engine.conftest import TinyCore, cramped_core, random_prompts
from tests.engine.core.delayed_device import DelayedDevice
from tests.engine.execution.probes.made import make_probe, save_probe
from tests.engine.sampling.logits_processors.processors import ALL, named
from tests.helpers import examples

Core = Callable[..., TinyCore]
Complete = Callable[..., GenerationRequest]
PROMPT = (20, 30, 40, 50, 60, 70)
IN_TURN = ["run", "draw", "read"]
NO_REPEAT = LogitsProcessorConfig("no_repeat_ngram", "no_repeat_ngram")


@pytest.fixture
def ahead(tiny_core: Core) -> Callable[..., tuple[TinyCore, DelayedDevice]]:
    def make(**own: Any) -> tuple[TinyCore, DelayedDevice]:
        core = tiny_core(async_scheduling=True, **own)
        return core, DelayedDevice(core.core)

    return make


Ahead = Callable[..., tuple[TinyCore, DelayedDevice]]


def is_ahead(core: TinyCore) -> bool:
    """Whether the device has begun the next step."""
    return core.core._ahead is not None


def ids_of(group: SequenceGroup) -> list[list[int]]:
    return [seq.token_ids[seq.num_prompt_tokens :] for seq in group.sequences]


def test_the_next_step_begins_before_the_tokens_of_the_last_one_are_read(
    ahead: Ahead, completion_request: Complete
) -> None:
    core, device = ahead()
    core.add(completion_request(PROMPT, max_tokens=4, ignore_eos=True))
    core.run()
    # The last step is known to be the last: there is no other after it.
    going = ["run ahead", "read", "draw"]
    assert device.events == ["run", "draw", *going, *going, *going, "read"]


@pytest.mark.parametrize(
    "own",
    [
        {"async_scheduling": False},
        {"async_scheduling": None},
        {"async_scheduling": True, "num_speculative_tokens": 2},
    ],
)
def test_steps_go_in_turn_on_a_cpu_by_default_and_with_drafts(
    own: dict[str, Any], tiny_core: Core, completion_request: Complete
) -> None:
    core = tiny_core(**own)
    device = DelayedDevice(core.core)
    core.add(completion_request(PROMPT, max_tokens=4, ignore_eos=True))
    core.run()
    assert "run ahead" not in device.events


def test_steps_go_in_turn_while_probes_score(
    tmp_path: Path, tiny_core: Core, tiny_model: Any, completion_request: Complete
) -> None:
    """Scores are read from the cache when the tokens are, and no later step may have come between."""
    probe = save_probe(tmp_path, make_probe(tiny_model("llama").path, "linear", ("model.norm",)))
    core = tiny_core(async_scheduling=True, probes=(probe,))
    device = DelayedDevice(core.core)
    core.add(completion_request(PROMPT, max_tokens=4, ignore_eos=True))
    core.run()
    # The last token is computed for its scores.
    assert device.events == [*IN_TURN * 4, "run"]


REQUESTS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "seeded": {"temperature": 1.0, "seed": 3, "n": 3, "logprobs": 2},
    "nucleus": {"temperature": 0.9, "seed": 3, "top_p": 0.9, "top_k": 50, "min_p": 0.01},
    "penalties": {"frequency_penalty": 1.5, "presence_penalty": 0.5, "repetition_penalty": 1.3},
    "min tokens": {"min_tokens": 20, "stop_token_ids": tuple(range(5, 300, 2)), "ignore_eos": False},
    "best of": {"temperature": 1.0, "seed": 5, "n": 2, "best_of": 4},
    "grammar": {"extra": {"guided_regex": "[a-f]{6,9}( [a-f]{2}){2}"}, "ignore_eos": False},
    "processors": {
        "logits_processors": named(no_repeat_ngram={"ngram_size": 2, "window_size": 99}, likes={"back": 2})
    },
    "stop string": {"stop": ("e", "th")},
}


@pytest.mark.parametrize("name", REQUESTS)
def test_outputs_are_the_same_as_in_turn(
    name: str, tiny_core: Core, ahead: Ahead, completion_request: Complete
) -> None:
    """All that a draw reads of its sequence, such as tokens that count (contract 7.1), is up to date."""
    request = {"max_tokens": 24, "ignore_eos": True} | REQUESTS[name]
    own = {"logits_processors": (*ALL, NO_REPEAT)}
    core, device = ahead(**own)
    found = []
    for one in (tiny_core(**own), core):
        groups = [
            one.add(completion_request(tuple(p), **request)) for p in random_prompts(4, longest=30, seed=2)
        ]
        one.run()
        found.append([[(a.tokens, a.finish_reason, a.stop_reason) for a in one.answers(g)] for g in groups])
    assert device.events.count("run ahead") > 3
    assert found[0] == found[1]
    assert core.core.block_manager.num_used == 0


def test_unseeded_draws_are_those_in_turn_if_the_engine_has_a_seed(
    tiny_core: Core, ahead: Ahead, completion_request: Complete
) -> None:
    request = completion_request(PROMPT, n=4, max_tokens=20, temperature=1.0, ignore_eos=True)
    found = []
    for core in (tiny_core(seed=5), ahead(seed=5)[0]):
        group = core.add(request)
        core.run()
        found.append(ids_of(group))
    assert found[0] == found[1]


def test_prompts_in_chunks_and_preemptions_change_nothing(
    tiny_core: Core, completion_request: Complete
) -> None:
    requests = [
        completion_request(tuple(p), max_tokens=28, temperature=1.0, seed=1, ignore_eos=True)
        for p in random_prompts(6, longest=40)
    ]
    core = cramped_core(tiny_core, "llama", async_scheduling=True)
    device = DelayedDevice(core.core)
    expected = tiny_core(async_scheduling=False)
    found = []
    for one in (core, expected):
        groups = []
        for request in requests:
            groups.append(one.add(request))
            for _ in range(3):
                one.step()
        one.run()
        found.append([ids_of(group) for group in groups])
    assert found[0] == found[1]
    assert core.core.scheduler.num_preempted
    assert device.events.count("run ahead") > 10


def test_a_waiting_request_gets_the_next_place_before_a_step_goes_ahead(
    ahead: Ahead, completion_request: Complete
) -> None:
    core, device = ahead(max_num_seqs=2, max_num_prefill_tokens=64)
    for num in (9, 5, 3):
        core.add(completion_request(PROMPT, max_tokens=num, ignore_eos=True))
    first, second, third = core.deltas
    while not second.is_finished:
        core.step()
    assert "run ahead" in device.events, "steps go ahead while there is no place"
    core.step()
    assert third.num_output_tokens == 1
    core.run()
    assert [len(ids_of(g)[0]) for g in (first, second, third)] == [9, 5, 3]


def test_steps_that_go_ahead_teach_the_budget_how_long_one_takes(
    ahead: Ahead, completion_request: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a prompt that comes needs no step of its own for it. No step with a prompt is taken for another."""
    core, _ = ahead()
    budget = core.core.scheduler._step_budget
    assert isinstance(budget, StepBudget)
    planned, plan = [], budget.plan
    monkeypatch.setattr(budget, "plan", lambda *sizes: planned.append(sizes) or plan(*sizes))
    core.add(completion_request(PROMPT, max_tokens=6, ignore_eos=True))
    core.step()
    assert planned == [(1, 0, 7)]
    assert not budget._decode_steps[0].seconds, "the step that is over had a prompt"
    core.run()
    assert planned == [(1, 0, num_tokens) for num_tokens in (7, 8, 9, 10, 11)]
    assert len(budget._decode_steps[0].seconds) == 5


def test_every_step_goes_ahead_while_requests_with_prompts_in_chunks_come_and_end(
    ahead: Ahead, completion_request: Complete
) -> None:
    """More come than there are places, some share their beginning, and the first ones end early."""
    core, device = ahead(max_num_seqs=3, max_num_prefill_tokens=16, block_size=4)
    groups = []
    for i, prompt in enumerate(random_prompts(7, longest=60, seed=4)):
        text = (*PROMPT, *prompt) if i % 2 else tuple(prompt)
        groups.append(core.add(completion_request(text, n=1 + i % 2, max_tokens=1 + 3 * i, ignore_eos=True)))
        core.step()
    while core.core.has_work:
        assert is_ahead(core)
        core.step()
    assert all(len(ids) == 1 + 3 * i for i, group in enumerate(groups) for ids in ids_of(group))
    assert device.events.count("run ahead") > 20
    assert not core.core.in_turn


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"async_scheduling": False}, InTurn.OFF),
        ({"async_scheduling": True, "num_speculative_tokens": 2}, InTurn.DRAFTS),
    ],
)
def test_the_engine_names_the_reason_why_steps_go_in_turn(
    own: dict[str, Any], reason: InTurn, tiny_core: Core, completion_request: Complete
) -> None:
    core = tiny_core(**own)
    core.add(completion_request(PROMPT, max_tokens=3, ignore_eos=True))
    core.run()
    assert set(core.core.in_turn) == {reason}


def test_a_sequence_that_must_give_way_does_so_in_turn(tiny_core: Core, completion_request: Complete) -> None:
    core = cramped_core(tiny_core, "llama", async_scheduling=True)
    device = DelayedDevice(core.core)
    groups = [
        core.add(completion_request(tuple(p), max_tokens=28, ignore_eos=True))
        for p in random_prompts(4, longest=40)
    ]
    num_in_turn = 0
    while core.core.has_work:
        num_events = len(device.events)
        core.step()
        has_run = len(device.events) > num_events
        num_in_turn += has_run and core.core.has_work and not is_ahead(core)
    assert core.core.scheduler.num_preempted
    reasons = core.core.in_turn
    assert {InTurn.MUST_GIVE_WAY} <= {*reasons} <= {InTurn.MUST_GIVE_WAY, InTurn.SHORT_OF_BLOCKS}
    assert reasons.total() == num_in_turn
    assert device.events.count("run ahead") > 20
    assert all(len(ids_of(group)[0]) == 28 for group in groups)


def test_a_step_that_draws_nothing_is_waited_for(
    ahead: Ahead, completion_request: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the host would launch the chunks of a long prompt without end, and no request could leave them."""
    core, device = ahead(max_num_batched_tokens=8)

    class Marker:
        def __init__(self, tensors: Any) -> None:
            device.events.append("mark")

        def tensors(self) -> None:
            device.events.append("wait")

    monkeypatch.setattr(engine_core, "HostCopy", Marker)
    core.add(completion_request(tuple(range(20, 44)), max_tokens=2, ignore_eos=True))
    core.run()
    chunk = ["mark", "run", "wait"]
    assert device.events == ["run", *chunk, *chunk, "draw", "run ahead", "read", "draw", "read"]


def test_steps_do_not_go_ahead_of_whom_they_would_leave_behind(
    ahead: Ahead, completion_request: Complete
) -> None:
    """Another caller, an output that went back, and a prompt's other outputs wait for no stream's end."""
    core, device = ahead(max_num_seqs=2, max_num_prefill_tokens=64)
    own = core.add(completion_request(PROMPT, (7, 8), max_tokens=50, caller="a", ignore_eos=True))
    for _ in range(5):
        core.step()
    assert device.events[-2] == "run ahead"
    core.core.rewind(own, Rewind(0, 2))
    for _ in range(2):
        core.step()
    assert len(ids_of(own)[0]) == 3
    for _ in range(2):
        core.step()
    assert device.events[-2] == "run ahead"
    other = core.add(completion_request(PROMPT, max_tokens=50, caller="b", ignore_eos=True))
    for _ in range(2):
        core.step()
    assert other.num_output_tokens == 1

    core, _ = ahead(max_num_prefill_tokens=64)
    group = core.add(completion_request(tuple(range(20, 60)), n=3, max_tokens=9, ignore_eos=True))
    for _ in range(2):
        core.step()
    assert [len(ids) for ids in ids_of(group)] == [2, 1, 1]


def test_a_step_that_went_ahead_gives_no_token_to_a_request_that_left_and_keeps_none_of_its_blocks(
    ahead: Ahead, completion_request: Complete
) -> None:  # contract 3.3
    core, device = ahead(block_size=4)
    doomed = core.add(completion_request(PROMPT, n=2, max_tokens=50, ignore_eos=True))
    other = core.add(completion_request(PROMPT, max_tokens=30, ignore_eos=True))
    for _ in range(5):
        core.step()
    assert device.events[-2:] == ["run ahead", "read"], "a step is in flight"
    num_deltas, counted = len(core.deltas[doomed]), core.core.stats().generation_tokens_total
    core.core.abort(doomed)
    core.check_blocks()
    alone = len(other.sequences[0].cache.block_table)
    assert core.core.block_manager.num_used == alone
    core.step()
    assert len(core.deltas[doomed]) == num_deltas
    assert core.core.stats().generation_tokens_total == counted + 1
    core.run()
    assert ids_of(other) == [ids_of_alone(ahead, completion_request, 30)]


def ids_of_alone(ahead: Ahead, completion_request: Complete, num_tokens: int) -> list[int]:
    core, _ = ahead()
    group = core.add(completion_request(PROMPT, max_tokens=num_tokens, ignore_eos=True))
    core.run()
    return ids_of(group)[0]


def test_a_token_computed_after_the_end_is_not_known_to_the_prefix_cache(
    ahead: Ahead, completion_request: Complete
) -> None:
    """The stop token would fill a block, in the step that went ahead."""
    whole = ids_of_alone(ahead, completion_request, 20)
    # An id that comes for the first time where it is the last of a block.
    at = next(i for i in range(20) if (len(PROMPT) + i + 1) % 4 == 0 and whole[i] not in whole[:i])
    core, device = ahead(block_size=4)
    known = core.core.block_manager._cached
    group = core.add(completion_request(PROMPT, max_tokens=20, stop_token_ids=(whole[at],), ignore_eos=True))
    core.run()
    assert ids_of(group)[0] == whole[: at + 1]
    assert device.events[-2:] == ["run ahead", "read"], "one token too many was asked for"
    assert len(known) == (len(PROMPT) + at) // 4
    assert core.core.block_manager.num_used == 0


@pytest.mark.parametrize("back", [0, 1, 2, 7])
def test_a_rewind_drops_the_step_that_went_ahead(
    back: int, ahead: Ahead, tiny_core: Core, completion_request: Complete
) -> None:  # contract 8.3
    found = []
    for core in (ahead(block_size=4)[0], tiny_core(block_size=4)):
        request = completion_request(
            PROMPT, n=2, max_tokens=25, temperature=1.0, seed=3, logprobs=3, ignore_eos=True
        )
        group = core.add(request)
        neighbour = core.add(completion_request((9, 8, 7), max_tokens=25, ignore_eos=True))
        while len(ids_of(group)[1]) < 9:
            core.step()
        core.core.rewind(group, Rewind(1, 9 - back))
        core.run()
        found.append((ids_of(group), ids_of(neighbour)))
    assert found[0] == found[1]


def test_memory_that_a_step_ahead_does_not_find_is_found_in_turn(
    ahead: Ahead, completion_request: Complete, caplog: pytest.LogCaptureFixture
) -> None:
    core, device = ahead()
    run = core.core.runner.run

    def short(scheduled: Any, token_ids: Any) -> Any:
        if token_ids is not None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(scheduled, token_ids)

    core.core.runner.run = short  # type: ignore[assignment,method-assign]
    group = core.add(completion_request(PROMPT, max_tokens=6, ignore_eos=True))
    core.run()
    assert not core.errors
    assert device.events == IN_TURN * 6
    assert ids_of(group)[0] == ids_of_alone(ahead, completion_request, 6)
    said = [(r.levelname, r.getMessage(), r.exc_info) for r in caplog.records if r.name == "weir.engine"]
    assert said == [("WARNING", "a step ahead finds too little memory", None)] * 5


def test_the_loss_of_the_device_in_a_step_ahead_ends_the_engine(
    ahead: Ahead, completion_request: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, _ = ahead()

    def lost(*_: Any) -> Any:
        raise torch.AcceleratorError("lost")

    core.add(completion_request(PROMPT, max_tokens=6, ignore_eos=True))
    core.step()
    core.core.runner.run = lost  # type: ignore[assignment,method-assign]
    monkeypatch.setattr(cuda, "synchronize", lost)
    with pytest.raises(DeviceLostError):
        core.step()


def test_a_request_whose_draw_fails_ends_alone(ahead: Ahead, completion_request: Complete) -> None:
    """All its tokens are masked. It has a share of the step that went ahead all the same."""
    core, _ = ahead()
    everything = tuple(range(400))
    doomed = core.add(completion_request(PROMPT, max_tokens=6, min_tokens=3, stop_token_ids=everything))
    other = core.add(completion_request(PROMPT, max_tokens=6, ignore_eos=True))
    core.run()
    assert set(core.errors) == {doomed}
    assert len(ids_of(other)[0]) == 6
    assert core.core.block_manager.num_used == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2**16)),
        st.tuples(st.just("step"), st.integers(1, 6)),
        st.tuples(st.just("abort"), st.integers(0, 2**16)),
    ),
    max_size=25,
)


@pytest.fixture(scope="module")
def both(tiny_core: Core) -> tuple[TinyCore, TinyCore]:
    """One goes ahead, on a delayed device; one runs in turn. Neither has room for all."""
    first, second = (
        cramped_core(tiny_core, "llama", max_num_seqs=3, async_scheduling=is_async)
        for is_async in (True, False)
    )
    DelayedDevice(first.core)
    return first, second


def script(core: TinyCore, actions: list[tuple[str, int]], request: Complete) -> list[Any]:
    """Play the actions. Returns each request's outputs, or what it had when it was aborted.

    An output goes back when it has a number of tokens, whenever that is. An abort comes when it comes.
    """
    groups: list[SequenceGroup] = []
    plans: dict[SequenceGroup, tuple[int, Rewind]] = {}

    def step() -> None:
        core.step()
        for group, (at, rewind) in [*plans.items()]:
            if not group.is_aborted and len(ids_of(group)[rewind.index]) == at:
                del plans[group]
                core.core.rewind(group, rewind)

    for what, number in actions:
        if what == "step":
            for _ in range(number):
                step()
        elif what == "abort" and groups:
            core.core.abort(groups[number % len(groups)])
            core.check_blocks()
        elif what == "add":
            rng = random.Random(number)
            opening = tuple(range(20, 20 + rng.choice((0, 0, 16, 30))))  # others may have computed it
            own_part = tuple(rng.randrange(4, 320) for _ in range(rng.randint(1, 40 - len(opening))))
            prompt, caller = opening + own_part, rng.choice("ab")
            own = rng.choice(
                ({}, {"temperature": 1.0}, {"temperature": 1.0, "n": 2}, {"repetition_penalty": 1.3})
            )
            limit = {"max_tokens": rng.randint(1, 20), "seed": number, "logprobs": 1}
            group = core.add(request(prompt, caller=caller, **limit, **own))
            groups.append(group)
            if rng.random() < 0.5:
                at = rng.randint(1, 10)
                plans[group] = at, Rewind(rng.randrange(len(group.sequences)), rng.randint(0, at))
    while core.core.has_work:
        step()
    core.check_blocks()
    assert not core.errors
    assert core.core.block_manager.num_used == 0
    return groups


@settings(examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=STEPS)
def test_any_mix_of_requests_gets_the_tokens_that_it_gets_in_turn(
    actions: list[tuple[str, int]], both: tuple[TinyCore, TinyCore], completion_request: Complete
) -> None:
    """An aborted output has got as many of them as were in time."""
    first, second = (script(core, actions, completion_request) for core in both)
    for one, other in zip(first, second, strict=True):
        for a, b in zip(ids_of(one), ids_of(other), strict=True):
            if one.is_aborted or other.is_aborted:
                length = min(len(a), len(b))
                a, b = a[:length], b[:length]
            assert a == b
