"""Speculative decoding: guesses at the next tokens, so that one run of the model can decide several.

A guess changes no output. The model computes the guessed tokens after the sequence's last token. Each next
token is still drawn from its own logits, and a guess counts only while it is the token drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.sampling.acceptance import Acceptance
from engine.sampling.prompt_lookup import PromptLookup
from engine.sampling.sampling_state import SamplingState


@dataclass(slots=True)
class Speculation:
    """Looks drafts up, and counts how many drafts come true. Names are vLLM's."""

    num_speculative_tokens: int = 0
    """Most tokens in one draft; 0: no drafts."""
    prompt_lookup_min: int = 2
    """Fewest tokens at the end of the text that must have come before."""
    prompt_lookup_max: int = 4
    """Most tokens at the end of the text to look for; they are looked for first."""
    has_lookup: bool = True
    """Whether drafts are looked up in the text."""
    num_drafts: int = field(default=0, init=False)
    num_draft_tokens: int = field(default=0, init=False)
    num_accepted_tokens: int = field(default=0, init=False)

    def look_up(self, state: SamplingState, num_tokens: int) -> Sequence[int]:
        """At most `num_tokens` tokens that may come next; often none."""
        if not self.has_lookup:
            return ()
        if state.lookup is None:
            state.lookup = PromptLookup(self.prompt_lookup_min, self.prompt_lookup_max)
        return state.lookup.propose(state.token_ids, num_tokens)

    def asks_model(self, state: SamplingState) -> bool:
        """Whether the draft model's guesses for this sequence are worth their time. Ask in every step."""
        return state.acceptance is None or not state.acceptance.is_paused(len(state.token_ids))

    def expect(self, state: SamplingState, num_guesses: int) -> None:
        """Note that the draft model guesses the sequence's next tokens."""
        if state.acceptance is None:
            state.acceptance = Acceptance()
        state.acceptance.guess(len(state.token_ids), num_guesses)
