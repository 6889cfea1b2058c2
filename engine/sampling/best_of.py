"""Which candidates of a request with `best_of` are its outputs."""

from collections.abc import Iterator
from dataclasses import replace

from engine.core.sequence import Sequence, SequenceGroup
from engine.protocol import Delta


def best_candidates(group: SequenceGroup) -> Iterator[Delta]:
    """What a finished request gives: the `n` best of each prompt's candidates, best first, numbered as
    outputs.

    They are chosen here, before anything of them is given: whoever looks at the request's deltas (a hook,
    say) never learns of the others, but for their tokens in the usage.
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
    """By which the OpenAI API says that `best_of` chooses; the end of sequence is a token like others."""
    return seq.cumulative_logprob / max(1, seq.num_output_tokens)
