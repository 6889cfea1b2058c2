"""Prompts that came before the sequences that decode began to decode."""

from dataclasses import dataclass

from engine.turns.bursts import NEVER, Bursts


@dataclass
class One:
    num_uncomputed_tokens: int
    caller: str = ""
    arrival_step: int = NEVER
    prefilled_step: int = NEVER


def begun(bursts: Bursts) -> One:
    seq = One(num_uncomputed_tokens=1)
    bursts.finish_prefill(seq)
    return seq


def test_a_prompt_that_is_added_after_a_step_came_during_it() -> None:
    bursts, prompt = Bursts(8, 8), One(20)
    bursts.begin_step()
    old = begun(bursts)
    bursts.begin_step()
    young = begun(bursts)
    bursts.add(prompt, [old, young], [], 0)
    assert bursts.unprotected_from([young], prompt) == [prompt]
    assert bursts.unprotected_from([old, young], prompt) == []
    assert bursts.unprotected_from([young, prompt], None) == [prompt]


def test_a_prompt_without_a_place_has_not_come_yet() -> None:
    bursts, prompt = Bursts(2, 2), One(20)
    bursts.begin_step()
    running = [begun(bursts), begun(bursts)]
    bursts.add(prompt, running, [], 0)
    assert bursts.unprotected_from(running, prompt) == []
    bursts.begin_step()
    bursts.admit(prompt)
    assert bursts.unprotected_from([running[0], prompt], None) == []
    assert bursts.unprotected_from([begun(bursts), prompt], None) == [prompt]


def test_a_caller_at_its_limit_has_no_place() -> None:
    bursts, mine, other = Bursts(8, 1), One(20, caller="a"), One(20, caller="b")
    bursts.begin_step()
    running = [One(1, caller="a", prefilled_step=1)]
    bursts.add(mine, running, [], 0)
    bursts.add(other, running, [mine], 1)
    assert (mine.arrival_step, other.arrival_step) == (NEVER, 1)


def test_a_preempted_sequence_comes_again_with_its_next_place() -> None:
    bursts, seq = Bursts(8, 8), One(20)
    bursts.begin_step()
    bursts.add(seq, [], [], 0)
    bursts.admit(seq)
    bursts.preempt(seq)
    bursts.begin_step()
    bursts.admit(seq)
    assert seq.arrival_step == 2
