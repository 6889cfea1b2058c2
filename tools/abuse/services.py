"""Checks of the services that Weir asks: hostile upstreams and detectors, and the secrets it has of them."""

import asyncio
import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from tools.abuse.attack import Breach, Target
from tools.abuse.bodies import CHAT, HELLO, RESPONSES, TEXT
from tools.abuse.checks import check, listening, opened
from tools.abuse.measure import run_for, until
from tools.abuse.server import environment_of

HIDDEN = "hunter2"
"""The text of a token that no text says."""
HIDDEN_BYTES = ",".join(map(str, HIDDEN.encode())).encode()


@check(6)
async def tokens_that_contradict_their_text(folder: Path) -> None:
    """An upstream whose tokens have other text, other bytes, or more of them than its text has."""

    async def answer(request: web.Request) -> web.StreamResponse:
        is_chat = request.path.endswith("/chat/completions")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        odd: tuple[tuple[str, list[tuple[str, list[int] | None]]], ...] = (
            ("hello", [(HIDDEN + "\ufffd", None)]),
            ("hello", [("hello", list(HIDDEN.encode() + b"\xff"))]),
            ("hello", [(f"<{HIDDEN}>", None), ("hello", None)]),
            ("", [(HIDDEN, None)]),
        )
        for text, tokens in odd:
            await response.write(_event(_frame(is_chat, text, tokens)))
        await response.write(
            _event({"choices": [{"index": 0, "delta": {}, "text": "", "finish_reason": "stop"}]})
        )
        await response.write(b"data: [DONE]\n\n")
        return response

    asked: dict[str, dict[str, Any]] = {
        CHAT: {"messages": [HELLO], "logprobs": True, "top_logprobs": 0},
        TEXT: {"prompt": "Hi", "logprobs": 0},
        RESPONSES: {"input": "Hi", "include": ["message.output_text.logprobs"]},
    }
    async with listening(answer) as url:
        async with opened("--engine", "openai", "--upstream", url, "--hook", "pii", folder=folder) as (
            _,
            target,
        ):
            for path, body in asked.items():
                for stream in (False, True):
                    _, got = await target.post(path, {"model": "m", **body, "stream": stream})
                    if HIDDEN.encode() in got or HIDDEN_BYTES in got:
                        raise Breach(f"{path}, stream {stream}: a token that no hook saw: {got[:500]!r}")


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _frame(is_chat: bool, text: str, tokens: Sequence[tuple[str, list[int] | None]]) -> dict[str, Any]:
    if is_chat:
        entries = [
            {"token": name, "bytes": data, "logprob": -0.1, "top_logprobs": []} for name, data in tokens
        ]
        choice: dict[str, Any] = {"delta": {"content": text}, "logprobs": {"content": entries}}
    else:
        names = [name for name, _ in tokens]
        choice = {"text": text, "logprobs": {"tokens": names, "token_logprobs": [-0.1] * len(names)}}
    return {"choices": [{"index": 0, "finish_reason": None, **choice}]}


@check(11)
async def absurd_usage(folder: Path) -> None:
    """Counts that are negative, huge, or no numbers."""
    counts: list[Any] = [-5, 2**70, 1e300, True, "many", None]

    async def answer(request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        count = counts[int(body.get("seed") or 0)]
        usage = {"prompt_tokens": count, "completion_tokens": count, "total_tokens": count}
        choice = {"index": 0, "finish_reason": "stop", "text": "hello", "delta": {"content": "hello"}}
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(_event({"choices": [choice]}) + _event({"choices": [], "usage": usage}))
        await response.write(b"data: [DONE]\n\n")
        return response

    async with (
        listening(answer) as url,
        opened("--engine", "openai", "--upstream", url, folder=folder) as (server, target),
    ):
        for seed in range(len(counts)):
            for path, body in (
                (CHAT, {"messages": [HELLO]}),
                (TEXT, {"prompt": "Hi"}),
                (RESPONSES, {"input": "Hi"}),
            ):
                for stream in (False, True):
                    status, got = await target.post(
                        path, {"model": "m", "seed": seed, **body, "stream": stream}
                    )
                    if status >= 500 or b":-5" in got or (stream and not got.endswith(b"data: [DONE]\n\n")):
                        raise Breach(f"usage {counts[seed]!r}, {path}: status {status}, {got[-300:]!r}")
        async with target.http.get(server.operator_url + "/metrics") as response:
            totals = [
                line
                for line in (await response.text()).splitlines()
                if "tokens_total " in line and line[0] != "#"
            ]
        if any(not 0 <= float(line.split()[1]) < 1e6 for line in totals):
            raise Breach(f"the counters are absurd: {totals}")


@check(11)
async def a_packed_error(folder: Path) -> None:
    """An upstream's error of a gigabyte, packed into a megabyte."""
    packed = gzip.compress(bytes(1_000_000_000), 1)

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=500, body=packed, headers={"Content-Encoding": "gzip"})

    async with (
        listening(answer) as url,
        opened("--engine", "openai", "--upstream", url, folder=folder) as (server, target),
    ):
        before = server.peak_memory
        status, _ = await target.post(CHAT, {"model": "m", "messages": [HELLO]})
        if status not in (500, 502) or server.peak_memory - before > 100_000_000:
            raise Breach(f"status {status}, and {(server.peak_memory - before) / 1e6:.0f} MB more")


