"""One machine for all formats of tool calls: it reads a `Format`, which is data, from an output.

    begin [each] call [each_end] between [each] call [each_end] ... end

Calls are read by one of a few kinds of `Call`, each in a module of its own: `json_call`, `tagged`,
`pythonic`, `braced`. A kind raises `NotACallError` where the text turns out to be no call, and its text stays
content.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from engine.parsers.json_reader import NotACallError, Reader
from engine.parsers.scan import Calls, Scan, at, next_call, skip
from engine.parsers.tape import CONTENT, Tape
from engine.parsers.typed import dumped

Call = Callable[[Reader, Calls], Scan[None]]
"""Reads the call that is next: it begins the call, gives its arguments, and consumes all of its text. Raises
`NotACallError`. If no call was begun by then, all text is still undecided."""


class Format(NamedTuple):
    """How a family of models writes tool calls. Blanks may be between all parts."""

    call: Call
    begin: tuple[str, ...] = ()
    """Markers, one of which comes before calls."""
    each: tuple[str, ...] = ()
    """Markers, one of which comes before each call."""
    each_end: tuple[str, ...] = ()
    """Markers, one of which may come after each call."""
    end: tuple[str, ...] = ()
    """Markers, one of which may come after the last call."""
    between: tuple[str, ...] = ()
    """Texts between two calls."""
    repeats: bool = False
    """Whether a call may follow another one with nothing between."""
    in_list: bool | None = False
    """Whether calls are between brackets. None: they may be, and a call without brackets is alone."""
    begins_output: bool = False
    """Whether calls may begin the output, without any marker."""
    needs_begin: bool = True
    """Whether a marker of `each` counts only after one of `begin`."""
    in_reasoning: bool = True
    """Whether calls inside reasoning count."""
    special: tuple[str, ...] = ()
    """Parts of markers that may be special tokens. Markers may be, too."""

    @property
    def markers(self) -> tuple[str, ...]:
        """All texts that may be special tokens."""
        return (*self.begin, *self.each, *self.each_end, *self.end, *self.special)


def read_calls(form: Format, tape: Tape, calls: Calls, *, begins_output: bool = False) -> Scan[None]:
    """Read an output's calls, and give all other text to content. `begins_output`: calls may begin it."""
    if begins_output:
        yield from _try_group(form, tape, calls, (yield from at(tape, *form.begin)))
    openings = (*form.begin, *form.each) if not form.needs_begin else form.begin
    while opening := (yield from next_call(tape, calls, openings)):
        is_each = tape.text[:opening].lstrip() in form.each
        openings = (*form.begin, *form.each)
        yield from _try_group(form, tape, calls, opening, is_each=is_each)


def _try_group(form: Format, tape: Tape, calls: Calls, opening: int, *, is_each: bool = False) -> Scan[None]:
    """Read the calls after the opening. If there are none, the opening is content."""
    num_before = calls.count
    try:
        yield from _group(form, Reader(tape, opening), calls, is_each=is_each)
    except NotACallError:
        if calls.count == num_before:
            tape.give(opening, CONTENT)


def _group(form: Format, reader: Reader, calls: Calls, *, is_each: bool) -> Scan[None]:
    """Read the calls of one group, with the markers after them. Raises `NotACallError` if the first one is no
    call. `is_each`: the marker before the first one is read."""
    tape = reader.tape
    has_list = form.in_list is not False and (yield from reader.optional("["))
    if form.in_list and not has_list:
        raise NotACallError
    yield from _each(form, reader, calls, is_each=is_each)
    is_whole = form.in_list is False or has_list
    while is_whole and (form.repeats or form.between):
        separator = yield from at(tape, *form.between)
        if not separator and not form.repeats:
            break
        num_before = calls.count
        try:
            yield from _each(form, Reader(tape, separator), calls)
        except NotACallError:
            if calls.count == num_before:
                break
    if has_list:
        yield from skip(tape, "]")
    yield from skip(tape, *form.end)


def _each(form: Format, reader: Reader, calls: Calls, *, is_each: bool = False) -> Scan[None]:
    """Read one call with the markers around it. A call that breaks off after its beginning is a call, too."""
    if form.each and not is_each and not (yield from reader.optional(*form.each)):
        raise NotACallError
    num_before = calls.count
    try:
        yield from form.call(reader, calls)
    except NotACallError:
        if calls.count == num_before:
            raise
    yield from skip(reader.tape, *form.each_end)


def read_name(reader: Reader, *ends: str) -> Scan[str]:
    """Read a tool's name up to one of the `ends`, which is not read. Raises `NotACallError`."""
    name = (yield from reader.until(*ends)).strip()
    if not name or "\n" in name:
        raise NotACallError
    return name


def give_call(reader: Reader, begin: int, name: str, arguments: Mapping[str, Any], calls: Calls) -> None:
    """Begin a call that was read to its end, and give its arguments as JSON. They were written in another
    form from `begin` on, so the tokens of this text are withheld."""
    tape = reader.tape
    tape.mute(begin, reader.position)
    tape.drop(reader.position)
    reader.position = 0
    tape.insert(dumped(arguments), calls.begin(name))
