"""Counts the text of one answer: before the hooks, and after them.

A chunk costs two steps and an addition. Digests are read many chunks at a time.
"""

import hashlib
from collections import Counter
from typing import Any

from engine.protocol import Channel, Delta, FinishReason, Rewind, ToolCall
from engine.protocol.deltas import with_own_reason
from engine.streams.flow import Stage

PIECES = 128
"""Pieces of a text that are read at once."""


class SeenTexts(Stage):
    """The stage before the hooks. After a rewind, an output comes again from its beginning, and counts from
    there."""

    __slots__ = ("sizes",)

    def __init__(self) -> None:
        self.sizes: Counter[tuple[int, Channel]] = Counter()
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
        self.finish_reasons: dict[int, FinishReason] = {}

    def feed(self, delta: Delta) -> None:
        call = delta.tool_call
        if delta.text or call is not None:
            key = delta.index, delta.channel, None if call is None else call.index
            found = self._texts.get(key)
            if found is None:
                found = self._texts[key] = ReleasedText(call)
            found.add(delta.text)
        if delta.finish_reason is not None:
            has_call = any(index == delta.index and number is not None for index, _, number in self._texts)
            self.finish_reasons[delta.index] = (
                with_own_reason(delta, has_call=has_call).finish_reason or "stop"
            )
        self.next.feed(delta)

    def ended(self) -> dict[tuple[int, Channel, int | None], tuple[int, str]]:
        """The texts, in the order in which they began."""
        return {key: text.end() for key, text in self._texts.items()}


def outputs(seen: SeenTexts, released: ReleasedTexts, written: Counter[tuple[int, Channel]]) -> list[Any]:
    """The outputs as a receipt has them. `written`: the characters that hooks wrote, as their decisions
    say."""
    texts = released.ended()
    if not (texts or seen.sizes or released.finish_reasons):
        return []  # no engine was asked: hooks judged others' texts
    sizes: Counter[tuple[int, Channel]] = Counter()
    for (index, channel, _), (size, _) in texts.items():
        sizes[index, channel] += size
    found: dict[int, dict[str, Any]] = {}
    for index, channel in dict.fromkeys([*seen.sizes, *sizes, *written]):
        key = index, channel
        # A refusal's text is no decision's: hooks have written it, too.
        num_written = max(written[key], sizes[key] - seen.sizes[key])
        counts: dict[str, Any] = {
            "channel": channel,
            "seen": seen.sizes[key],
            "written": num_written,
            "withheld": seen.sizes[key] + num_written - sizes[key],
            "released": sizes[key],
        }
        if channel == "tool_call":
            counts["calls"] = [
                {"index": number, "sha256": sha256}
                for (i, _, number), (_, sha256) in texts.items()
                if i == index and number is not None
            ]
        else:
            counts["sha256"] = texts.get((index, channel, None), (0, hashlib.sha256().hexdigest()))[1]
        found.setdefault(index, {"index": index, "finish_reason": None, "channels": []})
        found[index]["channels"].append(counts)
    for index, reason in released.finish_reasons.items():
        found.setdefault(index, {"index": index, "channels": []})["finish_reason"] = reason
    return [found[index] for index in sorted(found)]
