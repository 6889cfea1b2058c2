"""Does a denied tool call leave? A part of `make bench NAME=leaks`.

Tool calls are drawn with denied paths, hosts and numbers in spellings that programs read in different ways,
and with names of arguments in another case or twice. They pass the guard `tools` in random pieces and whole.
If a program finds the denied thing, no call leaves. A plain call leaves as it is. Pieces change nothing.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from os.path import abspath
from typing import Any, NamedTuple
from urllib.parse import unquote

import can_ada

from benchmarks.nasty_spellings import nasty_address, nasty_number, nasty_path
from hooks.builtin.tools import Tools
from hooks.testing import play, stream_of

_RULES: list[Any] = [
    {"tools": ["read"], "effect": "deny", "when": {"/path": {"path": ["/etc"]}}},
    {"tools": ["read"], "effect": "deny", "when": {"/opts/path": {"path": ["/etc"]}}},
    {"tools": ["fetch"], "effect": "deny", "when": {"/url": {"host": ["evil.com"]}}},
    {"tools": ["fetch"], "effect": "deny", "when": {"/opts/url": {"host": ["evil.com"]}}},
    {"tools": ["buy"], "effect": "deny", "when": {"/num": {"values": [5]}}},
    {"tools": ["read", "fetch", "buy"]},
    {"tools": ["write"], "when": {"/path": {"path": ["out", "/srv/out"]}}},
    {"tools": ["get"], "when": {"/url": {"host": ["ok.example"]}}},
]
_HERE = "/work/here"


class Call(NamedTuple):
    tool: str
    arguments: str
    passes: bool | None
    """Whether it must pass, or must not. None: either is right."""


def _paths(text: str) -> set[str]:
    plain = {text, text.strip(), unquote(text), text.removeprefix("file://"), text.replace("\\", "/")}
    return {abspath(f"{_HERE}/{one}" if not one.startswith("/") else one).replace("//", "/") for one in plain}


def _host(text: str) -> str | None:
    for read in (text, f"https:{text}", f"https://{text}"):
        try:
            return str(can_ada.parse(read.encode(errors="replace").decode()).hostname).rstrip(".")
        except ValueError:
            continue
    return None


def _is_below(paths: set[str], *folders: str) -> set[bool]:
    return {any(path == one or path.startswith(f"{one}/") for one in folders) for path in paths}


def _read(rng: random.Random) -> tuple[str, bool | None]:
    if rng.random() < 0.3:
        return json.dumps(rng.choice(["/srv/a", "notes/a.txt", "my file (1).txt"])), True
    path = nasty_path(rng, rng.choice(["/etc/passwd", "/etc", "/etc/a/b"]))
    return json.dumps(path), False if True in _is_below(_paths(path), "/etc") else None


def _write(rng: random.Random) -> tuple[str, bool | None]:
    if rng.random() < 0.3:
        return json.dumps(rng.choice(["out/a b.txt", "/srv/out/x/../y", "out"])), True
    path = nasty_path(rng, rng.choice(["out/a", "/srv/out/a", "/etc/passwd", "x"]))
    is_outside = False in _is_below(_paths(path), f"{_HERE}/out", "/srv/out")
    return json.dumps(path), False if is_outside else None


def _fetch(rng: random.Random) -> tuple[str, bool | None]:
    if rng.random() < 0.3:
        return json.dumps(
            rng.choice(["https://ok.example/a?b=c", "ok.example", "http://ok.example:80"])
        ), True
    url = nasty_address(rng, "https://evil.com/a")
    return json.dumps(url), False if _host(url) == "evil.com" else None


def _get(rng: random.Random) -> tuple[str, bool | None]:
    if rng.random() < 0.3:
        return json.dumps(
            rng.choice(["https://ok.example/a?b=c", "ok.example", "HTTP://OK.example:80"])
        ), True
    url = nasty_address(rng, rng.choice(["https://ok.example/a", "https://evil.com/a"]))
    return json.dumps(url), None if _host(url) == "ok.example" else False


def _buy(rng: random.Random) -> tuple[str, bool | None]:
    return (str(rng.randint(6, 99)), True) if rng.random() < 0.3 else (nasty_number(rng, 5), False)


_DRAWS: dict[str, tuple[str, Callable[[random.Random], tuple[str, bool | None]]]] = {
    "read": ("path", _read),
    "write": ("path", _write),
    "fetch": ("url", _fetch),
    "get": ("url", _get),
    "buy": ("num", _buy),
}


def draw(rng: random.Random) -> Call:
    tool = rng.choice([*_DRAWS])
    name, make = _DRAWS[tool]
    value, passes = make(rng)
    members = [
        f"{json.dumps(name)}: {value}",
        *rng.sample(['"x": "y"', '"more": [1, {"path": 2}]'], rng.randint(0, 2)),
    ]
    if passes and rng.random() < 0.3:
        again = rng.choice([name, name.upper(), name.title(), f" {name}", f"{name}\u200b", _wide(name)])
        members.append(f"{json.dumps(again, ensure_ascii=rng.random() < 0.5)}: {json.dumps('x')}")
        passes = False
    rng.shuffle(members)
    arguments = "{" + ", ".join(members) + "}"
    if tool in ("read", "fetch") and rng.random() < 0.4:
        arguments = f'{{"opts": {arguments}}}'
    return Call(tool, arguments, passes)


def _wide(text: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) for char in text)


def _pieces(rng: random.Random, text: str) -> list[str]:
    pieces = []
    while text:
        size = rng.randint(1, 12)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def run(num_calls: int, seed: int) -> Counter[str]:
    """Check so many calls. Returns how many passed and how many did not. Raises `AssertionError`."""
    rng, guard, counts = random.Random(seed), Tools(_RULES), Counter[str]()
    for _ in range(num_calls):
        call = draw(rng)
        whole, parts = (
            play(guard, stream_of(pieces, channel="tool_call", tool_name=call.tool)).tool_calls
            for pieces in ([call.arguments], _pieces(rng, call.arguments))
        )
        left = [text for _, text in whole]
        if call.passes is not None and call.passes is not bool(left):
            # A name that comes twice may show when the call was let through: then its JSON never ends.
            assert not call.passes, call
            assert not any(map(_is_json, left)), call
        assert not left or call.arguments.startswith(left[0]), call
        assert not call.passes or left == [call.arguments], call
        assert [text for _, text in parts] == left, call
        counts["passed" if left else "withheld"] += 1
    return counts


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
