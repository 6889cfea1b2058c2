"""Reads a tool call as JSON, `{"name": ..., "arguments": {...}}`, while it comes.

Libraries for partial JSON return values. Here the positions in the text matter: arguments continue in the
model's own words, character by character, and the text behind the call must stay unread.
"""

import re

import orjson

from engine.parsers.scan import Calls, Scan
from engine.parsers.tape import Stream, Tape

MAX_STRING = 256
"""Most characters of a name or a key, with quotes. Longer text is not a call, and is not held."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WORD = re.compile(r"[\w.-]+")


class NotACallError(ValueError):
    """The text is not a tool call, or its call is broken from here on."""


class Reader:
    """Reads ahead on a tape, skips blanks, and decides no text. Raises `NotACallError`."""

    def __init__(self, tape: Tape, position: int = 0) -> None:
        self.tape = tape
        self.position = position
        """The end of the text that was read."""

    def peek(self) -> Scan[str]:
        """The next character that is not blank."""
        while True:
            text = self.tape.text
            while self.position < len(text):
                if not text[self.position].isspace():
                    return text[self.position]
                self.position += 1
            yield from self._more()

    def expect(self, *characters: str) -> Scan[str]:
        character = yield from self.peek()
        if character not in characters:
            raise NotACallError
        self.position += 1
        return character

    def string(self) -> Scan[str]:
        """Read a JSON string, and return its value."""
        yield from self.expect('"')
        self.position -= 1
        while not (found := _STRING.match(self.tape.text, self.position, self.position + MAX_STRING)):
            if len(self.tape.text) - self.position >= MAX_STRING:
                raise NotACallError
            yield from self._more()
        self.position = found.end()
        try:
            return str(orjson.loads(found[0]))
        except orjson.JSONDecodeError:
            raise NotACallError from None

    def word(self) -> Scan[str]:
        yield from self.peek()
        while (found := _WORD.match(self.tape.text, self.position)) and found.end() == len(self.tape.text):
            if len(found[0]) > MAX_STRING:
                break
            yield from self._more()
        if not found or len(found[0]) > MAX_STRING:
            raise NotACallError
        self.position = found.end()
        return found[0]

    def optional(self, marker: str) -> Scan[bool]:
        yield from self.peek()
        while True:
            text = self.tape.text[self.position : self.position + len(marker)]
            if text == marker:
                self.position += len(marker)
                return True
            if not marker.startswith(text):
                return False
            yield from self._more()

    def object(self) -> Scan[None]:
        """Read the JSON object that begins here."""
        nesting = Nesting()
        while not nesting.is_closed:
            if self.position == len(self.tape.text):
                yield from self._more()
            self.position = nesting.end(self.tape.text, self.position)
        if nesting.depth:
            raise NotACallError

    def _more(self) -> Scan[None]:
        if self.tape.ended:
            raise NotACallError
        yield


class Nesting:
    """Finds the end of a JSON object while it comes."""

    _INSIDE_STRING = re.compile(r'["\\]')
    _OUTSIDE = re.compile(r"[^\w\s:,.+-]")
    """Quotes, brackets, and characters that JSON does not have outside strings."""

    def __init__(self) -> None:
        self.depth = 0
        self.is_closed = False
        """The object has ended, or the text stopped being JSON. In the second case `depth` is not 0."""
        self._in_string = False
        self._is_escaped = False

    def end(self, text: str, position: int) -> int:
        """The end of the object's part of `text`. `position`: the end of the part that was read before."""
        while position < len(text) and not self.is_closed:
            if self._is_escaped:
                self._is_escaped = False
                position += 1
                continue
            found = (self._INSIDE_STRING if self._in_string else self._OUTSIDE).search(text, position)
            if not found:
                return len(text)
            position = found.end()
            if not self._take(found[0]):
                self.is_closed = True
                return found.start()
        return position

    def _take(self, character: str) -> bool:
        match character:
            case "\\" if self._in_string:
                self._is_escaped = True
            case '"':
                self._in_string = not self._in_string
            case "{" | "[":
                self.depth += 1
            case "}" | "]":
                self.depth -= 1
                self.is_closed = self.depth == 0
            case _:
                return False
        return True


def read_call(tape: Tape, position: int, calls: Calls) -> Scan[None]:
    """Read the call that begins at `position`. The text before it is its opening.

    The arguments are streamed in the model's own words as soon as the name is known. The rest of the call is
    consumed. Raises `NotACallError`; if no call was begun by then, all text is still undecided. An object
    with other keys is not a call: its text and tokens would disappear without any hook seeing them.
    """
    reader = Reader(tape, position)
    name: str | None = None
    arguments: tuple[int, int] | None = None
    stream: Stream | None = None
    yield from reader.expect("{")
    while True:
        key = yield from reader.string()
        yield from reader.expect(":")
        if key == "name" and not name:
            name = yield from reader.string()
        elif key in ("arguments", "parameters") and not (arguments or stream):
            if (yield from reader.peek()) != "{":
                raise NotACallError
            if name:
                stream = calls.begin(name)
                yield from give_arguments(reader, stream)
            else:
                begin = reader.position
                yield from reader.object()
                arguments = begin, reader.position
        elif key != "type" or (yield from reader.string()) != "function":
            raise NotACallError
        if (yield from reader.expect(",", "}")) == "}":
            break
    if not name:
        raise NotACallError
    if stream is None:
        begin, end = arguments or (reader.position, reader.position)
        stream = calls.begin(name)
        tape.drop(begin)
        tape.give(end - begin, stream)
        reader.position -= end
        if arguments is None:
            tape.insert("{}", stream)
    tape.drop(reader.position)


def give_arguments(reader: Reader, stream: Stream) -> Scan[None]:
    """Consume the text that was read. Stream the object behind it, to its end or the tape's end."""
    tape = reader.tape
    tape.drop(reader.position)
    reader.position = 0
    nesting = Nesting()
    while True:
        tape.give(nesting.end(tape.text, 0), stream)
        if nesting.is_closed or tape.ended:
            return
        yield
