"""Texts that could take a guard long: `python -m benchmarks.guards --worst`.

Each text is the beginnings of values, or of what a rule waits for, over and over. A prompt of 1 MB is
redacted as a whole. No text may take over 2 seconds.
"""

import random
import string
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks.families import families
from benchmarks.hooks import REQUEST
from hooks.detect.span_guard import SpanGuard

SIZE = 1_000_000
_MOST_SECONDS = 2.0
_STEPS = (16, 4, 1)
"""A text is tried at these parts of its size first: a slow one does not stop the others."""
_OF_KEYS = string.ascii_letters + string.digits + "!#"
_REPEATED = (
    *(
        "1",
        "0",
        "a",
        "A",
        " ",
        "\n",
        "\t",
        ".",
        "-",
        "=",
        ":",
        "/",
        "\\",
        "%",
        "&",
        "<",
        "@",
        "+",
        "_",
        "\u200b",
    ),
    *(
        "1.",
        "1.1.1.1.",
        "1 ",
        "12 ",
        "1-",
        "a@",
        "a.",
        "@a.",
        "a:",
        "::",
        "ff:",
        "+1 ",
        "+49 30 ",
        "(1) ",
        "1/",
    ),
    *(
        "4111 ",
        "4111-",
        "12345678 ",
        "DE89 ",
        "a1",
        "A1 ",
        "0x",
        "%41",
        "%4",
        "&#65;",
        "&#",
        "\\u0041",
        "\\u00",
    ),
    *(
        "\\x41",
        "\\n",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "-----END",
        "password=",
        "password: ",
        "pass ",
    ),
    *(
        "token is ",
        "secret ",
        "key=",
        '"',
        '":"',
        "eyJ",
        "eyJhbGciOiJ",
        "a.b.",
        "sk-",
        "://a:",
        "://",
        "Bearer ",
    ),
    *(
        "aA1",
        "fa7a",
        "x=y&",
        "a\u00ad",
        "\u00a0",
        "\uff11",
        "\u2013",
        "passport ",
        "api_key",
        "https://a/",
        "a\n  ",
    ),
)


_DRESS: dict[str, Callable[[str], str]] = {
    "in one row": lambda text: text,
    "with percent signs": lambda text: "".join(f"%{ord(s):02X}" if s in "15aeAE -@=" else s for s in text),
    "with zero-width spaces": "\u200b".join,
    "wrapped": lambda text: f"{text[: len(text) // 2]}\n  {text[len(text) // 2 :]}",
}


def texts(guards: dict[str, SpanGuard]) -> Iterator[tuple[str, str]]:
    """Return names and texts of `SIZE` characters."""
    rng = random.Random(1)
    for part in _REPEATED:
        yield f"{part!r} repeated", part * (SIZE // len(part))
    for name, members in (
        ("digits", string.digits),
        ("digits and marks", string.digits + " .-+()/"),
        ("hexadecimal", "0123456789abcdef"),
        ("base64", string.ascii_letters + string.digits + "+/"),
        ("letters and marks", string.printable),
        ("marks", string.punctuation),
    ):
        yield f"random {name}", "".join(rng.choices(members, k=SIZE))
    for name, guard in guards.items():
        values = []
        for family in families(guard):
            before, value, after = family.text(rng)
            values.append((before, value + after))
            piece = before + value + after
            yield f"{name}, {family.rule.entity} without its end", piece[:-1] * (SIZE // len(piece))
            yield f"{name}, {family.rule.entity} repeated", f"{piece} " * (SIZE // len(piece))
        for kind, dressed in _DRESS.items():
            yield (
                f"{name}, all values {kind}",
                " ".join(dressed(b + v) for b, v in values * (SIZE // 3000))[:SIZE],
            )
        for mark in (" ", ":", "="):
            drawn = ("".join(rng.choices(_OF_KEYS, k=9)) for _ in range(SIZE // 10))
            yield (
                f"{name}, words {mark!r} values",
                " ".join(rng.choice(values)[0].strip(" :=") + mark + one for one in drawn)[:SIZE],
            )


def seconds_of(guard: SpanGuard, text: str) -> float:
    """Seconds in which the guard redacts a prompt of this text, from a part of it if that is slow."""
    seconds = 0.0
    for step in _STEPS:
        request = replace(REQUEST, messages=({"role": "user", "content": text[: len(text) // step]},))
        on_request = guard.on_request
        assert on_request is not None, "the guard reads no prompts"
        began = time.process_time()
        on_request(request)
        seconds = (time.process_time() - began) * step
        if seconds > 10 * _MOST_SECONDS:
            break
    return seconds


def print_worst(guards: dict[str, SpanGuard], num_shown: int = 12) -> bool:
    """Print the slowest texts of each guard. Returns whether none takes over 2 seconds."""
    is_good = True
    made = list(texts(guards))
    for name, guard in guards.items():
        taken = sorted(((seconds_of(guard, text), kind) for kind, text in made), reverse=True)
        is_good = is_good and taken[0][0] <= _MOST_SECONDS
        over = sum(seconds > _MOST_SECONDS for seconds, _ in taken)
        print(f"\n{name}: {over} of {len(taken)} texts of 1 MB take over {_MOST_SECONDS:.0f} s; the slowest:")
        for seconds, kind in taken[:num_shown]:
            print(f"  {seconds:7.2f} s  {kind[:90]}", flush=True)
    return is_good
