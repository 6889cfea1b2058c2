"""One output in the making, and the request that it belongs to.

A `Sequence` stores token ids and a few counters; everything else is derived, so that nothing can disagree.
Pure Python: the scheduler that moves sequences about needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from engine.core.block_hash import root_hash
from engine.protocol import FinishReason, GenerationRequest, Usage

if TYPE_CHECKING:
    import torch

    from engine.guided.guide import Guide
    from engine.logits_processors.run import Started
    from engine.protocol import Delta, SamplingParams
    from engine.sampling.sampler import Bias, TokenCounts
    from engine.sampling.speculation import PromptLookup
    from engine.text.detokenizer import Detokenizer


Rank = tuple[int, int, int]
"""Priority, turn, arrival."""


class Logprobs(NamedTuple):
    """Of one position, natural and finite."""

    logprob: float
    """The token's that stands there."""
    top: list[tuple[int, float]]
    """Token ids and their logprobs, most likely first."""


@dataclass(eq=False, slots=True)
class Sequence:
    """One output: its prompt and what was generated after it. Once added, it is the engine thread's own."""

    group: SequenceGroup
    index: int
    """Which of the request's candidates: the i-th of prompt p is `p * num_candidates + i`. Where all are
    given, that is `GenerationRequest`'s numbering of outputs."""
    token_ids: list[int]
    """The prompt's and the generated ones."""
    num_prompt_tokens: int
    max_tokens: int
    """`SamplingParams.max_tokens`, or the room that was left."""
    seed: int | None
    eos_token_ids: frozenset[int]
    """Empty if the request ignores them."""
    detokenizer: Detokenizer
    processors: tuple[Started, ...] = ()
    """Its logits processors, with what they keep of it. Made by the `InputProcessor`."""
    guide: Guide | None = None
    """Its place in the grammar that it must follow."""
    echo_texts: tuple[str, ...] | None = None
    """The text that each prompt token completes. None: no echo, or it was given already."""
    num_computed_tokens: int = 0
    """Leading tokens whose keys and values are in the cache. Preemption sets it back to 0."""
    block_table: list[int] = field(default_factory=list)
    """The cache's blocks that hold them; grown and emptied by the `BlockManager`."""
    block_hashes: list[bytes] = field(default_factory=list)
    """Of its first full blocks, as far as the `Scheduler` has needed them."""
    rank: Rank = (0, 0, 0)
    """Whose turn it is: the least goes first, the greatest is preempted first. Given by the `Scheduler`."""
    has_run: bool = False
    """Whether it was ever given blocks."""
    prompt_logprobs: list[Logprobs] = field(default_factory=list)
    """Of the prompt's second token, the third, and so on; filled while the prompt is prefilled."""
    generator: torch.Generator | None = None
    """Made by the `Sampler` at a seeded sequence's first draw. It outlives a preemption, but no rewind."""
    token_counts: TokenCounts | None = None
    """Made by the `Sampler` for a sequence with penalties."""
    lookup: PromptLookup | None = None
    """Made by `Speculation` for a sequence that decodes."""
    cumulative_logprob: float = 0.0
    """Of the tokens drawn, as far as their logprobs were computed."""
    kept: list[Delta] = field(default_factory=list)
    """What is not given yet, of a candidate."""
    queued_at: float = 0.0
    """When it was added, first scheduled, and given its first token, in seconds, by the `EngineMetrics`."""
    scheduled_at: float = 0.0
    begun_at: float = 0.0
    has_begun: bool = False
    """Whether something of it was given out."""
    finish_reason: FinishReason | None = None
    banned: dict[int, frozenset[int]] = field(default_factory=dict)
    """Token ids that must not come, by how many output tokens stand before: what rewinds forbade."""
    num_rewinds: int = 0

    def rewind(self, num_output_tokens: int, banned: Iterable[int] | None = None) -> None:
        """Keep only its first output tokens. `banned` must not come next; None: what came.

        What was made of the ids is made anew when it is needed; of what is cached the `Scheduler` takes care.
        """
        end = self.num_prompt_tokens + num_output_tokens
        ids = self.token_ids[end : end + 1] if banned is None else banned
        del self.token_ids[end:]
        self.banned = {place: old for place, old in self.banned.items() if place <= num_output_tokens}
        self.banned[num_output_tokens] = self.banned.get(num_output_tokens, frozenset()).union(ids)
        self.detokenizer = self.detokenizer.rewound(self.token_ids, num_output_tokens)
        self.generator = self.token_counts = self.lookup = self.finish_reason = None
        self.num_rewinds += 1

    @property
    def draw_seed(self) -> int | None:
        """What its generator begins with. After a rewind it is another, that follows from the seed: how many
        draws there were before depends on when the engine heard of it."""
        if self.seed is None or not self.num_rewinds:
            return self.seed
        return int.from_bytes(sha256(f"{self.seed} {self.num_rewinds}".encode()).digest()[:8])

    @property
    def sampling(self) -> SamplingParams:
        return self.group.request.sampling

    @property
    def num_logprobs(self) -> int | None:
        """Top alternatives that are needed of each token drawn, as `SamplingParams.logprobs` counts them."""
        return 0 if self.group.has_choice and self.sampling.logprobs is None else self.sampling.logprobs

    @property
    def is_first(self) -> bool:
        """Whether it is the first of its prompt's candidates."""
        return self.index % self.sampling.num_candidates == 0

    @property
    def followers(self) -> list[Sequence]:
        """The other candidates of its prompt, if it is the first."""
        last = self.index + self.sampling.num_candidates
        return self.group.sequences[self.index + 1 : last] if self.is_first else []

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def prompt_token_ids(self) -> list[int]:
        return self.token_ids[: self.num_prompt_tokens]

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def needs_prompt_logprobs(self) -> bool:
        """Whether some of the prompt's logprobs are asked for and not known yet."""
        return (
            self.echo_texts is not None
            and self.sampling.logprobs is not None
            and len(self.prompt_logprobs) < self.num_prompt_tokens - 1
        )


@dataclass(eq=False, slots=True)
class SequenceGroup:
    """One request's sequences, and its running totals."""

    request: GenerationRequest
    sequences: list[Sequence] = field(default_factory=list)
    num_prompt_tokens: int = 0
    """Each prompt counted once, whatever `n`."""
    num_output_tokens: int = 0
    """Of all its sequences. Counted, since every delta tells it."""
    num_cached_tokens: int = 0
    """Of its prompts, those that the cache held when their turn came. Filled by the `Scheduler`."""
    root_hash: bytes = root_hash(None)
    """Who may share its blocks: all with the same root."""
    output_secret: bytes = b""
    """If not empty, what only it knows, and so nobody can find the blocks of its outputs."""
    arrival: int | None = None
    """How many requests came before it. Given by the `Scheduler`."""
    bias: Bias | None = None
    """Made by the `Sampler` for a request with a `logit_bias`."""
    is_aborted: bool = False

    @property
    def usage(self) -> Usage:
        return Usage(self.num_prompt_tokens, self.num_output_tokens, self.num_cached_tokens)

    @property
    def has_choice(self) -> bool:
        """Whether not all of its sequences will be given."""
        return self.request.sampling.num_candidates > self.request.sampling.n

    @property
    def is_finished(self) -> bool:
        return all(s.finish_reason for s in self.sequences)
