"""Beam search: the likeliest whole outputs, instead of tokens drawn one by one.

As vLLM has it: each step asks the engine for one more token of every live hypothesis, with its likeliest
alternatives, and keeps the best of all continuations. The prefix cache makes a hypothesis cost its last few
tokens. Nobody sees a hypothesis before it is chosen (contract 5.5): each comes as a whole, best first.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import Any, Protocol

from engine.core.input_processor import MAX_LOGPROBS, InputProcessor
from engine.core.sequence import Sequence as OneSequence
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

FIELDS = ("use_beam_search", "length_penalty")
"""In `GenerationRequest.extra`. `n` is the width: as many beams live, and as many outputs are given."""
MAX_BEAMS = MAX_LOGPROBS // 2
"""Each step looks at twice as many continuations of a beam, since some may end it."""

MAX_LENGTH_PENALTY = 10
"""Either way: beyond, the powers of lengths leave the range of floats, and nothing else would count."""


class Generate(Protocol):
    """The engine's, for a step. `is_counted`: its prompt is an earlier step's, and what came of that."""

    def __call__(self, request: GenerationRequest, *, is_counted: bool) -> Deltas: ...


def is_beam_search(request: GenerationRequest) -> bool:
    return request.endpoint == "completions" and bool(request.extra.get("use_beam_search"))


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """A possible output: a token, and what stands before it."""

    parent: "Hypothesis | None" = None
    token: Token | None = None
    length: int = 0
    logprob: float = 0.0
    """Of all its tokens."""

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

    sequence: OneSequence
    """Of which prompt, length and ends are taken."""
    width: int
    length_penalty: float
    num_generated: int = 0
    """Tokens, of all hypotheses."""
    salt: str = field(default_factory=secrets.token_hex)
    """Nobody else finds in the cache what was searched: some of it may come to be withheld."""

    async def run(self, request: GenerationRequest, generate: Generate) -> list[Hypothesis]:
        """The best `width`, best first."""
        live, done = [Hypothesis()], list[Hypothesis]()
        for _ in range(self.sequence.max_tokens):
            continuations = await self._continue(live, request, generate)
            live = []
            for rank, candidate in enumerate(nlargest(2 * self.width, continuations, key=_logprob)):
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
        ends = self.sequence.eos_token_ids.union(self.sequence.sampling.stop_token_ids)
        return hypothesis.token is not None and hypothesis.token.id in ends

    async def _continue(
        self, live: Sequence[Hypothesis], request: GenerationRequest, generate: Generate
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

    def _is_decided(self, best: Hypothesis, done: Sequence[Hypothesis]) -> bool:
        """Whether no live hypothesis can come to score better than those that ended."""
        length = self.sequence.max_tokens if self.length_penalty > 0 else best.length
        attainable: float = best.logprob / length**self.length_penalty
        return len(done) == self.width and attainable <= self._score(done[-1])


async def beam_search(
    request: GenerationRequest, processor: InputProcessor, generate: Generate
) -> AsyncGenerator[Delta, None]:
    """The request's outputs, each in one delta. Raises `RequestError`."""
    length_penalty = _check(request)
    if asked := processor.guidance.asked_of(request):
        raise RequestError(f"use_beam_search cannot be had with {asked.field}.", param=asked.field)
    plain = {name: value for name, value in request.extra.items() if name not in FIELDS}
    group = await asyncio.to_thread(processor.process, replace(request, extra=plain))
    _check(group.request)  # with what the server's own processors made of it
    if any(seq.processors for seq in group.sequences):
        # Hypotheses are ranked by what the model says, and each step is a request of its own.
        raise RequestError("use_beam_search cannot be had with logits processors.", param="use_beam_search")
    width = request.sampling.n
    num_generated = 0
    for first in range(0, len(group.sequences), width):
        search = BeamSearch(group.sequences[first], width, length_penalty)
        hypotheses = await search.run(request, generate)
        num_generated += search.num_generated
        usage = Usage(group.num_prompt_tokens, num_generated)
        for seq, hypothesis in zip(group.sequences[first:], hypotheses, strict=False):
            yield _delta(seq, hypothesis, search.is_ended(hypothesis), usage, processor.tokenizer.special_ids)


def _check(request: GenerationRequest) -> float:
    """The length penalty. Raises `RequestError` for what cannot be had together with a search."""
    s, default = request.sampling, SamplingParams()
    length_penalty: Any = request.extra.get("length_penalty", 1.0)
    if isinstance(length_penalty, bool) or not isinstance(length_penalty, int | float):
        raise RequestError("length_penalty must be a number.", param="length_penalty")
    if not -MAX_LENGTH_PENALTY <= length_penalty <= MAX_LENGTH_PENALTY:
        rule = f"between -{MAX_LENGTH_PENALTY} and {MAX_LENGTH_PENALTY}"
        raise RequestError(f"length_penalty must be {rule}.", param="length_penalty")
    if s.n > MAX_BEAMS:
        raise RequestError(f"n must be at most {MAX_BEAMS} with use_beam_search.", param="n")
    if request.echo:
        raise RequestError("echo cannot be had with use_beam_search.", param="echo")
    if s.num_candidates != s.n:
        raise RequestError("best_of cannot be had with use_beam_search.", param="best_of")
    penalties = ("presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias")
    for name in ("stop", "min_tokens", *penalties):
        if getattr(s, name) != getattr(default, name):
            raise RequestError(f"{name} cannot be had with use_beam_search.", param=name)
    return float(length_penalty)


def _logprob(hypothesis: Hypothesis) -> float:
    return hypothesis.logprob


def _continuations(
    beam: Hypothesis, top: Sequence[TopLogprob], num_logprobs: int | None
) -> Iterator[Hypothesis]:
    for one in top:
        token = Token(one.id, "", one.raw)
        if num_logprobs is not None:
            token = Token(one.id, "", one.raw, one.logprob, tuple(top[:num_logprobs]))
        yield Hypothesis(beam, token, beam.length + 1, beam.logprob + one.logprob)


def _delta(
    seq: OneSequence, hypothesis: Hypothesis, is_ended: bool, usage: Usage, special_ids: frozenset[int]
) -> Delta:
    chosen = hypothesis.tokens()
    end = chosen.pop() if is_ended else None
    tokens = [t for token in chosen for t in seq.detokenizer.decode(token)]
    tokens += seq.detokenizer.flush()
    stop_reason = end.id if end is not None and end.id not in seq.eos_token_ids else None
    if end is not None and (stop_reason is None or end.id in special_ids):
        tokens.append(end)  # one that stands for text is not given, like a stop string
    return Delta(
        index=seq.index,
        text="".join(token.text for token in tokens),
        tokens=tuple(tokens),
        finish_reason="length" if end is None else "stop",
        stop_reason=stop_reason,
        prompt_token_ids=tuple(seq.prompt_token_ids),
        usage=usage,
    )
