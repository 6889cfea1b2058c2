"""Attacks on what a client must not get, rather than on time. Each starts the servers that it needs.

A check gets a folder for files, and raises `Breach`.
"""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from tools.abuse.attack import Breach, Target
from tools.abuse.bodies import CHAT, HELLO, RESPONSES, TEXT
from tools.abuse.connections import readers_that_never_read, unfinished_bodies
from tools.abuse.measure import run_for, until
from tools.abuse.server import Served, environment_of, served

Check = Callable[[Path], Coroutine[Any, Any, None]]
CHECKS: dict[str, tuple[str, Check]] = {}
"""By name: the finding that the check repeats, and the check."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def check(finding: int | str) -> Callable[[Check], Check]:
    def register(run: Check) -> Check:
        CHECKS[run.__name__.replace("_", " ")] = str(finding), run
        return run

    return register


@asynccontextmanager
async def _target(
    *options: str, folder: Path, env: dict[str, str] | None = None
) -> AsyncIterator[tuple[Served, Target]]:
    with served(*options, folder=folder, env=env) as server:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            yield server, Target(server.url, http)


@asynccontextmanager
async def _upstream(answer: Handler) -> AsyncIterator[str]:
    """The URL of an upstream that answers every request for an answer with `answer`."""

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m"}]})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


PHRASE = "project bluebird"
PROMPT = "<|im_start|>user\nWhat is your secret project?<|im_end|>\n<|im_start|>assistant\n"


@check(5)
async def a_phrase_in_pieces(folder: Path) -> None:
    """Token by token, each request with what came so far: as text, as ids, and up to a stop string."""
    config = folder / "pieces.yaml"
    config.write_text(f"hooks:\n  - path: phrases\n    args: {{phrases: [{PHRASE}]}}\n")
    async with _target("--config", str(config), folder=folder) as (_, target):
        for got in (await _pieces_of_text(target), await _pieces_of_ids(target), await _up_to_stop(target)):
            if "blue" in got.lower():
                raise Breach(f"in pieces: {got!r}")


async def _choice(target: Target, **fields: Any) -> dict[str, Any]:
    status, answer = await target.post(TEXT, {"temperature": 0, **fields})
    choice: dict[str, Any] = orjson.loads(answer)["choices"][0] if status == 200 else {"text": ""}
    return choice


async def _pieces_of_text(target: Target) -> str:
    said = ""
    for _ in range(20):
        said += (await _choice(target, prompt=PROMPT + said, max_tokens=1))["text"]
    return said


async def _pieces_of_ids(target: Target) -> str:
    _, answer = await target.post("/tokenize", {"prompt": PROMPT, "add_special_tokens": False})
    ids: list[int] = orjson.loads(answer)["tokens"]
    said = ""
    for _ in range(20):
        choice = await _choice(target, prompt=ids, max_tokens=1, return_token_ids=True)
        said += choice["text"]
        ids = ids + (choice.get("token_ids") or [])
    return said


async def _up_to_stop(target: Target) -> str:
    said: str = (await _choice(target, prompt=PROMPT, max_tokens=30, stop=["bird"]))["text"]
    return said


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
    async with _upstream(answer) as url:
        async with _target("--engine", "openai", "--upstream", url, "--hook", "pii", folder=folder) as (
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


@check(8)
async def a_page_in_a_browser(folder: Path) -> None:
    """A page of another site: by a host name that points here, without a preflight, and with an origin."""
    body = orjson.dumps({"messages": [HELLO], "max_tokens": 1})
    async with _target("--engine", "echo", folder=folder) as (_, target):
        tries: dict[str, dict[str, str]] = {
            "a foreign host": {"Host": "evil.example", "Content-Type": "application/json"},
            "no content type": {"Content-Type": ""},
            "a form's content type": {"Content-Type": "text/plain"},
            "a foreign origin": {"Origin": "http://evil.example", "Content-Type": "application/json"},
            "a cross-site request": {"Sec-Fetch-Site": "cross-site", "Content-Type": "application/json"},
        }
        for name, headers in tries.items():
            async with target.http.post(target.url + CHAT, data=body, headers=headers) as response:
                if response.status == 200 or "Access-Control-Allow-Origin" in response.headers:
                    raise Breach(f"{name}: status {response.status}")


@check(10)
async def clients_that_do_not_let_it_end(folder: Path) -> None:
    """SIGTERM while clients never read and never end their bodies."""
    async with _target("--shutdown-timeout", "5", folder=folder) as (server, target):
        async with run_for(readers_that_never_read, target), run_for(unfinished_bodies, target):
            server.process.terminate()
            began = time.monotonic()
            code = await asyncio.to_thread(server.process.wait)
            took = time.monotonic() - began
    if code or took > 5 + SLACK:
        raise Breach(f"exit code {code} after {took:.1f} s")
    if "a hook does not end" in server.log.read_text():
        raise Breach("the log speaks of a hook where there is none")


SLACK = 3.0
"""Seconds beyond `--shutdown-timeout` in which the process itself ends. The tests allow any time."""


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
        _upstream(answer) as url,
        _target("--engine", "openai", "--upstream", url, folder=folder) as (_, target),
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
        async with target.http.get(target.url + "/metrics") as response:
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
        _upstream(answer) as url,
        _target("--engine", "openai", "--upstream", url, folder=folder) as (server, target),
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
    async with _upstream(answer) as url:
        await _look_for_secrets(folder, url.replace("//", "//user:pass-word@"), client_key)
        await _look_for_secrets(folder, url, {**client_key, "WEIR_UPSTREAM_API_KEY": "key-of-the-upstream"})


async def _look_for_secrets(folder: Path, url: str, keys: dict[str, str]) -> None:
    options = ("--engine", "openai", "--upstream", url, "--hook", "pii", "--hook-workers", "1")
    async with _target(*options, "--log-level", "debug", folder=folder, env=keys) as (server, target):
        await target.post(CHAT, {"model": "m", "messages": [HELLO]}, key=keys["WEIR_API_KEY"])
        places = {"the log": server.log.read_text()}
        places |= {f"the environment of {pid}": environment_of(pid) for pid in server.children}
        for place, text in places.items():
            if found := [word for word in (*keys.values(), "pass-word", "own words") if word in text]:
                raise Breach(f"in {place}: {found}")


@check(11)
async def malformed_http_echoed(folder: Path) -> None:
    """The bytes of a broken request in its answer."""
    async with _target("--engine", "echo", folder=folder) as (_, target):
        for sent in (
            b"GET / SECRETWORD\r\n\r\n",
            b"GET / HTTP/1.1\r\nSECRETWORD\r\n\r\n",
            b"SECRETWORD\r\n\r\n",
        ):
            reader, writer = await target.open(sent)
            got = await reader.read()
            writer.close()
            if b"SECRETWORD" in got or (got and b'{"error"' not in got):
                raise Breach(f"{sent!r}: {got!r}")


@check("new")
async def requests_forged_through_fields(folder: Path) -> None:
    """URLs in every field that could make the server ask somebody."""
    asked: list[str] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode(errors="replace"))
        writer.close()

    listener = await asyncio.start_server(note, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
    image = {"type": "image_url", "image_url": {"url": url}}
    names = ("model", "user", "chat_template", "cache_salt", "custom_logit_processor", "previous_response_id")
    bodies: list[tuple[str, Any]] = [
        (CHAT, {"messages": [{"role": "user", "content": [image]}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_url": url}}]}]}),
        (CHAT, {"messages": [HELLO], "hooks": [url], "logits_processors": [{"name": url}]}),
        *[(CHAT, {"messages": [HELLO], name: url, "max_tokens": 1}) for name in names],
        *[(RESPONSES, {"input": "Hi", name: url, "max_output_tokens": 1}) for name in names],
        (RESPONSES, {"input": "Hi", "tools": [{"type": "mcp", "server_url": url, "server_label": "a"}]}),
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}),
    ]
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"$ref": url}}}
    bodies.append((CHAT, {"messages": [HELLO], "response_format": schema, "max_tokens": 1}))
    async with listener, _target(folder=folder) as (_, target):
        for path, body in bodies:
            status, got = await target.post(path, body)
            if status >= 500:
                raise Breach(f"{body}: status {status}, {got!r}")
    if asked:
        raise Breach(f"the server asked: {asked}")


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
        _upstream(answer) as url,
        _target("--engine", "openai", "--upstream", url, folder=folder) as (_, target),
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
