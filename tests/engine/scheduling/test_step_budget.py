"""The budget learns the speed of machines whose steps take known times."""

import random
from dataclasses import dataclass
from typing import Any

import pytest

from engine.scheduling.prompt_cost import num_attended
from engine.scheduling.step_budget import (
    FEWEST_PROMPT_TOKENS,
    FIRST_SHARE,
    MAX_MIXED_IN_A_ROW,
    MIN_SHARE,
    PROMPT_SECONDS,
    StepBudget,
)


@dataclass(frozen=True)
class Machine:
    """The seconds of a step: `step` for each step, `decode` for each sequence that decodes, `prefill` if
    there are prompts, `token` for each prompt token, and `context` for each token before each of those."""

    step: float
    decode: float
    prefill: float
    token: float
    context: float = 0.0

    def seconds(self, num_decodes: int, num_tokens: int, num_context: int = 0) -> float:
        attended = num_attended(num_tokens, num_context)
        prefill = self.prefill + num_tokens * self.token + self.context * attended
        return self.step + num_decodes * self.decode + (prefill if num_tokens else 0)


MACHINES = {
    "a tiny model on a CPU": Machine(4e-3, 1e-4, 2e-4, 1.2e-4, 2e-8),
    "a small model on a CPU": Machine(60e-3, 5e-3, 2e-3, 2.5e-3, 1e-7),
    "a CPU that long texts slow": Machine(3e-3, 4e-4, 3e-4, 3.6e-4, 2.5e-7),
    "a CPU with fast matrices and slow attention": Machine(3e-3, 8e-4, 1e-3, 4.3e-5, 1.3e-7),
    "a GPU": Machine(6e-3, 3e-5, 3e-4, 1.5e-5, 1e-10),
    "a small model on a GPU": Machine(2e-3, 1e-5, 1e-3, 3e-6, 1e-10),
}


class Run:
    """Steps of one machine, with eight sequences that decode."""

    def __init__(self, machine: Machine, num_decodes: int = 8) -> None:
        self.machine = machine
        self.budget = StepBudget()
        self.num_decodes = num_decodes
        self.rng = random.Random(0)

    def step(self, num_left: int, num_done: int = 0, num_prompts: int = 1) -> tuple[int, float]:
        """Compute as much of a prompt as allowed. Returns the number of tokens and the step's slowdown."""
        units = self.budget.plan(self.num_decodes, num_prompts)
        num_tokens = min(num_left, self.budget.num_tokens(units, num_done)) if units else 0
        seconds = self.machine.seconds(self.num_decodes, num_tokens, num_done)
        # A step may be late for any reason. Only the work that the budget planned counts here.
        noise = 8.0 if self.rng.random() < 0.03 else self.rng.uniform(1.0, 1.1)
        attended = num_attended(num_tokens, num_done)
        self.budget.observe(self.num_decodes, num_tokens, seconds * noise, attended)
        return num_tokens, seconds / self.machine.seconds(self.num_decodes, 0)

    def prefill(self, num_tokens: int, **crowd: int) -> list[float]:
        """The slowdown of each step until a prompt is computed."""
        done, slowdowns = 0, []
        while done < num_tokens:
            step, slowdown = self.step(num_tokens - done, done, **crowd)
            done += step
            slowdowns.append(slowdown)
        return slowdowns


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_long_prompt_slows_running_streams_by_at_most_two(machine: Machine) -> None:
    run = Run(machine)
    for _ in range(20):
        run.step(0)
    for _ in range(3):
        slowdowns = run.prefill(4000)
        assert max(slowdowns) <= 2
    assert sum(slowdowns) / len(slowdowns) > 1.35, "the room in a step is used"


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_cached_prompt_s_late_tokens_slow_running_streams_no_more_than_early_ones(machine: Machine) -> None:
    run = Run(machine)
    run.prefill(4000)
    run.prefill(500)
    done, slowdowns = 3500, []
    while done < 4000:
        step, slowdown = run.step(4000 - done, done)
        done += step
        slowdowns.append(slowdown)
    assert max(slowdowns) <= 2


def test_decoding_is_measured_before_prompts_get_a_share_and_again_now_and_then() -> None:
    run = Run(MACHINES["a tiny model on a CPU"])
    given = [run.step(10**6)[0] for _ in range(2 * MAX_MIXED_IN_A_ROW + 3)]
    assert [i for i, n in enumerate(given) if not n] == [
        0,
        MAX_MIXED_IN_A_ROW + 1,
        2 * MAX_MIXED_IN_A_ROW + 2,
    ]
    assert given[1] in (FIRST_SHARE - 1, FIRST_SHARE)


def test_prompts_make_progress_however_slow_their_tokens_are() -> None:
    run = Run(Machine(step=1e-3, decode=0, prefill=0, token=1.0))
    given = [run.step(10**6)[0] for _ in range(100)]
    assert set(given[20:]) == {0, *range(2, MIN_SHARE + 1)}