@check(11)
async def secrets_of_the_operator(folder: Path) -> None:
    """Keys and passwords in the log, and in a hook worker's environment."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "the upstream's own words"}}, status=400)

    client_key = {"WEIR_API_KEY": "key-of-a-client"}
    async with listening(answer) as url:
        await _look_for_secrets(folder, url.replace("//", "//user:pass-word@"), client_key)
        await _look_for_secrets(folder, url, {**client_key, "WEIR_UPSTREAM_API_KEY": "key-of-the-upstream"})


async def _look_for_secrets(folder: Path, url: str, keys: dict[str, str]) -> None:
    options = ("--engine", "openai", "--upstream", url, "--hook", "pii", "--hook-workers", "1")
    async with opened(*options, "--log-level", "debug", folder=folder, env=keys) as (server, target):
        await target.post(CHAT, {"model": "m", "messages": [HELLO]}, key=keys["WEIR_API_KEY"])
        places = {"the log": server.log.read_text()}
        places |= {f"the environment of {pid}": environment_of(pid) for pid in server.children}
        for place, text in places.items():
            if found := [word for word in (*keys.values(), "pass-word", "own words") if word in text]:
                raise Breach(f"in {place}: {found}")


@check("new")
async def upstreams_that_drip(folder: Path) -> None:
    """Answers of one comment line now and then, without end. Other requests are served; no work stays."""

    dripping: set[int] = set()

    async def answer(request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while body.get("seed"):
            dripping.add(id(request))
            try:
                await response.write(b": \n")
                await asyncio.sleep(0.05)
            except (ConnectionError, asyncio.CancelledError):
                dripping.discard(id(request))
                raise
        choice = {"index": 0, "finish_reason": "stop", "delta": {"content": "hello"}}
        await response.write(_event({"choices": [choice]}) + b"data: [DONE]\n\n")
        return response

    async def drip(target: Target) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(100):
                tasks.create_task(
                    target.post(CHAT, {"model": "m", "seed": 1, "messages": [HELLO], "stream": True})
                )

    async with (
        listening(answer) as url,
        opened("--engine", "openai", "--upstream", url, folder=folder) as (_, target),
    ):
        async with run_for(drip, target):
            await until(lambda: dripping)
            status, got = await target.post(CHAT, {"model": "m", "messages": [HELLO]})
            if status != 200 or b"hello" not in got:
                raise Breach(f"another request: status {status}, {got!r}")
        try:
            async with asyncio.timeout(60):
                await until(lambda: not dripping)
        except TimeoutError:
            raise Breach(f"{len(dripping)} answers still drip for clients that left") from None


@check("new")
async def a_remote_detector_that_lies(folder: Path) -> None:
    """A guard's service that answers with a packed gigabyte, with nonsense, and byte by byte."""
    packed = gzip.compress(bytes(1_000_000_000), 1)
    answers: list[tuple[bytes, dict[str, str]]] = [
        (packed, {"Content-Encoding": "gzip"}),
        (b"[" * 100_000, {}),
        (b'{"results": [{"flagged": "no"}]}', {}),
        (b'{"results": []}', {}),
        (b"\xff", {}),
    ]

    async def answer(request: web.Request) -> web.StreamResponse:
        texts = orjson.loads(await request.read())["input"]
        lies = [int(found[1]) for text in texts if (found := re.search(r"lie (\d)", text))]
        if not lies:  # the self-test
            result = {"flagged": False, "categories": {}, "category_scores": {}}
            return web.json_response({"results": [result] * len(texts)})
        data, headers = answers[lies[0]]
        return web.Response(body=data, headers={"Content-Type": "application/json", **headers})

    async with listening(answer) as url:
        config = folder / "remote.yaml"
        config.write_text(f"hooks:\n  - path: remote\n    args: {{url: {url}/moderations}}\n")
        async with opened("--config", str(config), "--engine", "echo", folder=folder) as (server, target):
            before = server.peak_memory
            for number in range(len(answers)):
                message = {"role": "user", "content": f"lie {number}"}
                status, got = await target.post(CHAT, {"messages": [message]})
                if status != 500 or b"guardrail_error" not in got:
                    raise Breach(f"answer {number}: status {status}, {got[:300]!r}")
            if server.peak_memory - before > 100_000_000:
                raise Breach(f"{(server.peak_memory - before) / 1e6:.0f} MB more")
