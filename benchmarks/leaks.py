"""Does anything of a forbidden span get out? `make bench NAME=leaks`.

Random streams, full of a few phrases and of what almost is one, in random tokens and random chunks, go
through guards that redact the phrases or end at them. Of each stream all that is released is compared with
what should be: the text, every token id, every logprob and alternative. What the guards hold is compared with
the longest suffix that could still become a phrase. Outputs end in every way. Where a client chose the place,
or may have, this suffix must not get out either.
"""

import argparse
import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from benchmarks.leak_guards import MATCH, PHRASES, EndAtPhrases, Observer, RedactPhrases, num_undecided
from benchmarks.machine import processor
from benchmarks.shares import in_processes
from engine.protocol import Delta, Deltas, GenerationRequest, ModelInfo, SamplingParams, Token, TopLogprob
from engine.protocol.fields import table
from engine.protocol.fields.asked import steers_end
from engine.protocol.fields.support import FieldSupport
from hooks import Chunk, Verdict
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import vetted
from weir import Guards


def random_tokens(rng: random.Random) -> list[Token]:
    text = "".join(
        rng.choice(PHRASES) if rng.random() < 0.15 else rng.choice("abcde🎉 ")
        for _ in range(rng.randint(1, 40))
    )
    tokens: list[Token] = []
    while text:
        size = rng.randint(1, 5)
        piece, text = text[:size], text[size:]
        i = len(tokens)
        raw = piece.encode()
        if (
            rng.random() < 0.1
        ):  # a token of its own for the first byte: it has no text until the character is whole
            tokens.append(Token(i, "", raw[:1], -0.5, (TopLogprob(1000 + i, raw[:1], -1.0),)))
            i, raw = i + 1, raw[1:]
        tokens.append(Token(i, piece, raw, -0.5, (TopLogprob(1000 + i, raw, -1.0),)))
    return tokens


@dataclass(frozen=True)
class End:
    """The way in which an output ends."""

    last: Delta
    is_cut: bool
    """Whether the client chose the place, or may have (contract 2.9)."""
    asks: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the request, as the endpoints have them."""

    @property
    def request(self) -> GenerationRequest:
        """The request as the service gives it to the guard. Its engine's model ends by the token `EOS`."""
        asks = {**self.asks, "logit_bias": {int(i): b for i, b in self.asks.get("logit_bias", {}).items()}}
        sampling = SamplingParams(**asks)
        made = GenerationRequest(request_id="leaks", model="m", endpoint="chat", sampling=sampling)
        return replace(made, steers_end=steers_end(made, FIELDS, INFO))


EOS = Token(9999, "", b"</s>", -0.5)
FIELDS = FieldSupport(relayed=frozenset(table.FIELDS))
INFO = ModelInfo(vocab_size=10_000, eos_token_ids=frozenset({EOS.id or 0}))
_STOPS = {"stop": PHRASES}
_OWN = Delta(tokens=(EOS,), finish_reason="stop")
ENDS = (
    End(Delta(finish_reason="stop"), False),
    End(_OWN, False, _STOPS),
    End(Delta(finish_reason="tool_calls"), False),
    End(Delta(tokens=(EOS,), finish_reason="tool_calls"), False, _STOPS),
    End(_OWN, False, {"logit_bias": {"5": 3.0}, "temperature": 0.5}),
    End(Delta(finish_reason="length"), True),
    End(Delta(finish_reason="content_filter"), True),
    End(Delta(finish_reason="stop", is_cut=True), True),
    # A stop string ends the output. A parser that finds calls says `tool_calls` for `stop`.
    *(
        End(Delta(finish_reason=reason, stop_reason=stop), True, _STOPS)
        for reason in ("stop", "tool_calls")
        for stop in (*PHRASES, 7, None)
    ),
    # The client steers the end of sequence.
    End(_OWN, True, {"min_tokens": 3}),
    End(_OWN, True, {"min_tokens": 3, "logit_bias": {str(EOS.id): 100.0}}),
    End(_OWN, True, {"logit_bias": {str(EOS.id): -2.0, "5": 3.0}}),
    End(_OWN, True, {"ignore_eos": True}),
)


