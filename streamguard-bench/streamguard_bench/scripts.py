"""Scripted answers: what the upstream says, piece by piece, and what of it no client may read."""

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Api = Literal["chat", "completions", "messages"]
Channel = Literal["content", "reasoning", "call"]
CALL_NAME = "save_note"
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": CALL_NAME,
            "description": "Save a note.",
            "parameters": {
                "type": "object",
                "properties": {"title": {"type": "string"}, "text": {"type": "string"}},
                "required": ["title", "text"],
            },
        },
    }
]


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of an answer."""

    text: str
    channel: Channel = "content"
    choice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    name: str
    """Words in the prompt by which the upstream knows the script."""
    kind: str
    """The part of the benchmark: `leak`, `harmless`, `broken`, `left`, `restored`, or `paced`."""
    channel: str
    """The channel that the report counts this script for."""
    cut: str = "tokens"
    api: Api = "chat"
    pieces: tuple[Piece, ...] = ()
    secret: str = ""
    """The value that no client may read; in a `restored` script, the one that no upstream may read."""
    is_streamed: bool = True
    has_logprobs: bool = False
    has_ids: bool = False
    is_echoed: bool = False
    n: int = 1
    prompt: str = ""
    """Text of the request's prompt beside the name."""
    history: tuple[dict[str, Any], ...] = ()
    """Messages before the last one."""
    pace: float = 0.0
    """Seconds between two pieces."""
    burst: int = 1
    """Events that are written together."""
    is_split: bool = False
    """Whether what is written ends in the middle of an event."""
    ends_after: int | None = None
    """Pieces after which the upstream breaks the connection. None: it does not."""

    @property
    def has_calls(self) -> bool:
        return any(piece.channel == "call" for piece in self.pieces)

    def text(self, channel: Channel, choice: int = 0) -> str:
        return "".join(p.text for p in self.pieces if p.channel == channel and p.choice == choice)


@dataclass(slots=True)
class Names:
    """Gives each script a name of letters alone, which no guard takes for a value."""

    rng: random.Random
    _given: set[str] = field(default_factory=set)

    def new(self) -> str:
        while True:
            name = "case-" + "".join(self.rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(8))
            if name not in self._given:
                self._given.add(name)
                return name


def tokens(text: str, rng: random.Random) -> list[str]:
    """The text in pieces of one to six characters."""
    found, at = [], 0
    while at < len(text):
        size = rng.randint(1, 6)
        found.append(text[at : at + size])
        at += size
    return found


def cut_pieces(text: str, secret: str, cut: str, rng: random.Random) -> list[str]:
    """The text, cut as the name of the cut says. Raises `ValueError` for another name."""
    at = text.find(secret) if secret else -1
    inside = rng.randint(at + 1, at + len(secret) - 1) if at >= 0 and len(secret) > 1 else len(text) // 2
    match cut:
        case "one piece":
            return [text]
        case "characters":
            return [*text]
        case "tokens" | "bursts" | "split writes":
            return tokens(text, rng)
        case "cut in two":
            return [part for part in (text[:inside], text[inside:]) if part]
        case "cut before":
            return [part for part in (text[: max(at, 1)], text[max(at, 1) :]) if part]
        case "last piece":
            return [*tokens(text[:inside], rng), text[inside:]]
    raise ValueError(f"there is no cut {cut!r}")


CUTS = (
    "one piece",
    "characters",
    "tokens",
    "cut in two",
    "cut before",
    "last piece",
    "bursts",
    "split writes",
)


def with_cut(script: Script, cut: str) -> Script:
    """The script, written as the cut says."""
    return dataclasses.replace(
        script, cut=cut, burst=4 if cut == "bursts" else 1, is_split=cut == "split writes"
    )


def interleaved(texts: Sequence[Sequence[Piece]]) -> tuple[Piece, ...]:
    """Pieces of several choices in turn."""
    queues, found = [list(one) for one in texts], []
    while any(queues):
        found += [queue.pop(0) for queue in queues if queue]
    return tuple(found)
