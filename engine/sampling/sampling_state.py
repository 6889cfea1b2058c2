"""How one sequence's next tokens are drawn: all that the sampler reads and keeps. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.protocol import RequestError, SamplingParams
from engine.sampling.acceptance import Acceptance
from engine.sampling.logits_processors import TokenIds
from engine.sampling.logits_processors.started import StartedProcessor
from engine.sampling.prompt_lookup import PromptLookup

if TYPE_CHECKING:
    from engine.sampling.guided.guide import Guide
    from engine.sampling.logit_bias import LogitBias


class Logprobs(NamedTuple):
    """Logprobs at one place of a sequence: natural logarithms, finite."""

    logprob: float
    """The logprob of the token that the sequence has there."""
    top: list[tuple[int, float]]
    """Token ids and their logprobs: the most likely first, or in the order in which they were asked for."""
    rank: int | None = None
    """`Token.rank`. None: not asked for."""


class NoOtherToken:
    """In place of a sequence's next token: rewinds forbid each token that may come."""


class CountedSequence:
    """A sequence's row of `penalties.TokenCounts`. The row is free again once nothing holds this object."""

    def __init__(self, row: int, free_rows: list[int]) -> None:
        self.row = row
        self.num_counted = 0
        """The sequence's first tokens, so many, are counted."""
        self._free_rows = free_rows

    def __del__(self) -> None:
        self._free_rows.append(self.row)


@dataclass(eq=False, slots=True)
class SamplingState:
    request_id: str
    """For the log."""
    params: SamplingParams
    """The request's parameters."""
    token_ids: TokenIds
    """The sequence's tokens so far."""
    eos_token_ids: frozenset[int]
    """Tokens that end the sequence. Empty if the request ignores them and follows no grammar."""
    seed: int | None = None
    bias: LogitBias | None = None
    """None: the request has no `logit_bias`."""
    processors: tuple[StartedProcessor, ...] = ()
    """The sequence's logits processors, in no order. Filled by the `InputProcessor`."""
    guide: Guide | None = None
    """The sequence's place in the grammar that it must follow. None: it follows none."""
    banned: dict[int, frozenset[int]] = field(default_factory=dict)
    """Token ids that rewinds forbid, by the number of output tokens before them."""
    num_rewinds: int = 0
    counted: CountedSequence | None = None
    """The sequence's row of the `Sampler`'s counts, which it makes for a sequence with penalties."""
    lookup: PromptLookup | None = None
    """Made by `Speculation` for a sequence that decodes."""
    acceptance: Acceptance | None = None
    """Made by `Speculation` for a sequence that the draft model has guessed for."""

    def rewind(self, num_output_tokens: int, banned: Iterable[int]) -> None:
        """Forget the sequence's later tokens, and forbid `banned` as the next one. Earlier bans at this place
        stay. State made from token ids is dropped and made again when needed."""
        self.banned = {place: ids for place, ids in self.banned.items() if place <= num_output_tokens}
        self.banned[num_output_tokens] = self.banned.get(num_output_tokens, frozenset()).union(banned)
        self.counted = self.lookup = self.acceptance = None
        self.num_rewinds += 1

    @property
    def banned_here(self) -> frozenset[int]:
        """Token ids that may not come next, because rewinds forbid them."""
        return self.banned.get(self.num_output_tokens, frozenset()) if self.banned else frozenset()

    @property
    def limits(self) -> dict[str, Any]:
        """The processors of the request's `allowed_token_ids` and `bad_words`, by the field."""
        return {one.entry.field: one.call for one in self.processors if one.entry.field is not None}

    @property
    def forbidden_ends(self) -> frozenset[int]:
        """The tokens that may not end the sequence yet. The end of its grammar may always end it."""
        if self.guide is not None and self.guide.must_end:
            return frozenset()
        if self.num_output_tokens < self.params.min_tokens:
            return self.eos_token_ids.union(self.params.stop_token_ids)
        return self.eos_token_ids if self.params.ignore_eos else frozenset()

    def no_token_left(self) -> RequestError:
        """The error of a request whose grammar and `limits` leave no token (contract 7.5)."""
        limits = [] if self.guide is None else [self.guide.field]
        limits += self.limits
        if self.num_output_tokens < self.params.min_tokens:
            limits.append("min_tokens")
        leave = "leaves" if len(limits) == 1 else "leave"
        return RequestError(f"{' and '.join(limits)} {leave} no token that may come next.", param=limits[-1])

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.token_ids.num_prompt_tokens

    @property
    def num_logprobs(self) -> int | None:
        """Top alternatives to compute for each token drawn, counted as in `SamplingParams.logprobs`.
        Candidates need the logprobs of their own tokens, because they are chosen by them."""
        has_choice = self.params.num_candidates > self.params.n
        return 0 if has_choice and self.params.logprobs is None else self.params.logprobs
