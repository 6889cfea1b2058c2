"""The same seeded requests, one after another and all together: what clients get must be the same words."""

import asyncio
import random
from typing import NamedTuple

import openai

CLIENTS = 16
"""Requests that run together."""


class Asked(NamedTuple):
    prompt: str
    seed: int
    n: int
    max_tokens: int


class Got(NamedTuple):
    """One output: its tokens, and their logprobs to the last digit."""

    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]


def requests_about(text: str, number: int, longest: int, max_tokens: int) -> list[Asked]:
    """Prompts of up to `longest` words of `text`. A third of them begin with the same words."""
    words, rng = text.split(), random.Random(7)

    def some(most: int) -> str:
        at = rng.randrange(len(words) - most)
        return " ".join(words[at : at + rng.randint(1, most)])

    shared = " ".join(words[:longest]) + " "
    return [
        Asked(
            shared * (i % 3 == 0) + some(longest), seed=100 * i, n=1 + 2 * (i % 5 == 1), max_tokens=max_tokens
        )
        for i in range(number)
    ]


async def _output(client: openai.AsyncOpenAI, model: str, asked: Asked, n: int, *, stream: bool) -> Got:
    """The first of `n` outputs."""
    answer = await client.completions.create(
        model=model,
        prompt=asked.prompt,
        seed=asked.seed,
        n=n,
        max_tokens=asked.max_tokens,
        temperature=0.9,
        top_p=0.95,
        logprobs=1,
        stream=stream,
    )
    if isinstance(answer, openai.AsyncStream):
        choices = [choice async for chunk in answer for choice in chunk.choices]
    else:
        choices = answer.choices
    logprobs = [c.logprobs for c in choices if c.index == 0 and c.logprobs is not None]
    return Got(
        tuple(token for one in logprobs for token in one.tokens or ()),
        tuple(value for one in logprobs for value in one.token_logprobs or ()),
    )


def _client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=600)


async def one_by_one(url: str, model: str, requests: list[Asked]) -> list[Got]:
    """Whole answers with one output, each computed alone."""
    async with _client(url) as client:
        return [await _output(client, model, asked, 1, stream=False) for asked in requests]


async def together(url: str, model: str, requests: list[Asked]) -> list[Got]:
    """Streamed answers, then whole ones, of `CLIENTS` clients, some with more outputs than one."""
    places = asyncio.Semaphore(CLIENTS)
    order = [(i, stream) for stream in (True, False) for i in range(len(requests))]
    random.Random(8).shuffle(order)

    async with _client(url) as client:

        async def one(i: int, stream: bool) -> tuple[tuple[int, bool], Got]:
            async with places:
                asked = requests[i]
                return (i, stream), await _output(client, model, asked, asked.n, stream=stream)

        found = dict(await asyncio.gather(*(one(i, stream) for i, stream in order)))
    return [found[i, stream] for stream in (True, False) for i in range(len(requests))]


def differing(found: list[Got], solo: list[Got]) -> list[int]:
    """The requests of which an output differs from that of the solo run."""
    return sorted({i % len(solo) for i, got in enumerate(found) if got != solo[i % len(solo)]})