@pytest.mark.parametrize("seed", range(5))
def test_prompts_with_a_large_overhead_are_not_cut_small(seed: int) -> None:
    """Such machines run steps that only decode as one captured graph, and other steps without one."""
    run = Run(Machine(step=3e-3, decode=1e-5, prefill=6e-3, token=1.5e-5))
    run.rng.seed(seed)
    run.prefill(4000)
    slowdowns = run.prefill(4000)
    assert len(slowdowns) < 50
    assert percentile(slowdowns, 0.99) < 6, "prompts add the overhead once more"


def test_the_budget_follows_a_change_of_speed() -> None:
    def learnt(machine: str) -> int:
        run.machine = MACHINES[machine]
        run.prefill(4000)
        run.step(0)
        return run.budget.num_tokens(run.budget.plan(8, 1), 0)

    run = Run(MACHINES["a GPU"])
    fast = learnt("a GPU")
    assert learnt("a small model on a CPU") < fast / 4
    assert learnt("a GPU") > fast / 2


def test_many_waiting_prompts_weigh_more_than_few_decoding_sequences() -> None:
    machine = MACHINES["a tiny model on a CPU"]
    run = Run(machine, num_decodes=1)
    run.step(0)
    slowdowns = run.prefill(31 * 62, num_prompts=31)
    assert len(slowdowns) < 20
    assert max(slowdowns) > 10


def test_a_step_that_only_prefills_teaches_nothing() -> None:
    budget = StepBudget()
    for num_decodes, num_tokens, seconds in ((8, 0, 0.01), (0, 2000, 2.0)):
        budget.plan(8, 1)
        budget.observe(num_decodes, num_tokens, seconds)
    assert budget.plan(8, 1) == FIRST_SHARE


def test_an_unplanned_step_teaches_nothing() -> None:
    budget = StepBudget()
    budget.observe(8, 100, 2.0)
    budget.observe(8, 0, 1.0)
    assert budget.plan(8, 1) == 0
    budget.observe(8, 1, 1.0)
    assert budget.plan(8, 1) == 0


def test_decoding_is_measured_again_when_many_more_sequences_decode() -> None:
    run = Run(MACHINES["a small model on a CPU"])
    run.prefill(500)
    run.num_decodes = 9
    run.step(0)
    assert run.step(10**6)[0]
    run.num_decodes = 16
    assert not run.step(10**6)[0]
    assert run.step(10**6)[0]


def test_a_number_of_decoding_sequences_that_comes_back_is_not_measured_again() -> None:
    run = Run(MACHINES["a small model on a CPU"])
    for run.num_decodes in (1, 8, 30):
        run.step(0)
    for run.num_decodes in (8, 1, 30):
        assert run.step(10**6)[0]


def test_decoding_is_measured_again_when_texts_are_much_longer() -> None:
    budget = StepBudget()
    budget.plan(8, 0, 8 * 10)
    budget.observe(8, 0, 1.0)
    assert budget.plan(8, 1, 8 * 100)
    assert not budget.plan(8, 1, 8 * 1000)


def test_a_fixed_share_is_kept() -> None:
    budget = StepBudget(100)
    for _ in range(50):
        assert budget.plan(8, 3) == 100
        budget.observe(8, 100, 10.0)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_step_without_decodes_comes_to_take_a_known_time(machine: Machine) -> None:
    """A prompt that comes meanwhile waits for its end."""
    budget = StepBudget()
    for i in range(40):
        share: Any = budget.plan_prompts()
        assert share is not None
        late = 8.0 if i % 10 == 5 else 1.0
        budget.observe(0, share, late * machine.seconds(0, share))
    seconds = machine.seconds(0, share)
    assert seconds < 1.3 * PROMPT_SECONDS or share == FEWEST_PROMPT_TOKENS
    assert seconds > 0.5 * PROMPT_SECONDS


def test_one_step_is_enough_to_know_a_fast_machine() -> None:
    """The first prompt of a fresh engine is computed in two steps, not in many small ones."""
    budget = StepBudget()
    budget.observe(0, FEWEST_PROMPT_TOKENS, PROMPT_SECONDS / 20)
    assert budget.plan_prompts() == 20 * FEWEST_PROMPT_TOKENS


def test_a_step_without_decodes_has_the_fewest_tokens_however_late_they_are() -> None:
    budget = StepBudget()
    for num_context in (0, 4096, 100_000):
        units = budget.plan_prompts()
        assert units is not None
        assert budget.num_tokens(units, num_context) == FEWEST_PROMPT_TOKENS


def test_few_prompt_tokens_say_nothing_of_a_step_without_decodes() -> None:
    budget = StepBudget()
    budget.observe(0, FEWEST_PROMPT_TOKENS // 4, 1e-4)
    assert budget.plan_prompts() == FEWEST_PROMPT_TOKENS


def test_a_fixed_share_is_for_steps_with_decodes_alone() -> None:
    assert StepBudget(fixed=7).plan_prompts() is None
