"""A request's parameters of sampling."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.protocol.processor_specs import LogitsProcessorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to draw tokens and when to stop. Names and meanings are vLLM's. The defaults change nothing."""

    n: int = 1
    """Outputs for each prompt."""
    best_of: int | None = None
    """Candidates to generate for each prompt, at least `n`. The `n` with the highest logprob per token become
    outputs. None: `n`."""
    max_tokens: int | None = None
    """Most tokens to generate for each output. None: as many as the model's context has room for."""
    min_tokens: int = 0
    """Before so many tokens, no end-of-sequence token, stop string or stop id ends an output."""
    temperature: float = 1.0
    """0: always the most likely token."""
    top_k: int = 0
    """0: all tokens."""
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    """Output i of each prompt has its own random generator, with the seed `seed + i`."""
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    """Top alternatives for each token. 0: the chosen token's logprob only. None: no logprobs."""
    logprob_token_ids: tuple[int, ...] = ()
    """If given, beside `logprobs`: each token's alternatives are exactly these, in this order, however likely
    they are."""
    prompt_logprobs: int | None = None
    """Top alternatives for each token of the prompt, counted as in `logprobs`. If given, each output begins
    with the whole prompt on the `echo` channel."""
    logits_processors: tuple[LogitsProcessorSpec, ...] = ()
    """Processors beside those of every request. An engine that cannot run them refuses the request."""

    @property
    def num_candidates(self) -> int:
        """Candidates to generate for each prompt."""
        return max(self.n, self.best_of or 0)

    @property
    def num_top_logprobs(self) -> int:
        """Alternatives of each token that the caller gets."""
        return len(self.logprob_token_ids) or self.logprobs or 0