def random_deltas(rng: random.Random, tokens: list[Token], last: Delta = _OWN) -> Iterator[Delta]:
    rest = list(tokens)
    while rest:
        size = rng.randint(1, 6)
        while size < len(rest) and not rest[size - 1].text:
            size += 1
        taken, rest = rest[:size], rest[size:]
        yield Delta(text="".join(token.text for token in taken), tokens=tuple(taken))
    yield last


def without_beginning(text: str) -> str:
    """The text without a beginning of a phrase at its end."""
    rest = text[max((found.end() for found in MATCH.finditer(text)), default=0) :]
    return text[: len(text) - num_undecided(rest)]


def expected(tokens: list[Token], *, ends: bool, is_cut: bool) -> tuple[str, list[int]]:
    """The text and the ids that may get out."""
    text = "".join(token.text for token in tokens)
    spans = [found.span() for found in MATCH.finditer(text)]
    if ends and spans:
        spans = [(spans[0][0], len(text))]
    elif is_cut:
        spans.append((len(without_beginning(text)), len(text)))
    gone = {i for start, end in spans for i in range(start, end)}
    kept = without_beginning(text) if is_cut else text
    released = text[: spans[0][0]] if ends and spans else MATCH.sub("*", kept)
    ids: list[int] = []
    position, waiting = 0, []
    for token in tokens:
        waiting.append(token.id or 0)
        if token.text:
            if not gone & set(range(position, position + len(token.text))):
                ids += waiting
            position += len(token.text)
            waiting = []
    return released, ids


Hook = Callable[[Chunk], Verdict]
Release = Callable[[Sequence[Hook], GenerationRequest, Sequence[Delta]], Awaitable[list[Delta]]]
"""What hooks release of an answer's deltas."""


async def by_the_proxy(
    hooks: Sequence[Hook], request: GenerationRequest, deltas: Sequence[Delta]
) -> list[Delta]:
    async def source(_: GenerationRequest) -> Deltas:
        for delta in deltas:
            yield delta

    loaded = [LoadedHook("guard", hook, False) for hook in hooks]
    return [delta async for delta in vetted(Pipeline(loaded).open(request), source)]


async def by_the_library(
    hooks: Sequence[Hook], request: GenerationRequest, deltas: Sequence[Delta]
) -> list[Delta]:
    """With and without an event loop, which release the same."""
    guards = Guards(hooks)

    async def source() -> AsyncIterator[Delta]:
        for delta in deltas:
            yield delta

    released = [delta async for delta in guards.open(request).deltas(source())]
    assert list(guards.open(request).deltas(deltas)) == released
    return released


async def run(num_streams: int, seed: int, release: Release = by_the_proxy) -> int:
    """Run so many streams; returns the most characters that a guard held. Raises `AssertionError`."""
    rng = random.Random(seed)
    most = 0
    for _ in range(num_streams):
        ends = rng.random() < 0.3
        guard = EndAtPhrases() if ends else RedactPhrases()

        def watched(chunk: Chunk, guard: EndAtPhrases | RedactPhrases = guard) -> Verdict:
            nonlocal most
            held = chunk.pending[: len(chunk.pending) - len(chunk.text_diff)]
            assert len(held) == num_undecided(held), "held more than could become a phrase"
            most = max(most, len(held))
            return guard(chunk)

        hooks: list[Hook] = [watched]
        if rng.random() < 0.5:
            hooks.insert(rng.randint(0, 1), Observer())
        tokens = random_tokens(rng)
        end = rng.choice(ENDS)
        out = await release(hooks, end.request, list(random_deltas(rng, tokens, end.last)))
        text, ids = expected(tokens, ends=ends, is_cut=end.is_cut)
        given = [token for delta in out for token in delta.tokens if token != EOS]
        assert "".join(delta.text for delta in out) == text
        assert [token.id for token in given] == ids
        assert given == [token for token in tokens if token.id in set(ids)]
    return most


