"""Beam search: finds the likeliest whole outputs, instead of drawing tokens one by one.

It works as in vLLM. Each step asks the engine for one more token of every live hypothesis, with the likeliest
alternatives, and keeps the best of all continuations. With the prefix cache, a hypothesis costs its last few
tokens. A hypothesis leaves this module when it is chosen, as a whole, best first (contract 5.5).
"""

import secrets
from collections.abc import Awaitable, Callable, Iterator
from collections.abc import Sequence as Seq
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from heapq import nlargest
from operator import attrgetter
from typing import Any, Protocol

from engine.core.input_processor import MAX_LOGPROBS, SEARCH_FIELDS, InputProcessor
from engine.core.output_processor import last_tokens
from engine.protocol import (
    Delta,
    Deltas,
    GenerationRequest,
    RequestError,
    SamplingParams,
    Token,
    TopLogprob,
    Usage,
)
from engine.scheduling.sequence import Sequence, SequenceGroup

MAX_BEAMS = MAX_LOGPROBS // 2
"""Each step looks at twice as many continuations as there are beams, since some of them may end a beam."""
MAX_LENGTH_PENALTY = 10
"""In either direction. Beyond it, powers of lengths leave the range of floats."""


Process = Callable[[GenerationRequest], Awaitable[SequenceGroup]]


class Generate(Protocol):
    """Asks the engine for one step. `is_counted`: an earlier step has counted the prompt and its tokens."""

    def __call__(self, request: GenerationRequest, *, is_counted: bool) -> Deltas: ...


def is_beam_search(request: GenerationRequest) -> bool:
    return request.endpoint == "completions" and bool(request.extra.get("use_beam_search"))


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """A possible output: a token, and the hypothesis before it."""

    parent: "Hypothesis | None" = None
    token: Token | None = None
    length: int = 0
    logprob: float = 0.0
    """Sum over all its tokens."""

    def tokens(self) -> list[Token]:
        tokens: list[Token] = []
        at: Hypothesis | None = self
        while at is not None and at.token is not None:
            tokens.append(at.token)
            at = at.parent
        return tokens[::-1]


@dataclass(slots=True)
class BeamSearch:
    """The search for one prompt's outputs."""

    sequence: Sequence
    """Gives the prompt, the length and the tokens that end an output."""
    width: int
    length_penalty: float
    num_generated: int = 0
    """Tokens of all hypotheses."""
    salt: str = field(default_factory=secrets.token_hex)
    """Keeps the searched texts out of other requests' reach in the cache, since hooks may withhold some."""

    async def run(self, request: GenerationRequest, generate: Generate) -> list[Hypothesis]:
        """The best `width` hypotheses, best first."""
        live, done = [Hypothesis()], list[Hypothesis]()
        for _ in range(self.sequence.max_tokens):
            continuations = await self._continue(live, request, generate)
            live = []
            for rank, candidate in enumerate(
                nlargest(2 * self.width, continuations, key=attrgetter("logprob"))
            ):
                if not self.is_ended(candidate):
                    live.append(candidate)
                elif rank < self.width:
                    done.append(candidate)
            live = live[: self.width]
            done = nlargest(self.width, done, key=self._score)
            if not live or self._is_decided(live[0], done):
                return done
        return nlargest(self.width, [*done, *live], key=self._score)

    def is_ended(self, hypothesis: Hypothesis) -> bool:
        state = self.sequence.sampling
        ends = state.eos_token_ids.union(state.params.stop_token_ids)
        return hypothesis.token is not None and hypothesis.token.id in ends

    async def _continue(
        self, live: Seq[Hypothesis], request: GenerationRequest, generate: Generate
    ) -> list[Hypothesis]:
        prompt = self.sequence.prompt_token_ids
        prompts = tuple((*prompt, *(t.id for t in beam.tokens() if t.id is not None)) for beam in live)
        num_top = max(2 * self.width, request.sampling.logprobs or 0)
        sampling = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True, logprobs=num_top)
        salt = self.salt
        step = replace(request, prompts=prompts, sampling=sampling, extra={}, echo=False, cache_salt=salt)
        continuations: list[Hypothesis] = []
        async with aclosing(generate(step, is_counted=live[0].length > 0)) as deltas:
            async for delta in deltas:
                for token in delta.tokens:
                    continuations += _continuations(live[delta.index], token.top, request.sampling.logprobs)
        self.num_generated += len(live)
        return continuations

    def _score(self, hypothesis: Hypothesis) -> float:
        divisor: float = max(1, hypothesis.length) ** self.length_penalty
        return hypothesis.logprob / divisor

    def _is_decided(self, best: Hypothesis, done: Seq[Hypothesis]) -> bool:
        """Whether no live hypothesis can still score better than those that have ended."""
        length = self.sequence.max_tokens if self.length_penalty > 0 else best.length
        attainable: float = best.logprob / length**self.length_penalty
        return len(done) == self.width and attainable <= self._score(done[-1])


