"""The tokens of one admitted request: as its engine reported them, or an estimate."""

from collections.abc import Sequence

from engine.protocol import GenerationRequest, Usage
from engine.protocol.prompt_size import prompt_size
from proxy.service.rates import Count, Rates
from proxy.service.usage import Used

CHARACTERS_PER_TOKEN = 4
"""The estimate for a request whose engine has not reported the tokens."""


class Spending:
    """The spending of one request, for limits and for the report of usage."""

    __slots__ = ("_counts", "_rates", "_used")

    def __init__(self, rates: Rates, counts: Sequence[Count], used: Used | None) -> None:
        """`counts`: its tokens count there. `used`: and there, if the report has the request."""
        self._rates = rates
        self._counts = counts
        self._used = used

    def settle(self, request: GenerationRequest, usage: Usage | None, num_generated: int = 0) -> None:
        """Count the tokens of the request, which ends now. `usage`: the last one that came, if any. Counts
        that its engine did not report are estimated, from its texts and the pieces that came.
        `num_generated`: characters that the engine generated, the withheld ones among them."""
        prompt, completion, is_estimated = 0, 0, True
        if usage is not None:
            prompt, completion = usage.prompt_tokens, usage.completion_tokens
            is_estimated = usage.is_estimated
        if is_estimated:
            prompt = prompt or estimated_tokens(request)
            completion = max(completion, num_generated // CHARACTERS_PER_TOKEN)
        for count in self._counts:
            self._rates.spend(count, prompt + completion)
        if self._used is not None:
            self._used.add(prompt, completion, is_estimated=is_estimated)


def estimated_tokens(request: GenerationRequest) -> int:
    """The tokens of a request's prompts, about."""
    return prompt_size(request) // CHARACTERS_PER_TOKEN
