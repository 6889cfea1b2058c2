"""Chooses the outputs of a request with `best_of` among its candidates."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from engine.protocol import Delta
from engine.scheduling.sequence import Sequence, SequenceGroup


def hold_candidates(deltas: Iterable[tuple[SequenceGroup, Delta]]) -> list[tuple[SequenceGroup, Delta]]:
    """The deltas that can leave the engine now. A candidate's deltas are kept until all candidates of its
    request are finished. Then the best ones leave."""
    released: list[tuple[SequenceGroup, Delta]] = []
    finished: dict[SequenceGroup, None] = {}
    for group, delta in deltas:
        if group.has_choice:
            group.sequences[delta.index].kept.append(delta)
            if delta.finish_reason and group.is_finished:
                finished[group] = None
        else:
            released.append((group, delta))
    return released + [(group, delta) for group in finished for delta in best_candidates(group)]


def best_candidates(group: SequenceGroup) -> Iterator[Delta]:
    """The deltas of the `n` best candidates of each prompt, best first, numbered as outputs.

    The choice is made inside the engine. A reader of the request's deltas, such as a hook, learns nothing of
    the other candidates, except that the usage counts their tokens.
    """
    sampling, usage = group.request.sampling, group.usage
    index = 0
    for first in range(0, len(group.sequences), sampling.num_candidates):
        candidates = group.sequences[first : first + sampling.num_candidates]
        for seq in sorted(candidates, key=logprob_per_token, reverse=True)[: sampling.n]:
            for delta in seq.kept:
                yield replace(delta, index=index, usage=usage)
            index += 1


def logprob_per_token(seq: Sequence) -> float:
    """The OpenAI API's measure for `best_of`. The end of sequence counts as a token."""
    return seq.cumulative_logprob / max(1, seq.num_output_tokens)
