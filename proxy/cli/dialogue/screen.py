"""Shows the events of an answer.

On a terminal, everything is in its place. Elsewhere, standard output has the answer's content alone, as the
model gave it, and standard error has the rest.
"""

import os
import shutil
import unicodedata
from collections.abc import Mapping
from typing import Any, Literal, TextIO

from proxy.cli.dialogue.client import ChatEvent, DecisionMade, Ended, Text, TextHeld, ToolCall
from proxy.cli.dialogue.terminal import harmless

Style = Literal["content", "reasoning", "tool_call", "note"]

NOTICEABLE = 0.1
"""Seconds for which text is held that a reader notices."""
_STYLES: dict[Style, str] = {
    "content": "\x1b[0m",
    "reasoning": "\x1b[0;2m",
    "tool_call": "\x1b[0;36m",
    "note": "\x1b[0;33m",
}


class Screen:
    """`out`: gets the answer. `notes`: gets the rest where `out` is not a terminal."""

    def __init__(self, out: TextIO, notes: TextIO) -> None:
        self.is_terminal = out.isatty()
        self._out = Sink(out)
        self._notes = self._out if self.is_terminal else Sink(notes)
        self._has_colours = self.is_terminal and "NO_COLOR" not in os.environ
        self._style: Style = "content"
        self._call: int | None = None
        """The tool call that is being shown."""
        self._mark = 0
        """Characters of the mark for held text that is shown now."""

    def show(self, event: ChatEvent) -> None:
        self._unmark()
        if isinstance(event, Text | Ended):
            self._end_call()
        match event:
            case Text(channel, text):
                if {channel, self._style} == {"reasoning", "content"} and self.is_terminal:
                    self._out.end_line()
                self._write(text, channel)
            case ToolCall():
                self._show_call(event)
            case DecisionMade(record) if not _is_quiet(record):
                self._note_in_place(_decision(record))
            case TextHeld(hook, num_held) if num_held:
                self._show_mark(f"[{harmless(hook)} holds {num_held}]")
            case Ended(reason, stop):
                self.end_line()
                if reason not in ("stop", "tool_calls"):
                    self.note(reason if stop is None else f"{reason}: {stop}")
        self._out.flush()

    def note(self, text: str) -> None:
        """Show a line that is not the model's."""
        self.end_line()
        self._note_in_place(text)
        self.end_line()

    def end_line(self) -> None:
        """Go to the beginning of a line."""
        self._unmark()
        self._end_call()
        self._set_style("content")
        for sink in (self._out, self._notes):
            sink.end_line()
            sink.flush()

    def _show_call(self, call: ToolCall) -> None:
        if call.index != self._call:
            self.end_line()
            self._call = call.index
            self._write(f"{call.name}(", "tool_call")
        self._write(call.arguments, "tool_call")

    def _end_call(self) -> None:
        if self._call is not None:
            self._call = None
            self._write(")", "tool_call")
            self._notes.end_line()

    def _note_in_place(self, text: str) -> None:
        earlier = self._style
        if not self.is_terminal:
            self._notes.end_line()
        self._write(f"[{text}]", "note")
        if self.is_terminal:
            self._set_style(earlier)
        else:
            self._notes.end_line()

    def _write(self, text: str, style: Style) -> None:
        self._set_style(style)
        if self.is_terminal:
            self._out.write(harmless(text))
        elif style == "content":
            self._out.write(text)
        else:
            self._notes.write(harmless(text))

    def _set_style(self, style: Style) -> None:
        if style != self._style and self._has_colours:
            self._out.control(_STYLES[style])
        self._style = style

    def _show_mark(self, mark: str) -> None:
        """Show a mark that goes away again, if the line has room for it."""
        if self.is_terminal and mark.isascii() and self._out.has_room(len(mark)):
            before, after = (_STYLES["note"], _STYLES[self._style]) if self._has_colours else ("", "")
            self._out.control(f"{before}{mark}{after}")
            self._mark = len(mark)

    def _unmark(self) -> None:
        if self._mark:
            self._out.control(f"\x1b[{self._mark}D\x1b[K")
            self._mark = 0


class Sink:
    """A stream of text, and the column that its last line has reached."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._column = 0
        self._columns = _columns()

    def write(self, text: str) -> None:
        self._stream.write(text)
        _, end, last = text.rpartition("\n")
        if end:
            self._column, self._columns = 0, _columns()
        for character in last:
            width = _width(character, self._column)
            # A character that does not fit goes to the next line.
            self._column = width if self._column + width > self._columns else self._column + width

    def control(self, text: str) -> None:
        """Write text that does not move the column."""
        self._stream.write(text)

    def end_line(self) -> None:
        if self._column:
            self.write("\n")

    def flush(self) -> None:
        self._stream.flush()

    def has_room(self, width: int) -> bool:
        """Whether text of this width ends on the same line. A terminal that changed its width since the line
        began has no room, as far as anybody knows."""
        return self._columns == _columns() and self._column + width < self._columns


def _columns() -> int:
    return shutil.get_terminal_size().columns


def _width(character: str, column: int) -> int:
    if character == "\t":
        return 8 - column % 8
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _is_quiet(record: Mapping[str, Any]) -> bool:
    """Whether a decision needs no note: a short hold that released its text, or judging that kept up."""
    if record.get("action") == "judged":
        return not record.get("max_unjudged")
    is_hold = record.get("action") == "hold" and not record.get("num_withheld")
    return bool(is_hold and record["held_seconds"] < NOTICEABLE)


def _decision(record: Mapping[str, Any]) -> str:
    """A decision in words, such as `pii: redact 11 characters, email, held 0.3 s`."""
    would = "would " if record.get("mode") == "shadow" else ""
    parts = [f"{record.get('hook')}: {would}{record.get('action')}"]
    if record.get("action") == "judged":
        parts[0] += f" {record.get('num_judged')} tokens"
        parts.append(f"up to {record.get('max_unjudged')} out unjudged")
    if num := record.get("num_withheld"):
        parts[0] += f" {num} character{'s' if num != 1 else ''}"
    if withheld := record.get("withheld"):
        parts.append(repr(withheld))
    if reason := record.get("reason"):
        parts.append(str(reason))
    if (held := record["held_seconds"]) >= NOTICEABLE:
        parts.append(f"held {held:.1f} s")
    return ", ".join(parts)
