"""Does a value get out that a guard has found before? A part of `make bench NAME=leaks`.

Random streams hold values that only the words before them show, and later the same values by themselves. They
go through several guards in random order, in random chunks, with tokens and without, fused and
without, whole and cut short. What is released must not depend on any of these, and after the words that show
a value, the value must not stand by itself.
"""

import asyncio
import random
import re
from collections.abc import Iterable, Sequence
from functools import cache, partial

from benchmarks.hooks import REQUEST
from engine.protocol import Delta, Token
from engine.streams.feeding import feed_given, iterated
from engine.streams.flow import StagedFlow
from hooks.builtin.links import Links
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.detect.span_guard import SpanGuard
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import vetted

_SECRETS = Secrets()
_OTHERS: Sequence[SpanGuard] = (Pii(), Phrases(["blue heron", "the weir"]), Links(allow=["ok.example"]))
_SHOWN = (
    "the password is {}",
    "password: {}",
    "token = '{}'",
    "passwort={}",
    "export DB_PASSWORD={}",
    "pwd '{}'",
    '"api_key": "{}"',
)
_AGAIN = ("{}", "'{}'", "({})", "{},", "{}.", "say {} now", "=> {}", "{}\n", "x={}")
_WORDS = (
    "a blue",
    "heron",
    "stood",
    "at the",
    "weir",
    "and so",
    "on.",
    "Well,",
    "\n",
    "7 of 9",
    "[x]",
    "a_b",
    "token",
    "secret",
)
_SIGNS = "#$%-_"
_ALNUM = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"


def random_value(rng: random.Random) -> str:
    """A value that looks drawn, ends in no mark of a sentence, and is found after all words that show it."""
    while True:
        chars = [rng.choice(_ALNUM + _SIGNS * 2) for _ in range(rng.randint(10, 40))]
        value = "".join([rng.choice(_ALNUM), *chars, rng.choice("23456789"), rng.choice("xyzXYZ")])
        if all(_found(form.format(value)) == [value] for form in _SHOWN):
            return value


def _found(text: str) -> list[str]:
    matches, _ = _SECRETS.detector.scan(text)
    return sorted({text[match.start : match.end] for match in matches})


def random_text(rng: random.Random, values: Sequence[str]) -> str:
    parts: list[str] = []
    for value in values:
        parts += rng.choices(_WORDS, k=rng.randint(0, 4))
        parts.append(rng.choice(_SHOWN).format(value))
        for _ in range(rng.randint(1, 3)):
            parts += rng.choices(_WORDS, k=rng.randint(0, 4))
            parts.append(rng.choice(_AGAIN).format(rng.choice(values)))
    return " ".join([*parts, *rng.choices(_WORDS, k=rng.randint(0, 3))])


def random_deltas(rng: random.Random, text: str, *, has_tokens: bool) -> list[Delta]:
    most = rng.choice((1, 3, 8, 40, 1000))
    deltas: list[Delta] = []
    while text:
        size = rng.randint(1, most)
        piece, text = text[:size], text[size:]
        tokens = (Token(len(deltas), piece, piece.encode(), -0.5),) if has_tokens else ()
        deltas.append(Delta(text=piece, tokens=tokens))
    return deltas


@cache
def pipeline_of(guards: tuple[SpanGuard, ...], *, joint: bool) -> Pipeline:
    pipeline = Pipeline([LoadedHook.of(str(i), guard) for i, guard in enumerate(guards)])
    if not joint:
        pipeline._runs = []
    return pipeline


async def released(guards: Iterable[SpanGuard], deltas: list[Delta], last: Delta, *, joint: bool) -> str:
    pipeline = pipeline_of(tuple(guards), joint=joint)
    given = StagedFlow(partial(feed_given, [*deltas, last]))
    return "".join([d.text async for d in vetted(pipeline.open(REQUEST), lambda _: iterated(given))])


def standing(text: str, value: str) -> int:
    """How often the value is by itself in the text."""
    before = r"(?<![^\W_])" if value[0].isalnum() else ""
    behind = r"(?![^\W_])" if value[-1].isalnum() else ""
    return len(re.findall(before + re.escape(value) + behind, text))


async def run(num_streams: int, seed: int) -> int:
    """Run so many streams; returns how many values that stood again were withheld."""
    rng = random.Random(seed)
    num_again = 0
    for _ in range(num_streams):
        values = [random_value(rng) for _ in range(rng.randint(1, 3))]
        text = random_text(rng, values)
        last = Delta(finish_reason="stop")
        if rng.random() < 0.5:
            text, last = text[: rng.randint(0, len(text))], Delta(finish_reason="length")
        guards: list[SpanGuard] = [_SECRETS, *rng.sample(_OTHERS, rng.randint(0, len(_OTHERS)))]
        rng.shuffle(guards)
        whole = await released(guards, [Delta(text=text)] if text else [], last, joint=False)
        deltas = random_deltas(rng, text, has_tokens=rng.random() < 0.5)
        cut = await released(guards, deltas, last, joint=rng.random() < 0.7)
        # Where the client cuts, each of several guards withholds what may begin a match in what it was shown.
        assert cut == whole or (last.finish_reason == "length" and len(guards) > 1), text
        for value in values:
            shown = min(
                (found for form in _SHOWN if (found := text.find(form.format(value))) >= 0), default=len(text)
            )
            num_before = standing(text[:shown], value)
            num_left = max(standing(one, value) for one in (whole, cut))
            assert num_left <= num_before, text
            num_again += max(0, standing(text, value) - num_left - 1)
    return num_again


def run_one(num_streams: int, seed: int) -> int:
    return asyncio.run(run(num_streams, seed))