async def beam_search(
    request: GenerationRequest, processor: InputProcessor, process: Process, generate: Generate
) -> Deltas:
    """The request's outputs, each in one delta. `process` calls `processor.process` when it is the caller's
    turn. Raises `RequestError`."""
    length_penalty = _check(request)
    if processor.probes:  # a hypothesis' tokens are alternatives, which the model has not read
        raise RequestError("use_beam_search cannot be combined with probes.", param="use_beam_search")
    if grammar := processor.guidance.requested_grammar(request):
        raise RequestError(f"use_beam_search cannot be combined with {grammar.field}.", param=grammar.field)
    plain = {name: value for name, value in request.extra.items() if name not in SEARCH_FIELDS}
    with closing(await process(replace(request, extra=plain))) as group:
        _check(group.request)  # now with the changes that the server's own processors made
        for limit in group.sequences[0].sampling.limits:
            raise RequestError(f"use_beam_search cannot be combined with {limit}.", param=limit)
        if any(seq.sampling.processors for seq in group.sequences):
            # Hypotheses are ranked by the model's own logprobs, and each step is a request of its own.
            raise RequestError(
                "use_beam_search cannot be combined with logits processors.", param="use_beam_search"
            )
        width = request.sampling.n
        num_generated = 0
        for first in range(0, len(group.sequences), width):
            search = BeamSearch(group.sequences[first], width, length_penalty)
            hypotheses = await search.run(request, generate)
            num_generated += search.num_generated
            usage = Usage(group.num_prompt_tokens, num_generated)
            for seq, hypothesis in zip(group.sequences[first:], hypotheses, strict=False):
                yield _delta(
                    seq, hypothesis, search.is_ended(hypothesis), usage, processor.tokenizer.special_ids
                )


def _check(request: GenerationRequest) -> float:
    """The length penalty. Raises `RequestError` for a field that a search cannot honour."""
    s, default = request.sampling, SamplingParams()
    length_penalty: Any = request.extra.get("length_penalty", 1.0)
    if isinstance(length_penalty, bool) or not isinstance(length_penalty, int | float):
        raise RequestError("length_penalty must be a number.", param="length_penalty")
    if not -MAX_LENGTH_PENALTY <= length_penalty <= MAX_LENGTH_PENALTY:
        rule = f"between -{MAX_LENGTH_PENALTY} and {MAX_LENGTH_PENALTY}"
        raise RequestError(f"length_penalty must be {rule}.", param="length_penalty")
    if s.n > MAX_BEAMS:
        raise RequestError(f"n must be at most {MAX_BEAMS} with use_beam_search.", param="n")
    penalties = ("presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias")
    is_combined = {
        "echo": request.echo,
        "prompt_logprobs": s.prompt_logprobs is not None,
        "best_of": s.num_candidates != s.n,
        "logprob_token_ids": bool(s.logprob_token_ids),
        **{name: getattr(s, name) != getattr(default, name) for name in ("stop", "min_tokens", *penalties)},
    }
    for name, is_set in is_combined.items():
        if is_set:
            raise RequestError(f"{name} cannot be combined with use_beam_search.", param=name)
    return float(length_penalty)


def _continuations(beam: Hypothesis, top: Seq[TopLogprob], num_logprobs: int | None) -> Iterator[Hypothesis]:
    for one in top:
        token = Token(one.id, "", one.raw)
        if num_logprobs is not None:
            token = Token(one.id, "", one.raw, one.logprob, tuple(top[:num_logprobs]))
        yield Hypothesis(beam, token, beam.length + 1, beam.logprob + one.logprob)


def _delta(
    seq: Sequence, hypothesis: Hypothesis, is_ended: bool, usage: Usage, special_ids: frozenset[int]
) -> Delta:
    chosen = hypothesis.tokens()
    end = chosen.pop() if is_ended else None
    decided = tuple(t for token in chosen for t in seq.detokenizer.decode(token))
    rest, stop_reason = (seq.detokenizer.flush(), None) if end is None else last_tokens(seq, end, special_ids)
    tokens = decided + rest
    return Delta(
        index=seq.index,
        text="".join(token.text for token in tokens),
        tokens=tokens,
        finish_reason="length" if end is None else "stop",
        stop_reason=stop_reason,
        prompt_token_ids=tuple(seq.prompt_token_ids),
        usage=usage,
    )
