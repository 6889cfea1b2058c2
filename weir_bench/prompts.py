"""Prompts made of random words, or the lines of a dataset, as bodies of requests."""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, repeat
from pathlib import Path
from typing import Any, Literal, Protocol

import orjson

Endpoint = Literal["chat", "completions"]
Fields = Mapping[str, Any]

WORDS = (  # noqa: SIM905
    "river stone paper light garden window letter summer market winter bridge forest candle silver orange "
    "travel doctor island engine mirror pocket ladder castle button planet harbour meadow copper"
).split()


class Prompts(Protocol):
    def fields(self, run: int) -> Iterator[Fields]:
        """The fields of one body after the other, without end: `prompt` or `messages`, and others. The same
        `run` gives the same fields."""
        ...


@dataclass(frozen=True, slots=True)
class WordPrompts:
    """Prompts of `num_words` random words, after `num_shared` words that all have in common. No two prompts
    are the same."""

    seed: int
    num_words: int
    num_shared: int = 0
    same: bool = False
    """Whether every prompt of every run is the same instead."""

    def fields(self, run: int) -> Iterator[Fields]:
        return repeat(next(self._different(0))) if self.same else self._different(run)

    def _different(self, run: int) -> Iterator[Fields]:
        shared = random.Random(f"{self.seed}").choices(WORDS, k=self.num_shared)
        draw = random.Random(f"{self.seed} {run}")
        for number in count():
            # The number comes first, so that even short prompts differ, and from their start.
            own = [f"{run}.{number}", *draw.choices(WORDS, k=self.num_words - 1)]
            yield {"prompt": " ".join(shared + own)}


@dataclass(frozen=True, slots=True)
class Dataset:
    """The lines of a file, repeated without end, in a different order for each run."""

    seed: int
    lines: tuple[Fields, ...] = field(repr=False)

    @classmethod
    def load(cls, path: Path, endpoint: Endpoint, seed: int) -> "Dataset":
        """Each line is a JSON object: `prompt`, or `messages` for a chat, and any other field of a request's
        body. `output_tokens`, as in vLLM's custom dataset, means `max_tokens`. Raises `OSError`, and
        `ValueError` with the number of the line."""
        numbered = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        lines = tuple(_line(text, endpoint, f"{path}:{i}") for i, text in numbered if text.strip())
        if not lines:
            raise ValueError(f"{path} has no lines")
        return cls(seed, lines)

    def fields(self, run: int) -> Iterator[Fields]:
        order = list(self.lines)
        random.Random(f"{self.seed} {run}").shuffle(order)
        while True:
            yield from order


def _line(text: str, endpoint: Endpoint, where: str) -> Fields:
    try:
        line = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: {error}") from error
    needed = ("prompt", "messages") if endpoint == "chat" else ("prompt",)
    if not isinstance(line, dict) or not any(name in line for name in needed):
        raise ValueError(f"{where}: not a JSON object with a {' or '.join(map(repr, needed))}")
    if "output_tokens" in line:
        line["max_tokens"] = line.pop("output_tokens")
    return line


def request_bodies(
    prompts: Prompts, run: int, endpoint: Endpoint, defaults: Mapping[str, Any]
) -> Iterator[bytes]:
    """The bodies to send. A field of the dataset wins over the same field of `defaults`."""
    for fields in prompts.fields(run):
        body = {**defaults, **fields}
        if endpoint == "chat" and "prompt" in body:
            prompt = body.pop("prompt")
            body.setdefault("messages", [{"role": "user", "content": prompt}])
        yield orjson.dumps(body)
