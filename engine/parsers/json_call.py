"""Reads a tool call as JSON, `{"name": ..., "arguments": {...}}`, while it comes."""

import json
import re
from typing import Literal

from engine.parsers.json_reader import Nesting, NotACallError, Reader
from engine.parsers.scan import Calls, Scan
from engine.parsers.tape import Stream, Tape

_BLANKS = re.compile(r"(?:\s|\\[nrt])*")
"""In a JSON string."""
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_CHARACTERS = re.compile(
    rf'[^"\\]+|{_HIGH}{_LOW}|{_HIGH}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{{4}})|(?!{_HIGH})\\u[0-9a-fA-F]{{4}}'
    r'|\\["\\/bfnrt]'
)
"""Characters of a JSON string without escapes, or one escape. Half a surrogate pair waits for the other."""


def read_call(reader: Reader, calls: Calls) -> Scan[None]:
    """Read the call that is next. The text before it is its opening.

    The arguments are streamed as soon as the name is known. The rest of the call is consumed. It raises
    `NotACallError`; if no call was begun by then, all text is still undecided. An object with other keys is
    not a call: its text and tokens would disappear without any hook seeing them.
    """
    tape = reader.tape
    name: str | None = None
    arguments: int | None = None
    is_begun = False
    yield from reader.expect("{")
    while True:
        key = yield from reader.string()
        yield from reader.expect(":")
        if key == "name" and not name:
            name = yield from reader.string()
        elif key in ("arguments", "parameters") and arguments is None and not is_begun:
            if name:
                yield from begin_call(reader, name, calls)
                is_begun = True
            else:
                yield from reader.peek()
                arguments = reader.position
                yield from _skip_arguments(reader)
        elif key == "id":
            yield from skip_id(reader)
        elif key != "type" or (yield from reader.string()) != "function":
            raise NotACallError
        if (yield from reader.expect(",", "}")) == "}":
            break
    if not name:
        raise NotACallError
    if arguments is not None:
        num_behind = len(tape.text) - reader.position
        reader.position = arguments
        yield from begin_call(reader, name, calls)
        reader.position = len(tape.text) - num_behind
    elif not is_begun:
        stream = calls.begin(name)
        tape.drop(reader.position)
        reader.position = 0
        tape.insert("{}", stream)
    tape.drop(reader.position)


def skip_id(reader: Reader) -> Scan[None]:
    """Read the model's own id of a call. Its tokens are withheld: the service makes its own ids, so no hook
    sees this one."""
    first = yield from reader.peek()
    begin = reader.position
    if first == '"':
        yield from reader.string()
    else:
        yield from reader.word()
    reader.tape.mute(begin, reader.position)


def begin_call(reader: Reader, name: str, calls: Calls) -> Scan[None]:
    """Begin the call whose arguments are next: consume the text before them, and stream them. The reader
    then is after them. Raises `NotACallError` for other text, which stays undecided.

    Arguments are an object. Some models write the object as JSON in a string, or no object: `null`, or an
    empty string.
    """
    kind = yield from _kind_of_arguments(reader)
    tape, stream = reader.tape, calls.begin(name)
    tape.drop(reader.position)
    reader.position = 0
    if kind == "object":
        yield from _give_object(tape, stream)
    elif kind == "string":
        yield from _give_decoded(tape, stream)
    else:
        tape.insert("{}", stream)


def _skip_arguments(reader: Reader) -> Scan[None]:
    match (yield from reader.peek()):
        case "{":
            yield from reader.object()
        case '"':
            yield from reader.long_string()
        case _:
            yield from reader.word()


def _kind_of_arguments(reader: Reader) -> Scan[Literal["object", "string", "none"]]:
    """Read up to the object, or up to the text of the string that has one. No arguments are read whole."""
    first = yield from reader.peek()
    if first == "{":
        return "object"
    if first != '"':
        if (yield from reader.word()) != "null":
            raise NotACallError
        return "none"
    reader.position += 1
    begin = reader.position
    yield from _skip_blanks(reader)
    if (yield from reader.peek()) == "{":
        reader.position = begin
        return "string"
    if (yield from reader.optional("null")):
        yield from _skip_blanks(reader)
    yield from reader.expect('"')
    return "none"


def _skip_blanks(reader: Reader) -> Scan[None]:
    """Read blanks in a JSON string, up to another character or the tape's end."""
    tape = reader.tape
    while True:
        reader.position = _end_of_blanks(tape.text, reader.position)
        if tape.ended or tape.text[reader.position :] not in ("", "\\"):
            return
        yield


def _end_of_blanks(text: str, position: int = 0) -> int:
    found = _BLANKS.match(text, position)
    return found.end() if found else position


def _give_object(tape: Tape, stream: Stream) -> Scan[None]:
    """Stream the object that begins here, to its end or the tape's end."""
    nesting = Nesting()
    while True:
        tape.give(nesting.end(tape.text, 0), stream)
        if nesting.is_closed or tape.ended:
            return
        yield


def _give_decoded(tape: Tape, stream: Stream) -> Scan[None]:
    """Stream the object that is as JSON in a string, and consume the string to its end. The tape
    is after the string's quote. Its tokens are withheld: their text differs."""
    nesting = Nesting()
    while True:
        begin = 0 if nesting.depth else _end_of_blanks(tape.text)
        num, decoded = _decoded(tape.text, begin, nesting)
        tape.mute(0, num)
        tape.drop(num)
        if decoded:
            tape.insert(decoded, stream)
        if nesting.is_closed or tape.ended or tape.text.startswith('"'):
            break
        yield
    reader = Reader(tape)
    yield from _skip_blanks(reader)
    is_broken = nesting.is_closed and nesting.depth
    if not is_broken and tape.text.startswith('"', reader.position):
        tape.drop(reader.position + 1)


def _decoded(text: str, begin: int, nesting: Nesting) -> tuple[int, str]:
    """The end of the part of a string's text that is whole and belongs to the object, and its meaning."""
    end, decoded = begin, ""
    while not nesting.is_closed and (found := _CHARACTERS.match(text, end)):
        raw = found[0]
        if raw.startswith("\\"):
            meant = json.loads(f'"{raw}"').encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        else:
            meant = raw
        num = nesting.end(meant, 0)
        decoded += meant[:num]
        end += num if meant is raw else len(raw)
    return end, decoded
