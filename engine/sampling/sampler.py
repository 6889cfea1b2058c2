"""Draws each sequence's next token from its logits.

The order (contract 7.5):
 1. masks: tokens that must not come now (`min_tokens`), then what the sequence's grammar forbids, then the
    logits processors that mask, then what rewinds banned; at least one token must remain;
 2. shapers: `logit_bias`, the repetition, frequency and presence penalties, then the logits processors that
    shape. What is built in only adds to a masked token's minus infinity, or multiplies it, so it never
    revives it; of the others, `ProcessorRun` sees to that;
 3. temperature, top-k, top-p, min-p, with transformers' meanings, ties and rounding;
 4. the draw. A greedy sequence skips 3 and takes the most likely token.

A sequence with a seed draws from a generator of its own, on a row of its own, so what it draws does not
depend on its neighbours.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engine.config import LogprobsMode
from engine.core.sequence import Logprobs, Sequence, SequenceGroup
from engine.logits_processors.run import ProcessorRun
from engine.protocol import LogitsProcessorError
from engine.text.alignment import LOGPROB_FLOOR

GREEDY_BELOW = 1e-5
"""Temperatures below are taken as 0, as in vLLM: dividing by them would overflow."""


@dataclass(frozen=True, slots=True)
class SampledToken:
    id: int
    logprobs: Logprobs | None


Sampled = SampledToken | LogitsProcessorError | None
"""None: there is no token to draw, since all are masked or the logits are not numbers."""


class TokenCounts:
    """Which tokens one sequence has, for its penalties. Kept on the sequence."""

    def __init__(self, vocab_size: int, num_prompt_tokens: int, device: torch.device) -> None:
        self.seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        """Prompt and output."""
        self.output = torch.zeros(vocab_size, device=device)
        """How often each stands in the output."""
        self._num_prompt_tokens = num_prompt_tokens
        self._num_counted = 0

    def update(self, token_ids: list[int]) -> None:
        new = torch.tensor(token_ids[self._num_counted :], dtype=torch.long, device=self.seen.device)
        self.seen[new] = True
        generated = new[max(0, self._num_prompt_tokens - self._num_counted) :]
        self.output.index_add_(0, generated, torch.ones_like(generated, dtype=self.output.dtype))
        self._num_counted = len(token_ids)


class Bias(NamedTuple):
    """A request's `logit_bias`: it may be of the whole vocabulary. Kept on the request's group."""

    token_ids: Tensor
    values: Tensor


class Sampler:
    """`seed`: of the draws of sequences without one of their own; None: a fresh one."""

    def __init__(
        self, device: torch.device, *, logprobs_mode: LogprobsMode = "raw_logprobs", seed: int | None = None
    ) -> None:
        self._logprobs_mode = logprobs_mode
        self._generator = torch.Generator(device)
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed % 2**64)

    @torch.inference_mode()
    def sample(self, logits: Tensor, sequences: Seq[Sequence]) -> list[Sampled]:
        """One token for each row of `logits` `[rows, vocab]`, float32, which are left as they are."""
        run = ProcessorRun(logits, sequences)
        processed = self._process(logits, sequences, run)
        best, token_ids = processed.max(-1)
        is_drawable = best.isfinite()
        random = [row for row, s in enumerate(sequences) if not is_greedy(s)]
        if random:
            drawn = self._draw(processed[random], [sequences[row] for row in random])
            token_ids = token_ids.index_put((_index(random, logits),), drawn)
        # Not even among the alternatives is there what was taken back.
        source = processed if self._logprobs_mode == "processed_logprobs" else mask_banned(logits, sequences)
        logprobs = self._logprobs(source, token_ids, sequences)
        return [
            run.failed.get(row, SampledToken(token_id, logprobs.get(row)) if drawable else None)
            for row, (token_id, drawable) in enumerate(
                zip(token_ids.tolist(), is_drawable.tolist(), strict=True)
            )
        ]

    def _process(self, logits: Tensor, sequences: Seq[Sequence], run: ProcessorRun) -> Tensor:
        for stage in (
            mask_min_tokens,
            run.mask,
            mask_banned,
            add_logit_bias,
            penalize_repetition,
            penalize_frequency,
            run.shape,
            scale_temperature,
            keep_top_k,
            keep_top_p,
            keep_min_p,
        ):
            logits = stage(logits, sequences)
        return logits

    def _draw(self, logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
        # What `torch.multinomial(probs, num_samples=1)` does, but for a generator for each seeded row.
        noise = torch.empty_like(logits)
        if any(s.seed is None for s in sequences):
            noise.exponential_(generator=self._generator)
        for row, s in enumerate(sequences):
            if s.seed is not None:
                if s.generator is None:
                    assert s.draw_seed is not None
                    s.generator = torch.Generator(logits.device).manual_seed(s.draw_seed % 2**64)
                noise[row].exponential_(generator=s.generator)
        return (logits.softmax(-1) / noise.clamp_min_(torch.finfo(noise.dtype).tiny)).argmax(-1)

    def _logprobs(self, logits: Tensor, token_ids: Tensor, sequences: Seq[Sequence]) -> dict[int, Logprobs]:
        wanted = {row: n for row, s in enumerate(sequences) if (n := s.num_logprobs) is not None}
        if not wanted:
            return {}
        rows = _index(list(wanted), logits)
        return dict(
            zip(wanted, logprobs_of(logits[rows], token_ids[rows], list(wanted.values())), strict=True)
        )


def is_greedy(seq: Sequence) -> bool:
    return seq.sampling.temperature < GREEDY_BELOW


@torch.inference_mode()
def logprobs_of(logits: Tensor, token_ids: Tensor, num_top: Seq[int]) -> list[Logprobs]:
    """The tokens' logprobs and their `num_top` best alternatives, row by row of `logits` `[rows, vocab]`."""
    logprobs = logits.log_softmax(-1).nan_to_num(nan=LOGPROB_FLOOR).clamp_min(LOGPROB_FLOOR)
    chosen = logprobs.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1).tolist()
    top = logprobs.topk(min(max(num_top, default=0), logits.shape[-1]), dim=-1)
    return [
        Logprobs(logprob, list(zip(ids[:n], values[:n], strict=True)))
        for logprob, ids, values, n in zip(
            chosen, top.indices.tolist(), top.values.tolist(), num_top, strict=True
        )
    ]


