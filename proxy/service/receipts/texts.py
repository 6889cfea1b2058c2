"""Counts the text of one answer: before the hooks, and after them.

A chunk costs two steps and an addition. Digests are read many chunks at a time.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from engine.protocol import Channel, Delta, FinishReason, Rewind, ToolCall
from engine.protocol.deltas import with_own_reason
from engine.streams.flow import Stage

Place = tuple[int, Channel]
"""An output, and a channel of it."""
NOTHING = hashlib.sha256().hexdigest()
"""The digest of a text of which nothing was released."""
PIECES = 128
"""Pieces of a text that are read at once."""


class SeenTexts(Stage):
    """The stage before the hooks. After a rewind, an output comes again from its beginning, and counts from
    there."""

    __slots__ = ("sizes",)

    def __init__(self) -> None:
        self.sizes: dict[Place, int] = defaultdict(int)
        """Characters, by output and channel."""

    def feed(self, delta: Delta) -> None:
        if delta.text:
            self.sizes[delta.index, delta.channel] += len(delta.text)
        self.next.feed(delta)

    def rewind(self, rewind: Rewind) -> None:
        for key in [key for key in self.sizes if key[0] == rewind.index]:
            del self.sizes[key]
        self.source.rewind(rewind)


class ReleasedText:
    """One channel of one output, or one tool call."""

    __slots__ = ("_hash", "_pieces", "_size")

    def __init__(self, call: ToolCall | None) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._hash = hashlib.sha256(b"" if call is None else f"{call.name}\n".encode())

    def add(self, text: str) -> None:
        self._pieces.append(text)
        if len(self._pieces) == PIECES:
            self._read()

    def _read(self) -> None:
        text = "".join(self._pieces)
        self._pieces.clear()
        self._size += len(text)
        self._hash.update(text.encode())

    def end(self) -> tuple[int, str]:
        """The characters, and their digest. That of a call begins with its name."""
        self._read()
        return self._size, self._hash.hexdigest()


class ReleasedTexts(Stage):
    """The stage after the hooks."""

    __slots__ = ("_texts", "finish_reasons")

    def __init__(self) -> None:
        self._texts: dict[tuple[int, Channel, int | None], ReleasedText] = {}
        self.finish_reasons: dict[int, FinishReason | None] = {}

    def feed(self, delta: Delta) -> None:
        call = delta.tool_call
        if delta.text or call is not None:
            key = delta.index, delta.channel, None if call is None else call.index
            found = self._texts.get(key)
            if found is None:
                found = self._texts[key] = ReleasedText(call)
            found.add(delta.text)
        if delta.finish_reason is not None:
            self.finish_reasons[delta.index] = self._reason(delta)
        self.next.feed(delta)

    def _reason(self, last: Delta) -> FinishReason | None:
        """As the client gets it."""
        calls = {index for index, _, number in self._texts if number is not None}
        if last.finish_reason == "stop" and not calls:
            return "stop"  # as almost always
        return with_own_reason(last, has_call=last.index in calls).finish_reason

    def ended(self) -> dict[tuple[int, Channel, int | None], tuple[int, str]]:
        """The texts, in the order in which they began."""
        return {key: text.end() for key, text in self._texts.items()}


def outputs(
    seen: SeenTexts | None, released: ReleasedTexts, written: Mapping[Place, int]
) -> list[dict[str, Any]]:
    """The outputs as a receipt has them. `seen`: None: there are no hooks. `written`: the characters that
    hooks wrote, as their decisions say."""
    texts, reasons = released.ended(), released.finish_reasons
    if not (texts or reasons or (seen is not None and seen.sizes)):
        return []  # no engine was asked: hooks judged others' texts
    sizes: dict[Place, int] = {}
    for (index, channel, _), (size, _) in texts.items():
        sizes[index, channel] = sizes.get((index, channel), 0) + size
    given = sizes if seen is None else seen.sizes
    found: dict[int, list[dict[str, Any]]] = {index: [] for index in sorted(reasons)}
    for place in dict.fromkeys([*given, *sizes, *written]):
        index, channel = place
        num_seen, num_released = given.get(place, 0), sizes.get(place, 0)
        # A refusal's text is no decision's: hooks have written it, too.
        num_written = max(written.get(place, 0), num_released - num_seen)
        counts: dict[str, Any] = {
            "channel": channel,
            "seen": num_seen,
            "written": num_written,
            "withheld": num_seen + num_written - num_released,
            "released": num_released,
        }
        if channel == "tool_call":
            calls = [(number, sha256) for (i, _, number), (_, sha256) in texts.items() if i == index]
            counts["calls"] = [{"index": i, "sha256": sha256} for i, sha256 in calls if i is not None]
        else:
            counts["sha256"] = texts.get((index, channel, None), (0, NOTHING))[1]
        found.setdefault(index, []).append(counts)
    return [
        {"index": index, "finish_reason": reasons.get(index), "channels": channels}
        for index, channels in found.items()
    ]