def total(counts: Sequence[Counter[str]]) -> Counter[str]:
    return sum(counts, Counter[str]())


def main() -> None:
    from benchmarks import (
        leaks_again,
        leaks_families,
        leaks_links,
        leaks_messages,
        leaks_prompts,
        leaks_readings,
        leaks_relayed,
        leaks_restored,
        leaks_sources,
        leaks_tools,
    )  # they use the functions above

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=100_000)
    parser.add_argument(
        "--messages", type=int, help="streams over the Messages API, each 25 times as slow (default: as many)"
    )
    parser.add_argument(
        "--library", type=int, default=100_000, help="streams through `import weir` (%(default)s)"
    )
    parser.add_argument("--relayed", type=int, default=10_000, help="answers to embeddings, ranks and scores")
    parser.add_argument("--readings", type=int, default=20_000, help="texts of escapes and their parts")
    parser.add_argument("--links", type=int, default=50_000, help="streams with addresses (%(default)s)")
    parser.add_argument("--families", type=int, default=20_000, help="texts with values of `pii`, `secrets`")
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count(),
        help="for all parts but the first seven (%(default)s)",
    )
    parser.add_argument("--restored", type=int, default=20_000, help="streams whose values come back")
    parser.add_argument("--tools", type=int, default=50_000, help="tool calls in unusual spellings")
    parser.add_argument("--sources", type=int, default=50_000, help="prompts of texts from everybody")
    parser.add_argument("--again", type=int, default=50_000, help="streams whose values stand again")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    shared = partial(in_processes, seed=options.seed, num_processes=options.processes)
    print(processor())
    most = asyncio.run(run(options.streams, options.seed))
    longest = max(map(len, PHRASES)) - 1
    print(f"{options.streams:,} streams: nothing of a forbidden span got out, on any channel.")
    print(f"Held at most {most} characters, never more than could become a phrase (at most {longest}).")
    asyncio.run(run(options.library, options.seed, by_the_library))
    print(f"{options.library:,} through the library, with and without an event loop: nothing got out.")
    num_across = asyncio.run(leaks_prompts.run(options.streams, options.seed))
    print(f"{options.streams:,} after a message, in which {num_across:,} phrases begin: nothing got out.")
    num_messages = options.streams if options.messages is None else options.messages
    counts = asyncio.run(leaks_messages.run(num_messages, options.seed, has_tools=True))
    by_guard = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    print(f"{num_messages:,} over the Messages API, each streamed and not: none leaked ({by_guard}).")
    counts = asyncio.run(leaks_relayed.run(options.relayed, options.seed))
    by_kind = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    print(f"{options.relayed:,} relayed answers: no text of the upstream's own leaked ({by_kind}).")
    num_found = asyncio.run(leaks_readings.run(options.readings, options.seed))
    print(f"{options.readings:,} texts of escapes, each whole and cut: none leaked ({num_found:,} matches).")
    num_restored = asyncio.run(leaks_restored.run(options.restored, options.seed))
    print(f"{options.restored:,} streams in which {num_restored:,} values came back: none of another's, and")
    print("no value reached the model.")
    counts = total(shared(leaks_tools.run, options.tools))
    print(f"{options.tools:,} tool calls, each whole and cut: no denied one left.")
    print(f"{counts['passed']:,} of them passed.")
    counts = total(shared(leaks_sources.run, options.sources))
    by_source = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    print(f"{options.sources:,} prompts: each word kept its source ({by_source}).")
    num_again = sum(shared(leaks_again.run_one, options.again))
    print(f"{options.again:,} streams in which {num_again:,} values stood again by themselves: none got out.")
    num_changed = sum(shared(leaks_links.run_one, options.links))
    print(f"{options.links:,} streams with addresses, {num_changed:,} of them changed: none leaked.")
    outcome = leaks_families.joined(shared(leaks_families.run_one, options.families))
    print(f"{options.families:,} texts with values, each whole and cut: none leaked.")
    print(f"{outcome}.")


if __name__ == "__main__":
    main()
