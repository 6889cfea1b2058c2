"""Spellings of paths, hosts and numbers that programs read in different ways, for `leaks_tools` and tests."""

import random
import unicodedata
from collections.abc import Callable, Sequence
from urllib.parse import quote

Spelling = Callable[[random.Random, str], str]
_BLANKS = " \t\n\u00a0\u3000\u200b\r"


def _wide(rng: random.Random, text: str) -> str:
    i = rng.randrange(len(text))
    char = text[i]
    wide = chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char
    return text[:i] + wide + text[i + 1 :]


def _escaped(rng: random.Random, text: str) -> str:
    i = rng.randrange(len(text))
    return text[:i] + "".join(f"%{byte:02x}" for byte in text[i].encode()) + text[i + 1 :]


def _put(rng: random.Random, text: str, *pieces: str) -> str:
    i = rng.randrange(len(text) + 1)
    return text[:i] + rng.choice(pieces) + text[i:]


def _case(rng: random.Random, text: str) -> str:
    return "".join(char.upper() if rng.random() < 0.5 else char for char in text)


_OF_ANY: Sequence[Spelling] = (
    lambda rng, text: rng.choice(_BLANKS) + text,
    lambda rng, text: text + rng.choice(_BLANKS),
    lambda rng, text: _put(rng, text, "\t", "\n", "\x00", "\u200d", "\u00ad"),
    _wide,
    _escaped,
    _case,
    lambda rng, text: quote(_escaped(rng, text), safe="/:"),
    lambda rng, text: unicodedata.normalize("NFD", text),
)
_OF_PATHS: Sequence[Spelling] = (
    lambda rng, path: "/" * rng.randint(1, 3) + path,
    lambda rng, path: "../" * rng.randint(1, 9) + path.lstrip("/"),
    lambda rng, path: "~" + rng.choice(["", "root"]) + "/.." * rng.randint(1, 3) + path,
    lambda rng, path: rng.choice(["$HOME/..", "${X}", "$(pwd)/..", "`pwd`", "%CD%", "$X"]) + path,
    lambda rng, path: rng.choice(["file://", "file:", "FILE://localhost", "file:/"]) + path,
    lambda rng, path: path.replace("/", "\\"),
    lambda rng, path: path.replace("/", "//", rng.randint(1, 3)).replace("//", "/./", rng.randint(0, 2)),
    lambda rng, path: f"/proc/{rng.choice(['self', '1', 'thread-self'])}/root{path}",
    lambda rng, path: f"{rng.choice('CcD')}:{path}",
    lambda rng, path: _put(rng, path, "''", '""', "\\", "^"),
    lambda rng, path: path.replace(path[-1], rng.choice(["?", "*", f"[{path[-1]}]", f"{{{path[-1]},x}}"]), 1),
    lambda rng, path: f"x{rng.choice([' ', ';', '|', '&&', '=', ':', ','])}{path}",
    lambda rng, path: "/private" + path,
    lambda rng, path: path.replace("/", "/x/../", 1),
    lambda rng, path: "a/../.." + path,
    lambda rng, path: path.lstrip("/"),
    lambda rng, path: path.replace("/", rng.choice([" ./", ". /", "./"]), 2),
)
_OF_HOSTS: Sequence[Spelling] = (
    lambda rng, url: url.replace("://", rng.choice([":/", ":///", ":\\\\", ":", ":/\\", ":////"])),
    lambda rng, url: url.replace("://", f"://ok.example{rng.choice([chr(92), '#', '?', '/', ':', '%40'])}@"),
    lambda rng, url: url.replace(".", rng.choice(["\u3002", "\uff0e", "%2e", ".\t", "..", "\u2024"]), 1),
    lambda rng, url: url.replace("://", "://u:p@"),
    lambda rng, url: url.split(":", 1)[-1],
    lambda rng, url: url.split("//", 1)[-1],
    lambda rng, url: url.replace(
        "https:", rng.choice(["ftp:", "ws:", "HTTP:", "view-source:https:", "java\tscript:"])
    ),
    lambda rng, url: url.rstrip("/") + rng.choice([".", ".:443", ":443", ":", ":0443"]) + "/",
    lambda rng, url: url.replace(
        "127.0.0.1", rng.choice(["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "[::ffff:127.0.0.1]"])
    ),
)


def nasty_path(rng: random.Random, path: str) -> str:
    return _spelled(rng, path, (*_OF_ANY, *_OF_PATHS, *_OF_PATHS))


def nasty_address(rng: random.Random, url: str) -> str:
    return _spelled(rng, url, (*_OF_ANY, *_OF_HOSTS, *_OF_HOSTS))


def nasty_number(rng: random.Random, number: int) -> str:
    """As JSON."""
    n = str(number)
    return rng.choice(
        [n, f"{n}.0", f"{n}e0", f'"{n}"', f'" {n} "', f'"{n}.0"', f'"{hex(number)}"', f'"+{n}"', f'"{n}x"']
    )


def _spelled(rng: random.Random, text: str, spellings: Sequence[Spelling]) -> str:
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
        text = rng.choice(spellings)(rng, text) or text
    return text
