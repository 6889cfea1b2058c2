"""`weir chat`: a terminal client that shows the stream as it arrives."""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson

from weir_bench.client import NoModelError, error_message, first_model


def add_chat_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "message", nargs="?", help="send this, print the answer and exit (default: a dialogue)"
    )
    parser.add_argument(
        "--url", default="http://127.0.0.1:8000/v1", help="the server's base URL (%(default)s)"
    )
    parser.add_argument("--model", help="the model's name (default: the server's first)")
    parser.add_argument("--system", help="a system prompt")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (%(default)s)")
    parser.add_argument("--max-tokens", type=int, help="most tokens of an answer")
    parser.add_argument(
        "--api-key",
        default=os.environ.get("OPENAI_API_KEY"),
        help="the server's key (default: OPENAI_API_KEY)",
    )
    parser.set_defaults(run=chat)


def chat(options: argparse.Namespace) -> None:
    """Hold a dialogue on standard input and output. Exits with 1 if the server cannot be reached."""
    asyncio.run(_chat(options))


async def _chat(options: argparse.Namespace) -> None:
    headers = {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        try:
            await _dialogue(session, options)
        except aiohttp.ClientConnectionError as error:
            raise SystemExit(f"weir chat: {options.url}: {error}") from error
        except NoModelError as error:
            raise SystemExit(f"weir chat: {error}") from error


async def _dialogue(session: aiohttp.ClientSession, options: argparse.Namespace) -> None:
    model = options.model or await first_model(session, options.url)
    messages = [{"role": "system", "content": options.system}] if options.system else []
    while True:
        message = options.message or await _ask()
        if message is None:
            return
        messages.append({"role": "user", "content": message})
        body = {"model": model, "messages": messages, "temperature": options.temperature, "stream": True}
        if options.max_tokens:
            body["max_tokens"] = options.max_tokens
        answer = await _show(_pieces(session, options.url, body))
        messages.append({"role": "assistant", "content": answer})
        if options.message:
            return


async def _ask() -> str | None:
    """The next line of input that is not empty; None at the end of the input."""
    while True:
        try:
            line = await asyncio.to_thread(input, "> " if sys.stdin.isatty() else "")
        except EOFError:
            return None
        if line.strip():
            return line


async def _show(pieces: AsyncIterator[str]) -> str:
    answer = []
    async for piece in pieces:
        answer.append(piece)
        print(piece, end="", flush=True)
    print()
    return "".join(answer)


async def _pieces(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> AsyncIterator[str]:
    """The answer's text as it arrives. If the model did not end the answer itself, the reason goes to
    standard error."""
    async with session.post(f"{url}/chat/completions", json=body) as response:
        if response.status != 200:
            print(f"[{response.status}: {error_message(await response.read())}]", file=sys.stderr)
            return
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            event = orjson.loads(line[6:])
            if "error" in event:
                print(f"\n[{event['error']['message']}]", file=sys.stderr)
                return
            for choice in event["choices"]:
                yield choice["delta"].get("content") or ""
                if choice["finish_reason"] not in (None, "stop"):
                    reason = f": {choice['stop_reason']}" if choice.get("stop_reason") else ""
                    print(f"\n[{choice['finish_reason']}{reason}]", file=sys.stderr)
