"""Does anything of a forbidden span get out? `make bench-leaks`.

Random streams, full of a few phrases and of what almost is one, in random tokens and random chunks, go
through guards that redact the phrases or end at them. Of each stream all that is released is compared with
what should be: the text, every token id, every logprob and alternative. What the guards hold is compared with
the longest suffix that could still become a phrase.
"""

import argparse
import asyncio
import random
from collections.abc import Iterator

from benchmarks.leak_guards import MATCH, PHRASES, EndAtPhrases, Observer, RedactPhrases, num_undecided
from benchmarks.machine import processor
from engine.protocol import Delta, Deltas, GenerationRequest, Token, TopLogprob
from hooks import Chunk, Verdict
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import vetted


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


def random_deltas(rng: random.Random, tokens: list[Token]) -> Iterator[Delta]:
    rest = list(tokens)
    while rest:
        size = rng.randint(1, 6)
        while size < len(rest) and not rest[size - 1].text:
            size += 1
        taken, rest = rest[:size], rest[size:]
        yield Delta(text="".join(token.text for token in taken), tokens=tuple(taken))
    yield Delta(finish_reason="stop")


def expected(tokens: list[Token], *, ends: bool) -> tuple[str, list[int]]:
    """The text and the ids that may get out."""
    text = "".join(token.text for token in tokens)
    spans = [found.span() for found in MATCH.finditer(text)]
    if ends and spans:
        spans = [(spans[0][0], len(text))]
    gone = {i for start, end in spans for i in range(start, end)}
    released = text[: spans[0][0]] if ends and spans else MATCH.sub("*", text)
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


async def run(num_streams: int, seed: int) -> int:
    """Run so many streams; returns the most characters that a guard held. Raises `AssertionError`."""
    rng = random.Random(seed)
    request = GenerationRequest(request_id="leaks", model="m", endpoint="chat")
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

        hooks = [LoadedHook("guard", watched, False)]
        if rng.random() < 0.5:
            hooks.insert(rng.randint(0, 1), LoadedHook("observer", Observer(), False))
        tokens = random_tokens(rng)

        deltas = list(random_deltas(rng, tokens))

        async def source(request: GenerationRequest, deltas: list[Delta] = deltas) -> Deltas:
            for delta in deltas:
                yield delta

        out = [d async for d in vetted(Pipeline(hooks).open(request), source)]
        text, ids = expected(tokens, ends=ends)
        given = [token for delta in out for token in delta.tokens]
        assert "".join(delta.text for delta in out) == text
        assert [token.id for token in given] == ids
        assert given == [token for token in tokens if token.id in set(ids)]
    return most


def main() -> None:
    from benchmarks import leaks_messages, leaks_prompts, leaks_relayed  # they use the functions above

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=100_000)
    parser.add_argument(
        "--messages", type=int, help="streams over the Messages API, each 25 times as slow (default: as many)"
    )
    parser.add_argument("--relayed", type=int, default=10_000, help="answers to embeddings, ranks and scores")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(processor())
    most = asyncio.run(run(options.streams, options.seed))
    longest = max(map(len, PHRASES)) - 1
    print(f"{options.streams:,} streams: nothing of a forbidden span got out, on any channel.")
    print(f"Held at most {most} characters, never more than could become a phrase (at most {longest}).")
    num_across = asyncio.run(leaks_prompts.run(options.streams, options.seed))
    print(f"{options.streams:,} behind a message, in which {num_across:,} phrases begin: nothing got out.")
    num_messages = options.streams if options.messages is None else options.messages
    counts = asyncio.run(leaks_messages.run(num_messages, options.seed, has_tools=True))
    told = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    print(f"{num_messages:,} over the Messages API, each streamed and not: nothing of one got out ({told}).")
    counts = asyncio.run(leaks_relayed.run(options.relayed, options.seed))
    told = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    print(f"{options.relayed:,} relayed answers: nothing that the upstream said of its own got out ({told}).")


if __name__ == "__main__":
    main()
