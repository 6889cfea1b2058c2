"""`weir chat`: a terminal client that shows the stream as it arrives, and what guards do to it."""

import argparse
import asyncio
import os
import sys
from importlib.util import find_spec

import aiohttp

from engine.protocol.parts import how_to_install
from proxy.cli.argument_types import server_url
from proxy.cli.dialogue.client import ChatClient, ChatError
from proxy.cli.dialogue.commands import field_value
from proxy.cli.dialogue.conversation import Conversation
from proxy.cli.dialogue.dialogue import Dialogue, choose_model
from proxy.cli.dialogue.lines import open_lines
from proxy.cli.dialogue.screen import Screen

HISTORY = "~/.local/state/weir/chat_history"


def add_chat_arguments(parser: argparse.ArgumentParser) -> None:
    """talk to a server, and watch the stream as it comes"""
    parser.add_argument(
        "message", nargs="?", help="send this, print the answer and exit (default: a dialogue)"
    )
    parser.add_argument(
        "--url",
        type=server_url,
        default="http://127.0.0.1:8000",
        help="the server's URL, with or without /v1 (%(default)s)",
    )
    parser.add_argument("--model", help="the model's name (default: the server's first)")
    parser.add_argument("--system", help="a system prompt")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (%(default)s)")
    parser.add_argument("--max-tokens", type=int, help="most tokens of an answer")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another field of the requests, its value as JSON or as text; repeat",
    )
    parser.add_argument(
        "--hook", action="append", default=[], help="a hook to run in addition to the server's own; repeat"
    )
    parser.add_argument(
        "--show-decisions",
        action="store_true",
        help="show in place what hooks withhold, change and hold; the server shows it to its operator alone",
    )
    # The default is not in the parser: its help would show it.
    parser.add_argument("--api-key", help="the server's key (default: WEIR_API_KEY, or else OPENAI_API_KEY)")
    parser.add_argument("--admin-key", help="an operator's key (default: WEIR_ADMIN_KEY)")
    parser.add_argument(
        "--history", default=HISTORY, help="file for what is typed; empty: none (%(default)s)"
    )
    parser.set_defaults(run=chat)


def chat(options: argparse.Namespace) -> None:
    """Hold a dialogue on standard input and output, or get one answer. Exits with 1 if there is none."""
    asyncio.run(_chat(options))


async def _chat(options: argparse.Namespace) -> None:
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    async with aiohttp.ClientSession(headers=_headers(options), timeout=timeout) as session:
        client = ChatClient(session, base_url(options.url), shows_decisions=options.show_decisions)
        screen, conversation = Screen(sys.stdout, sys.stderr), _conversation(options)
        if options.message is not None:
            await _one_shot(client, screen, conversation, options.message)
        else:
            await _dialogue(client, screen, conversation, options.history)


async def _one_shot(client: ChatClient, screen: Screen, conversation: Conversation, message: str) -> None:
    await _choose_model(client, conversation)
    dialogue = Dialogue(client, screen, conversation, is_interactive=False)
    if not await dialogue.ask(message):
        raise SystemExit(1)


async def _dialogue(client: ChatClient, screen: Screen, conversation: Conversation, history: str) -> None:
    try:
        lines = open_lines(history)
    except OSError as error:
        raise SystemExit(f"weir chat: --history {history}: {error.strerror}") from error
    if not lines.is_interactive:
        await _choose_model(client, conversation)
    else:
        screen.note(f"{client.url}; /help lists commands, Ctrl-D leaves")
        if find_spec("prompt_toolkit") is None:
            screen.note(f"lines are edited better with prompt_toolkit: {how_to_install('chat')}")
    await Dialogue(client, screen, conversation, is_interactive=lines.is_interactive).run(lines)


async def _choose_model(client: ChatClient, conversation: Conversation) -> None:
    try:
        await choose_model(client, conversation)
    except ChatError as error:
        raise SystemExit(f"weir chat: {client.url}: {error}") from error


def base_url(url: str) -> str:
    url = url.rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"


def _headers(options: argparse.Namespace) -> dict[str, str]:
    # WEIR_API_KEY may be the server's own variable, with several keys.
    keys = os.environ.get("WEIR_API_KEY", "").partition(",")[0]
    api_key = options.api_key or keys or os.environ.get("OPENAI_API_KEY")
    admin_key = options.admin_key or os.environ.get("WEIR_ADMIN_KEY", "").partition(",")[0]
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    if admin_key and options.show_decisions:
        headers["X-Weir-Admin-Key"] = admin_key
    return headers


def _conversation(options: argparse.Namespace) -> Conversation:
    fields = {"temperature": options.temperature}
    if options.max_tokens:
        fields["max_tokens"] = options.max_tokens
    for given in options.set:
        name, equals, value = given.partition("=")
        if not equals:
            raise SystemExit(f"weir chat: --set {given}: write NAME=VALUE")
        fields[name] = field_value(value)
    return Conversation(options.model, options.system, options.hook, fields)
