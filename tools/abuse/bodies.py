"""Costly bodies: much to parse, to build, to tokenize, or to look up."""

import asyncio
from typing import Any

import orjson

from tools.abuse.attack import Attack, Breach, Target, add, again, attack, posting

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
HELLO = {"role": "user", "content": "Hello!"}
MB = 1_000_000


def _chat(**fields: Any) -> dict[str, Any]:
    return {"messages": [HELLO], "max_tokens": 1, **fields}


BODIES = {
    "1 MB of words": (TEXT, lambda: {"prompt": "words and " * (MB // 10), "max_tokens": 1}),
    "4 MB of words": (TEXT, lambda: {"prompt": "words and " * (4 * MB // 10), "max_tokens": 1}),
    "a chat of 4 MB": (CHAT, lambda: _chat(messages=[{"role": "user", "content": "a " * (2 * MB)}])),
    "an input of 4 MB": (RESPONSES, lambda: {"input": "a " * (2 * MB), "max_output_tokens": 1}),
    "tokenize 4 MB of one letter": ("/tokenize", lambda: {"prompt": "a" * (4 * MB)}),
    "tokenize 130,000 messages": ("/tokenize", lambda: {"messages": [HELLO] * 130_000}),
    "detokenize a million ids": ("/detokenize", lambda: {"tokens": [5] * MB}),
    "132,000 messages": (CHAT, lambda: _chat(messages=[HELLO] * 132_000)),
    "200,000 parts": (
        CHAT,
        lambda: _chat(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}] * 200_000}]),
    ),
    "132,000 items": (RESPONSES, lambda: {"input": [HELLO] * 132_000, "max_output_tokens": 1}),
    "90,000 tools": (
        CHAT,
        lambda: _chat(tools=[{"type": "function", "function": {"name": f"f{i}"}} for i in range(90_000)]),
    ),
    "1,300,000 empty lists": (CHAT, lambda: _chat(metadata={"a": [[]] * 1_300_000})),
    "400,000 biases": (CHAT, lambda: _chat(logit_bias={str(i): 1 for i in range(400_000)})),
    "a million stop strings": (CHAT, lambda: _chat(stop=["a"] * MB)),
    "a million prompts": (TEXT, lambda: {"prompt": ["a"] * MB, "max_tokens": 1}),
    "a million prompt ids": (TEXT, lambda: {"prompt": [5] * MB, "max_tokens": 1}),
    "a schema of 100,000 properties": (
        CHAT,
        lambda: _chat(
            response_format={
                "type": "json_schema",
                "json_schema": {
                    "name": "s",
                    "schema": {
                        "type": "object",
                        "properties": {f"p{i}": {"type": "integer"} for i in range(100_000)},
                    },
                },
            }
        ),
    ),
    "1,000,000 unknown fields": (CHAT, lambda: _chat(**{f"x{i}": 0 for i in range(MB)})),
    "15 MB of messages": (CHAT, lambda: _chat(messages=[HELLO] * 370_000)),
    "15 MB to tokenize": ("/tokenize", lambda: {"prompt": "a" * (15 * MB)}),
}
for _name, (_path, _make) in BODIES.items():
    add(Attack(_name, "1", posting(_path, _make)))


def _said(text: str) -> dict[str, Any]:
    return _chat(messages=[{"role": "user", "content": text}])


GUARDED = (
    *("--engine", "echo"),  # this engine takes prompts of any length
    *("--hook", "tools/abuse/hooks.py:PromptPii", "--hook", "tools/abuse/hooks.py:PromptSecrets"),
)
LONG_MESSAGES = {
    "1 MB for prompt guards": lambda: _said("call me or wait " * (MB // 16)),
    "200 kB of digits for prompt guards": lambda: _said("1234567890" * 20_000),
}
for _name, _make in LONG_MESSAGES.items():
    add(Attack(_name, "7", posting(CHAT, _make), options=GUARDED))
    add(Attack(f"{_name} in a worker", "7", posting(CHAT, _make), options=(*GUARDED, "--hook-workers", "1")))


@attack(7, options=GUARDED)
async def many_prompts_for_guards(target: Target) -> None:
    """Prompts that are not long, but many at once."""
    body = orjson.dumps(_said("4111 1111 1111 1111 " * 500))

    async def strike() -> None:
        await target.post(CHAT, body)

    await again(strike, 64)


@attack(2)
async def item_references(target: Target) -> None:
    """Some large stored responses, then many references to an item of the oldest one."""
    for number in range(20):  # reasoning without text has no tokens
        items = [{"type": "reasoning", "id": f"item_{number}_{i}"} for i in range(3000)]
        body = {"input": [HELLO, *items], "max_output_tokens": 1, "store": True}
        await target.post(RESPONSES, body)
    references = [{"type": "item_reference", "id": "item_0_2999"}] * 1000
    asked = orjson.dumps({"input": [HELLO, *references], "max_output_tokens": 1, "store": False})

    async def strike() -> None:
        await target.post(RESPONSES, asked)

    await again(strike)


@attack(9)
async def tiny_stored_responses(target: Target) -> None:
    """So many responses that the store is full of them. Another caller's response must stay."""
    tiny = orjson.dumps({"input": "Hi", "max_output_tokens": 1, "store": True})
    status, body = await target.post(RESPONSES, tiny, key=target.neighbour)
    if status != 200:
        return
    url = f"{target.url}/v1/responses/{orjson.loads(body)['id']}"

    async def look() -> None:
        async with target.http.get(url, headers=target.headers(target.neighbour)) as response:
            if response.status == 404:
                raise Breach("another caller's stored response is gone")

    async def strike() -> None:
        await target.post(RESPONSES, tiny)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(again(look))
        tasks.create_task(again(strike, 32))


@attack(9)
async def large_stored_metadata(target: Target) -> None:
    """Responses that keep what nobody asked them to keep."""
    metadata = {str(i): "a" * 500_000 for i in range(16)}
    body = orjson.dumps({"input": "Hi", "max_output_tokens": 1, "store": True, "metadata": metadata})

    async def strike() -> None:
        await target.post(RESPONSES, body)

    await again(strike)
