"""Draws each sequence's next token from its logits.

The order (contract 7.5):
 1. masks: tokens that `min_tokens` forbids now, then the sequence's grammar, then the logits processors that
    mask, then the bans of rewinds. At least one token must remain;
 2. shapers: `logit_bias`, the repetition, frequency and presence penalties, then the logits processors that
    shape. None of them revives a masked token: the built-in ones only add to minus infinity or multiply it,
    and `ProcessorRun` limits the rest;
 3. temperature, top-k, top-p, min-p, with the meanings, ties and rounding of transformers;
 4. the draw. A greedy sequence skips step 3 and takes the most likely token.

A sequence with a seed draws by random numbers of its own (`seeds`). Its tokens do not depend on its
neighbours.

`draw` leaves its results on the device. The host waits for nothing, unless a logits processor reads its
logits. `Drawn.read` gives the tokens to the host, in one copy. The number of operators does not depend on the
number of rows, but for logits processors of the row form.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite

import torch
from torch import Tensor

from engine.device.transfers import HostCopy, on_device, rows_of
from engine.protocol import EngineError, RequestError
from engine.protocol.options import LogprobsMode
from engine.sampling.logits_processors.run import ProcessorRun
from engine.sampling.logprobs import LogprobTensors, logprob_tensors, read_logprobs
from engine.sampling.nucleus import dropped_by_top_p, dropped_by_top_p_of
from engine.sampling.penalties import TokenCounts
from engine.sampling.sampling_state import Logprobs, NoOtherToken, SamplingState
from engine.sampling.seeds import key_of, noise_of, share_of

GREEDY_BELOW = 1e-5
"""A lower temperature counts as 0, as in vLLM: to divide by it would overflow."""


@dataclass(frozen=True, slots=True)
class SampledToken:
    id: int
    logprobs: Logprobs | None


Sampled = SampledToken | NoOtherToken | EngineError | RequestError | None
"""An error: that of the request. None: the model's logits are not numbers."""


class Drawn:
    """The tokens of one draw, on their way to the host."""

    def __init__(
        self,
        token_ids: Tensor,
        best: Tensor,
        states: Sequence[SamplingState],
        run: ProcessorRun,
        logprobs: LogprobTensors | None,
    ) -> None:
        """`best`: the best logit of each row. `logprobs`: of the rows that want some, if any do."""
        self.token_ids = token_ids
        """A token for each row, on the device, `[rows]`. A row that has none to draw has any."""
        self._states = states
        self._run = run
        self._copy = HostCopy([token_ids, best, *run.bests, *(logprobs or ())])

    def read(self) -> list[Sampled]:
        """Row by row. Waits for the device."""
        token_ids, best, *tensors = self._copy.tensors()
        num_bests = len(self._run.bests)
        failed = self._run.failures(tensors[:num_bests])
        logprobs: dict[int, Logprobs] = {}
        if tensors[num_bests:]:
            rows, num_top, asked = _wanted_logprobs(self._states)
            read = read_logprobs(LogprobTensors(*tensors[num_bests:]), num_top, asked)
            logprobs = dict(zip(rows, read, strict=True))
        drawn = zip(token_ids.tolist(), best.tolist(), strict=True)
        return [
            failed[row]
            if row in failed
            else SampledToken(token_id, logprobs.get(row))
            if isfinite(logit)
            else self._run.why_none(row)
            for row, (token_id, logit) in enumerate(drawn)
        ]


