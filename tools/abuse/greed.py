"""Costly work: requests that are small to send and large to answer."""

import itertools
from typing import Any

import orjson

from tools.abuse.attack import Target, again, attack
from tools.abuse.bodies import CHAT, HELLO, TEXT

LOOP = {"role": "user", "content": "Repeat the word banana forever"}
LONG = {"max_tokens": 900, "ignore_eos": True}


async def _stream(target: Target, path: str, body: dict[str, Any]) -> None:
    await target.post(path, {**body, "stream": True})


@attack(3)
async def a_full_queue(target: Target) -> None:
    """32 prompts, 128 outputs of each."""
    body = {"prompt": ["Hello"] * 32, "n": 128, **LONG}
    await again(lambda: _stream(target, TEXT, body), 4)


@attack("new")
async def many_prompts(target: Target) -> None:
    """1,024 prompts a request, on many connections. The caller is soon refused, and goes on asking."""
    body = orjson.dumps({"prompt": [f"Tell me a {i}" for i in range(1024)], **LONG})

    async def strike() -> None:
        await target.post(TEXT, body)

    await again(strike, 64)


@attack(3)
async def long_streams_64(target: Target) -> None:
    """As many streams as the engine runs at the same time."""
    body = {"messages": [LOOP], **LONG}
    await again(lambda: _stream(target, CHAT, body), 64)


@attack(3)
async def wide_requests(target: Target) -> None:
    """Eight requests for 128 outputs."""
    body = {"messages": [LOOP], "n": 128, **LONG}
    await again(lambda: _stream(target, CHAT, body), 8)


@attack(3, client_asks_schema=True)
async def slow_grammars(target: Target) -> None:
    """Schemas that take seconds to compile, each a new one."""
    numbers = itertools.count()

    async def strike() -> None:
        i = next(numbers)
        schema = {"type": "integer", "minimum": -(10**17) - i, "maximum": 10**17, "multipleOf": 999983}
        answer = {"type": "json_schema", "json_schema": {"name": f"s{i}", "schema": schema}}
        await target.post(CHAT, {"messages": [HELLO], "max_tokens": 4, "response_format": answer})

    await again(strike, 10)


@attack("new")
async def top_logprobs_and_stop_lists(target: Target) -> None:
    """The most alternatives, and the longest list of long stop strings."""
    stops = [f"{i:03d}" + "banana " * 140 for i in range(32)]
    body = {"messages": [LOOP], **LONG, "logprobs": True, "top_logprobs": 20, "stop": stops}
    await again(lambda: _stream(target, CHAT, body), 32)


@attack("new")
async def beams(target: Target) -> None:
    """Beam search, which computes much for one output."""
    body = {"prompt": "Once upon a time", "n": 16, "use_beam_search": True, "max_tokens": 200}
    await again(lambda: _stream(target, TEXT, body), 8)


@attack("new")
async def prompts_that_fill_the_cache(target: Target) -> None:
    """Long prompts, all different, which push other prompts out of the prefix cache."""
    numbers = itertools.count()

    async def strike() -> None:
        text = f"{next(numbers)} " + "word " * 800
        await target.post(TEXT, {"prompt": text, "max_tokens": 1})

    await again(strike, 16)


@attack("new", options=("--hook", "tools/abuse/hooks.py:TakesBack"))
async def rewinds(target: Target) -> None:
    """Answers that a guard rewinds as often as it may."""
    body = {"messages": [LOOP], **LONG}
    await again(lambda: _stream(target, CHAT, body), 16)