# Each stage takes and gives [rows, vocab], and gives what it took if no row asks for it.


def mask_min_tokens(logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
    """No end of sequence and no stop id within the first `min_tokens`."""
    masked = [
        (row, token_id)
        for row, s in enumerate(sequences)
        if s.guide is not None or s.num_output_tokens < s.sampling.min_tokens
        for token_id in _too_early(s)
    ]
    return _mask(logits, masked)


def mask_banned(logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
    """None of the tokens that must not come at this place, since a rewind said so."""
    masked = [
        (row, token_id)
        for row, s in enumerate(sequences)
        if s.banned
        for token_id in s.banned.get(s.num_output_tokens, ())
    ]
    return _mask(logits, masked)


def _too_early(seq: Sequence) -> frozenset[int]:
    """The tokens that must not end it yet. What ends its grammar ends it in any case."""
    if seq.guide is not None and seq.guide.must_end:
        return frozenset()
    if seq.num_output_tokens < seq.sampling.min_tokens:
        return seq.eos_token_ids.union(seq.sampling.stop_token_ids)
    return seq.eos_token_ids if seq.sampling.ignore_eos else frozenset()


def add_logit_bias(logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
    asked = [(row, _bias(s.group, logits)) for row, s in enumerate(sequences) if s.sampling.logit_bias]
    if not asked:
        return logits
    rows = torch.cat([torch.full_like(bias.token_ids, row) for row, bias in asked])
    token_ids = torch.cat([bias.token_ids for _, bias in asked])
    return logits.index_put((rows, token_ids), torch.cat([b.values for _, b in asked]), accumulate=True)


def _bias(group: SequenceGroup, logits: Tensor) -> Bias:
    if group.bias is None:
        biases = group.request.sampling.logit_bias
        group.bias = Bias(_index(list(biases), logits), logits.new_tensor(list(biases.values())))
    return group.bias


def penalize_repetition(logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
    """Divide what speaks for a token that was in prompt or output, and multiply what speaks against it."""
    asked = [row for row, s in enumerate(sequences) if s.sampling.repetition_penalty != 1]
    if not asked:
        return logits
    rows, index = logits[asked], _index(asked, logits)
    seen = torch.stack([_counts(sequences[row], logits).seen for row in asked])
    penalties = logits.new_tensor([sequences[row].sampling.repetition_penalty for row in asked]).unsqueeze(-1)
    penalized = torch.where(rows < 0, rows * penalties, rows / penalties)
    return logits.index_copy(0, index, torch.where(seen, penalized, rows))


def penalize_frequency(logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
    """Subtract for each token of the output: the presence penalty once, the frequency penalty every time."""
    asked = [
        row for row, s in enumerate(sequences) if s.sampling.presence_penalty or s.sampling.frequency_penalty
    ]
    if not asked:
        return logits
    counts = torch.stack([_counts(sequences[row], logits).output for row in asked])
    samplings = [sequences[row].sampling for row in asked]
    presence = logits.new_tensor([s.presence_penalty for s in samplings]).unsqueeze(-1)
    frequency = logits.new_tensor([s.frequency_penalty for s in samplings]).unsqueeze(-1)
    penalty = presence * (counts > 0) + frequency * counts
    return logits.index_add(0, _index(asked, logits), penalty, alpha=-1)


def _counts(seq: Sequence, logits: Tensor) -> TokenCounts:
    """The sequence's counts, brought up to date: what a step adds is one token, however long it is."""
    if seq.token_counts is None:
        seq.token_counts = TokenCounts(logits.shape[-1], seq.num_prompt_tokens, logits.device)
    seq.token_counts.update(seq.token_ids)
    return seq.token_counts


def scale_temperature(logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
    temperatures = [1.0 if is_greedy(s) else s.sampling.temperature for s in sequences]
    if all(t == 1 for t in temperatures):
        return logits
    return logits / logits.new_tensor(temperatures).unsqueeze(-1)


def keep_top_k(logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
    vocab = logits.shape[-1]

    def keep(rows: Tensor, ks: list[float]) -> Tensor:
        last = _index([int(k) - 1 for k in ks], rows).unsqueeze(-1)
        return rows.masked_fill(rows < rows.topk(int(max(ks))).values.gather(-1, last), float("-inf"))

    return _where(logits, sequences, [s.sampling.top_k for s in sequences], lambda k: 0 < k < vocab, keep)


def keep_top_p(logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
    def keep(rows: Tensor, ps: list[float]) -> Tensor:
        ascending, ids = rows.sort(descending=False)
        dropped = ascending.softmax(-1).cumsum(-1) <= rows.new_tensor([1 - p for p in ps]).unsqueeze(-1)
        dropped[:, -1] = False
        return rows.masked_fill(dropped.scatter(-1, ids, dropped), float("-inf"))

    return _where(logits, sequences, [s.sampling.top_p for s in sequences], lambda p: p < 1, keep)


def keep_min_p(logits: Tensor, sequences: Seq[Sequence]) -> Tensor:
    def keep(rows: Tensor, ps: list[float]) -> Tensor:
        probs = rows.softmax(-1)
        best = probs.amax(-1, keepdim=True)
        return rows.masked_fill(probs < rows.new_tensor(ps).unsqueeze(-1) * best, float("-inf"))

    return _where(logits, sequences, [s.sampling.min_p for s in sequences], lambda p: p > 0, keep)


def _where(
    logits: Tensor,
    sequences: Seq[Sequence],
    values: Seq[float],
    is_asked: Callable[[float], bool],
    keep: Callable[[Tensor, list[float]], Tensor],
) -> Tensor:
    """Filter the rows that ask for it. Greedy ones need not: every filter keeps the most likely token."""
    asked = [row for row, s in enumerate(sequences) if is_asked(values[row]) and not is_greedy(s)]
    if not asked:
        return logits
    chosen = [values[row] for row in asked]
    if len(asked) == len(sequences):
        return keep(logits, chosen)
    rows = _index(asked, logits)
    return logits.index_copy(0, rows, keep(logits[rows], chosen))


def _mask(logits: Tensor, masked: list[tuple[int, int]]) -> Tensor:
    """`masked`: rows and token ids."""
    if not masked:
        return logits
    rows, ids = _index(masked, logits).unbind(1)
    return logits.index_put((rows, ids), logits.new_tensor(float("-inf")))


def _index(values: Seq[object], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.long, device=like.device)