class Sampler:
    """`seed`: for the draws of sequences without a seed of their own; None: a fresh one."""

    def __init__(
        self, device: torch.device, *, logprobs_mode: LogprobsMode = "raw_logprobs", seed: int | None = None
    ) -> None:
        self._logprobs_mode = logprobs_mode
        self._counts = TokenCounts(device)
        self._generator = torch.Generator(device)
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed % 2**64)

    @torch.inference_mode()
    def draw(self, logits: Tensor, states: Sequence[SamplingState]) -> Drawn:
        """One token for each row of `logits` `[rows, vocab]`, float32, which are not changed."""
        run = ProcessorRun(logits, states)
        processed = self._process(logits, states, run)
        best, token_ids = _best(processed)
        random = [row for row, s in enumerate(states) if not is_greedy(s)]
        if random:
            drawn_ids = self._draw(rows_of(processed, random), [states[row] for row in random])
            token_ids = token_ids.index_put((_index(random, logits),), drawn_ids)
        # A withdrawn token is not reported as an alternative either.
        source = processed if self._logprobs_mode == "processed_logprobs" else mask_banned(logits, states)
        return Drawn(token_ids, best, states, run, _logprobs(source, token_ids, states))

    def sample(self, logits: Tensor, states: Sequence[SamplingState]) -> list[Sampled]:
        """`draw`, read at once."""
        return self.draw(logits, states).read()

    def _process(self, logits: Tensor, states: Sequence[SamplingState], run: ProcessorRun) -> Tensor:
        for stage in (
            mask_min_tokens,
            run.mask,
            mask_banned,
            run.note_bans,
            add_logit_bias,
            self._penalize_repetition,
            self._penalize_frequency,
            run.shape,
            scale_temperature,
            keep_top_k,
            keep_top_p,
            keep_min_p,
        ):
            logits = stage(logits, states)
        return logits

    def _penalize_repetition(self, logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
        """For each token of the prompt or the output, divide a positive logit and multiply a negative one."""
        asked = [row for row, s in enumerate(states) if s.params.repetition_penalty != 1]
        if not asked:
            return logits
        rows, own = rows_of(logits, asked), [states[row] for row in asked]
        counted = self._counts.update(own, logits.shape[-1])
        penalties = _column([s.params.repetition_penalty for s in own], logits)
        penalized = torch.where(rows < 0, rows * penalties, rows / penalties)
        changed = torch.where(self._counts.seen.index_select(0, counted), penalized, rows)
        return logits.index_copy(0, _index(asked, logits), changed)

    def _penalize_frequency(self, logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
        """Subtract the presence penalty once for each token of the output, the frequency penalty every time
        that it comes."""
        asked = [
            row for row, s in enumerate(states) if s.params.presence_penalty or s.params.frequency_penalty
        ]
        if not asked:
            return logits
        own = [states[row] for row in asked]
        counted = self._counts.update(own, logits.shape[-1])
        times = self._counts.output.index_select(0, counted)
        presence = _column([s.params.presence_penalty for s in own], logits)
        frequency = _column([s.params.frequency_penalty for s in own], logits)
        penalty = presence * (times > 0) + frequency * times
        return logits.index_add(0, _index(asked, logits), penalty, alpha=-1)

    def _draw(self, logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
        """A token for each row: by one random number for the row, which is far cheaper on a CPU than one for
        each token of the vocabulary.

        Other devices add in parallel. Their sums may grow at a token without probability, and a draw could
        fall there (contract 7.5). They also need not add the same way in every batch. So there the draw is
        that of `torch.multinomial`, by a number for each token.
        """
        seeded = [row for row, s in enumerate(states) if s.seed is not None]
        keys = [key_of(s.seed, s.num_rewinds, s.num_output_tokens) for s in states if s.seed is not None]
        if not is_on_cpu(logits):
            noise = torch.empty_like(logits).exponential_(generator=self._generator)
            if seeded:
                noise.index_copy_(0, _index(seeded, logits), noise_of(keys, logits))
            return (logits.softmax(-1) / noise.clamp_min_(torch.finfo(noise.dtype).tiny)).argmax(-1)
        sums = logits.softmax(-1).cumsum(-1)
        # More than 0 and at most 1, so that no token without probability is drawn.
        shares = 1 - torch.rand(len(sums), 1, generator=self._generator)
        if seeded:
            shares.index_copy_(0, _index(seeded, logits), _column([share_of(key) for key in keys], logits))
        drawn = torch.searchsorted(sums, shares * sums[:, -1:]).squeeze(-1)
        return drawn.clamp_max_(sums.shape[-1] - 1)  # of a row that is not numbers, whose token is not used


def is_on_cpu(logits: Tensor) -> bool:
    return logits.device.type == "cpu"


def is_greedy(state: SamplingState) -> bool:
    return state.params.temperature < GREEDY_BELOW


def _wanted_logprobs(states: Sequence[SamplingState]) -> tuple[list[int], list[int], list[tuple[int, ...]]]:
    """The rows that want logprobs; for each, the number of its alternatives and those asked for by id."""
    wanted = {row: n for row, s in enumerate(states) if (n := s.num_logprobs) is not None}
    return list(wanted), list(wanted.values()), [states[row].params.logprob_token_ids for row in wanted]


def _logprobs(logits: Tensor, token_ids: Tensor, states: Sequence[SamplingState]) -> LogprobTensors | None:
    rows, num_top, asked = _wanted_logprobs(states)
    if not rows:
        return None
    return logprob_tensors(rows_of(logits, rows), rows_of(token_ids, rows), num_top, asked=asked)


def _best(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The greatest logit of each row, and its token. A row that is not numbers has no finite one."""
    if not is_on_cpu(logits):
        best, token_ids = logits.max(-1)
        return best, token_ids
    token_ids = torch.from_numpy(logits.numpy().argmax(-1))  # several times as fast as torch's
    return logits.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1), token_ids


# Each stage takes and returns logits `[rows, vocab]`. If no row asks for the stage, it returns them as they
# are.


def mask_min_tokens(logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
    """Forbid the end of sequence and stop ids within the first `min_tokens`."""
    masked = [
        (row, token_id)
        for row, s in enumerate(states)
        if s.guide is not None or s.num_output_tokens < s.params.min_tokens
        for token_id in s.forbidden_ends
    ]
    return _mask(logits, masked)


def mask_banned(logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
    """Forbid the tokens that a rewind banned at this place."""
    masked = [(row, token_id) for row, s in enumerate(states) for token_id in s.banned_here]
    return _mask(logits, masked)


def add_logit_bias(logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
    biased = [(row, s.bias) for row, s in enumerate(states) if s.bias is not None]
    if not biased:
        return logits
    token_ids, biases = zip(*(bias.tensors(logits) for _, bias in biased), strict=True)
    numbers = [len(bias) for _, bias in biased]
    places, repeats = _index([[row for row, _ in biased], numbers], logits).unbind()
    rows = places.repeat_interleave(repeats, output_size=sum(numbers))
    return logits.index_put((rows, torch.cat(token_ids)), torch.cat(biases), accumulate=True)


def scale_temperature(logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
    temperatures = [1.0 if is_greedy(s) else s.params.temperature for s in states]
    if all(t == 1 for t in temperatures):
        return logits
    return logits / _column(temperatures, logits)


def keep_top_k(logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
    vocab = logits.shape[-1]

    def keep(rows: Tensor, ks: list[float]) -> Tensor:
        last = _index([int(k) - 1 for k in ks], rows).unsqueeze(-1)
        return rows.masked_fill(rows < rows.topk(int(max(ks))).values.gather(-1, last), float("-inf"))

    return _where(logits, states, [s.params.top_k for s in states], lambda k: 0 < k < vocab, keep)


def keep_top_p(logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
    """Rows that top-k has left few tokens are apart: they have only these to sort."""
    vocab = logits.shape[-1]
    left = [s.params.top_k if 0 < s.params.top_k < vocab else vocab for s in states]
    most = max((k for k in left if k < vocab), default=0)

    def keep(rows: Tensor, ps: list[float], num_sorted: int) -> Tensor:
        if is_on_cpu(rows):
            # Twice as fast as `masked_fill`.
            return torch.where(dropped_by_top_p(rows, ps), float("-inf"), rows)
        limits = _column([1 - p for p in ps], rows)
        return rows.masked_fill(dropped_by_top_p_of(num_sorted, rows, limits), float("-inf"))

    for num_sorted, few in ((most, True), (vocab, False)):
        values = [s.params.top_p if (k < vocab) is few else 1.0 for s, k in zip(states, left, strict=True)]
        logits = _where(logits, states, values, lambda p: p < 1, partial(keep, num_sorted=num_sorted))
    return logits


def keep_min_p(logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
    def keep(rows: Tensor, ps: list[float]) -> Tensor:
        probs = rows.softmax(-1)
        best = probs.amax(-1, keepdim=True)
        return rows.masked_fill(probs < _column(ps, rows) * best, float("-inf"))

    return _where(logits, states, [s.params.min_p for s in states], lambda p: p > 0, keep)


def _where(
    logits: Tensor,
    states: Sequence[SamplingState],
    values: Sequence[float],
    is_asked: Callable[[float], bool],
    keep: Callable[[Tensor, list[float]], Tensor],
) -> Tensor:
    """Filter the rows that ask for it. Greedy rows are left out: every filter keeps the most likely token."""
    asked = [row for row, s in enumerate(states) if is_asked(values[row]) and not is_greedy(s)]
    if not asked:
        return logits
    chosen = [values[row] for row in asked]
    if len(asked) == len(states):
        return keep(logits, chosen)
    return logits.index_copy(0, _index(asked, logits), keep(rows_of(logits, asked), chosen))


def _mask(logits: Tensor, masked: list[tuple[int, int]]) -> Tensor:
    """`masked`: rows and token ids."""
    if not masked:
        return logits
    rows, ids = _index(masked, logits).unbind(1)
    return logits.index_put((rows, ids), logits.new_full((), float("-inf")))


def _index(values: Sequence[object], like: Tensor) -> Tensor:
    return on_device(values, like.device)


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    """A value for each row, `[rows, 1]`."""
    return on_device(values, like.device, like.dtype).unsqueeze(-1)
