"""Attacks on what a client must not get, rather than on time. Each starts the servers that it needs.

A check gets a folder for files, and raises `Breach`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from tools.abuse.attack import Breach, Target
from tools.abuse.bodies import CHAT, HELLO, RESPONSES, TEXT
from tools.abuse.connections import readers_that_never_read, unfinished_bodies
from tools.abuse.measure import run_for
from tools.abuse.server import Served, served

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
async def opened(
    *options: str, folder: Path, env: dict[str, str] | None = None
) -> AsyncIterator[tuple[Served, Target]]:
    with ExitStack() as stack:
        # In a thread: the server may ask an upstream of this process while it starts.
        server = await asyncio.to_thread(stack.enter_context, served(*options, folder=folder, env=env))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            yield server, Target(server.url, http)


@asynccontextmanager
async def listening(answer: Handler) -> AsyncIterator[str]:
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
    async with opened("--config", str(config), folder=folder) as (_, target):
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


@check(8)
async def a_page_in_a_browser(folder: Path) -> None:
    """A page of another site: by a host name that points here, without a preflight, and with an origin."""
    body = orjson.dumps({"messages": [HELLO], "max_tokens": 1})
    async with opened("--engine", "echo", folder=folder) as (_, target):
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
    async with opened("--shutdown-timeout", "5", folder=folder) as (server, target):
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
async def malformed_http_echoed(folder: Path) -> None:
    """The bytes of a broken request in its answer."""
    async with opened("--engine", "echo", folder=folder) as (_, target):
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
    async with listener, opened(folder=folder) as (_, target):
        for path, body in bodies:
            status, got = await target.post(path, body)
            if status >= 500:
                raise Breach(f"{body}: status {status}, {got!r}")
    if asked:
        raise Breach(f"the server asked: {asked}")
