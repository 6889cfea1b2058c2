"""Speculative decoding: guesses at the next tokens, so that one run of the model can decide several.

A guess changes no output. The model computes the guessed tokens behind the sequence's last token. Each next
token is still drawn from its own logits, and a guess counts only while it is the token drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.sampling.prompt_lookup import PromptLookup
from engine.sampling.sampling_state import SamplingState


@dataclass(slots=True)
class Speculation:
    """Makes drafts, and counts how many come true. Names are vLLM's."""

    num_speculative_tokens: int = 0
    """Most tokens in one draft; 0: no drafts."""
    prompt_lookup_min: int = 2
    """Fewest tokens at the end of the text that must have come before."""
    prompt_lookup_max: int = 4
    """Most tokens at the end of the text to look for; they are looked for first."""
    num_drafts: int = field(default=0, init=False)
    num_draft_tokens: int = field(default=0, init=False)
    num_accepted_tokens: int = field(default=0, init=False)

    def draft(self, state: SamplingState, num_tokens: int) -> Sequence[int]:
        """At most `num_tokens` tokens that may come next; often none."""
        if num_tokens <= 0:
            return ()
        if state.lookup is None:
            state.lookup = PromptLookup(self.prompt_lookup_min, self.prompt_lookup_max)
        return state.lookup.propose(state.token_ids, min(num_tokens, self.num_speculative_tokens))
