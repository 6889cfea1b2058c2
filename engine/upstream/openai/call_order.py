"""Puts the parts of an output's tool calls in order. Upstreams may send parts of several calls in turn."""

import re
from dataclasses import replace

from engine.protocol import Delta, Usage
from engine.protocol.deltas import join

_MARKS = re.compile(r'\\.|["\\{}\[\]]', re.DOTALL)
"""What says where a JSON text ends. A backslash at the end of a piece stands alone."""


class CallOrder:
    """One call goes first. Parts of other calls wait until its arguments are a whole object, or until the
    output's end. Parts that come in order never wait."""

    def __init__(self) -> None:
        self._front: int | None = None
        """The index of the call that goes first."""
        self._unread: list[str] = []
        """Parts of its arguments that nobody had to look at yet."""
        self._nesting = _Nesting()
        self._gone: set[int] = set()
        """The indices of the calls before it."""
        self._waiting: dict[int, list[Delta]] = {}
        """The parts of the other calls, by their index."""

    def put(self, part: Delta) -> list[Delta]:
        """Take the next part of a call. Returns those that may go on."""
        assert part.tool_call is not None
        index = part.tool_call.index
        if self._front is None:
            self._front = index
        if index in self._gone:
            return [part] if part.text.strip() else []  # blanks behind a whole object
        if index != self._front:
            self._waiting.setdefault(index, []).append(part)
            return self._next(part.usage)
        self._unread.append(part.text)
        return [part, *self._next(part.usage)] if self._waiting else [part]

    def flush(self, usage: Usage | None) -> list[Delta]:
        """The output has ended: the parts that waited, in order. `usage`: the totals so far."""
        waiting, self._waiting = self._waiting, {}
        return [one for index in sorted(waiting) for one in _joined(waiting[index], usage)]

    def _next(self, usage: Usage | None) -> list[Delta]:
        """The parts of the calls that need not wait any more."""
        released: list[Delta] = []
        while self._waiting and self._is_whole():
            assert self._front is not None
            self._gone.add(self._front)
            self._front = min(self._waiting)
            parts = self._waiting.pop(self._front)
            self._nesting, self._unread = _Nesting(), [part.text for part in parts]
            released += _joined(parts, usage)
        return released

    def _is_whole(self) -> bool:
        for text in self._unread:
            self._nesting.read(text)
        self._unread = []
        return self._nesting.is_over


class _Nesting:
    """Reads a JSON object in pieces, and knows when it is over."""

    def __init__(self) -> None:
        self.is_over = False
        self._depth = 0
        self._in_string = False
        self._escape = ""
        """A backslash whose character has not come."""

    def read(self, text: str) -> None:
        text, self._escape = self._escape + text, ""
        for mark in _MARKS.findall(text):
            if mark == "\\":
                self._escape = mark
            elif mark == '"':
                self._in_string = not self._in_string
            elif len(mark) == 1 and not self._in_string:
                self._depth += 1 if mark in "{[" else -1
                self.is_over = self._depth <= 0


def _joined(parts: list[Delta], usage: Usage | None) -> list[Delta]:
    """The parts as one: the totals of a request never decrease, and those of the parts are of earlier."""
    return [replace(part, usage=usage) for part in join(parts)]
