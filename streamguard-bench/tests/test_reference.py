"""Each planted fault is found by its judge, and in a guard that is right none is found."""

import dataclasses
import sys

import pytest

from streamguard_bench.reference import FAULTS
from streamguard_bench.run import Bench, Result, Size
from streamguard_bench.target import Target

SMALL = Size(leaks=16, harmless=2, others=2, paced=0, max_seconds=20)
TIMED = dataclasses.replace(SMALL, leaks=1, harmless=1, paced=4, pace=0.01)
KINDS = ("email", "card", "ssn", "aws_key", "iban", "phone", "github_token")
COMMAND = [
    sys.executable,
    "-m",
    "streamguard_bench.reference",
    "--upstream",
    "{upstream}",
    "--port",
    "{port}",
]


def target(*options: str, prompts: str = "as they are", failures: tuple[str, ...] = ()) -> Target:
    return Target(
        name="reference",
        command=[*COMMAND, *options],
        apis=("chat", "completions", "messages"),
        guards=KINDS,
        prompts=prompts,  # type: ignore[arg-type]
        failures={how: {"command": [*COMMAND, *options, "--failure", how]} for how in failures},
    )


async def judged(*options: str, size: Size = SMALL, **fields: object) -> Result:
    return await Bench(target(*options, **fields), 3, size).run()  # type: ignore[arg-type]


async def test_no_fault_is_found_in_a_guard_that_is_right() -> None:
    result = await judged(size=dataclasses.replace(SMALL, leaks=56), failures=("down", "slow", "wrong"))
    assert result.faults == {}
    absent = {name for name, counts in result.channels.items() if counts.keys() == {"absent"}}
    assert absent == {"logprobs", "logprobs, whole", "token ids", "token ids, whole"}
    assert {
        name for name, counts in result.channels.items() if counts.keys() == {"withheld"}
    } == result.channels.keys() - absent
    assert all(set(counts) <= {"ended", "refused"} for counts in result.failures.values())


async def test_no_fault_is_found_in_a_guard_that_masks_prompts() -> None:
    assert (await judged("--mask", prompts="restored")).faults == {}


@pytest.mark.parametrize("fault", [name for name, judge in FAULTS.items() if judge not in ("time", "hangs")])
async def test_each_fault_is_found(fault: str) -> None:
    judge = FAULTS[fault]
    if fault.startswith("passes when"):
        how = fault.removeprefix("passes when ")
        assert (await judged("--fault", fault, failures=(how,))).failures[how].get("leaked", 0) > 0
        return
    masks = judge in ("mask", "restore")
    result = await judged(
        *["--mask"] * masks, "--fault", fault, prompts="restored" if masks else "as they are"
    )
    assert judge in {name.partition(":")[0] for name in result.faults}


async def test_a_server_that_does_not_start_with_a_failing_guard_keeps_its_other_results() -> None:
    broken = dataclasses.replace(target(), failures={"down": {"command": [sys.executable, "-c", ""]}})
    result = await Bench(broken, 3, dataclasses.replace(SMALL, leaks=1)).run()
    assert result.failures == {"down": {"did not start": 1}}
    assert result.channels["content"] == {"withheld": 1}


async def test_an_answer_that_never_ends_is_found() -> None:
    size = Size(leaks=1, harmless=1, others=1, paced=0, max_seconds=2)
    result = await judged("--fault", "never ends", size=size)
    assert "hangs" in {name.partition(":")[0] for name in result.faults}


async def test_time_that_is_lost_is_measured() -> None:
    right, late, held, busy = [
        (await judged(*options, size=TIMED)).times
        for options in ((), ("--fault", "late"), ("--fault", "all is held"), ("--fault", "busy"))
    ]
    assert right is not None
    assert late is not None
    assert held is not None
    assert busy is not None
    assert late.first > right.first + 0.3
    assert held.held_most > 2 * right.held_most
    assert busy.cpu_per_piece > right.cpu_per_piece + 0.001
