"""The harmony format of gpt-oss, from its published description: messages, each with its own channel.

    <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>

A message to a recipient is a call of it, on any channel. Any other message on `analysis` is reasoning. The
rest is content, and so is text between messages. Models also write odd headers. So a marker begins a header
wherever it is, the recipient may be anywhere in a header, and no marker is ever text.
"""

import re

from engine.parsers.scan import Calls, Scan, at, until
from engine.parsers.tape import CONTENT, REASONING, Stream, Tape
from engine.text.text_search import find_stop, num_held

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = (START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS)

MAX_WORDS = 256
"""Most characters between two markers of a header, of which longer text is the message. Of blanks between
messages, and after a recipient there, more are content."""

_NAME = r"[\w.:/-]{1,128}"
_TO = re.compile(rf"\bto=({_NAME})", re.IGNORECASE)
_FUNCTION = re.compile(rf"\bfunctions\.{_NAME}", re.IGNORECASE)
_CHANNEL = re.compile(r"analysis|commentary|final", re.IGNORECASE)
_PEERS = frozenset({"assistant", "user", "all"})
"""Recipients that are no tools."""

_ROLE = r"\s*(?:assistant|user|system|developer|tool)"
_TYPE = r"\s*(?:json|code)\b"
_KNOWN = {
    START: re.compile(rf"(?:{_ROLE})?(?:\s*{_TO.pattern})?", re.IGNORECASE),
    CHANNEL: re.compile(
        rf"(?:\s*(?:{_CHANNEL.pattern}))?(?:\s*(?:{_TO.pattern}|{_FUNCTION.pattern})(?:{_TYPE})?)?",
        re.IGNORECASE,
    ),
    CONSTRAIN: re.compile(rf"(?:{_TYPE})?", re.IGNORECASE),
}
"""The words after a marker that belong to a header even if no message marker follows."""
_KNOWN_WORD = re.compile(
    rf"{_TO.pattern}|\bto=|{_FUNCTION.pattern}|{_CHANNEL.pattern}|{_ROLE}\b|{_TYPE}", re.IGNORECASE
)

_HEADER_WORDS = (
    *("assistant", "user", "system", "developer", "tool"),
    *("analysis", "commentary", "final", "json", "code"),
)
_BEGINNING = re.compile(rf"(?:\s*(?:{'|'.join(_HEADER_WORDS)}))*\s*", re.IGNORECASE)
"""The first words of a header of which the model, or the prompt, has left no marker."""

_LEAD = re.compile(
    rf"(?:(?<![\w.])|(?<=assistant))(?:to=(?:{_NAME})?\s{{0,{MAX_WORDS}}}|to?)\Z", re.IGNORECASE
)
"""A recipient at the end of a text, or a text that may become one."""
_LEFT_CONTEXT = len("assistant")


def harmony(tape: Tape, calls: Calls) -> Scan[None]:
    """Read messages, and the text between them."""
    is_first = True
    while True:
        header = yield from _free_text(tape, is_first=is_first)
        is_first = False
        while (marker := _marker(tape)) and marker not in ENDS:
            if (yield from _has_message(tape, header)):
                yield from _message(tape, header.stream(calls))
            header = _Header()
        if not marker:
            return
        tape.drop(len(marker))


class _Header:
    """The contents of one message's header, as far as it was read."""

    def __init__(self) -> None:
        self.recipient = ""
        self.channel = ""

    def read(self, words: str, marker: str) -> bool:
        """Read the words after a marker. The first recipient and the last channel count. Returns whether
        every word is known. A recipient that does not count is not known."""
        named = [found[1] for found in _TO.finditer(words)]
        if marker != START:  # whose words name the author
            named += [found[0] for found in _FUNCTION.finditer(_TO.sub("", words))]
        self.recipient = self.recipient or next(iter(named), "")
        if marker != CONSTRAIN and (found := _CHANNEL.search(_FUNCTION.sub("", _TO.sub("", words)))):
            self.channel = found[0].lower()
        return set(named) <= {self.recipient} and not _KNOWN_WORD.sub("", words).strip()

    def stream(self, calls: Calls) -> Stream:
        name = re.sub(r"\Afunctions\.", "", self.recipient, flags=re.IGNORECASE)
        if name and name.lower() not in _PEERS:
            return calls.begin(name)
        return REASONING if self.channel == "analysis" else CONTENT


def _marker(tape: Tape) -> str:
    """The marker at the beginning of the undecided text, or nothing."""
    return next(filter(tape.text.startswith, MARKERS), "")


def _free_text(tape: Tape, *, is_first: bool) -> Scan[_Header]:
    """Give text outside messages to content, up to a marker. Returns the beginning of a header.

    A header may lack its first markers: the prompt has them, or the model forgot them. Its words then are
    before any marker.
    Blanks between messages belong to no stream, unless they are too many to hold.
    """
    header, left = _Header(), ""
    while True:
        found = find_stop(tape.text, MARKERS, 0)
        end = found[0] if found else len(tape.text) - (0 if tape.ended else num_held(tape.text, MARKERS))
        lead = _LEAD.search(left + tape.text[:end], len(left))
        begin = lead.start() - len(left) if lead else end
        free = tape.text[:begin]
        if found:
            goes_on = found[1] in (CHANNEL, CONSTRAIN, MESSAGE)
            if not (lead and goes_on and "=" in lead[0]):
                free, begin = tape.text[:end], end
            is_header = not free.strip() or (goes_on and not _after_words(free))
            if is_header and not left and len(free) <= MAX_WORDS:
                begin = 0
            else:
                tape.give(begin, CONTENT)
            _consume(tape, end - begin, header, START, is_seen=True)
            return header
        if tape.ended:
            if left or is_first or len(free) > MAX_WORDS or free.strip():
                tape.give(len(tape.text), CONTENT)
            tape.drop(len(tape.text))
            return header
        if left or len(free) > MAX_WORDS or not _may_be_words(free):
            tape.give(len(free), CONTENT)
            left = (left + free)[-_LEFT_CONTEXT:]
        yield


def _after_words(text: str) -> str:
    """The text after the words of a header with which it begins."""
    found = _BEGINNING.match(text)
    assert found is not None  # it may be empty
    return text[found.end() :].lower()


def _may_be_words(text: str) -> bool:
    """Whether more text may make it words of a header."""
    rest = _after_words(text)
    return any(word.startswith(rest) for word in _HEADER_WORDS)


def _has_message(tape: Tape, header: _Header) -> Scan[bool]:
    """Read the header that begins with the marker here. Returns whether a message follows: after its marker,
    or after the words that are known if the model forgot the marker."""
    while (marker := _marker(tape)) != MESSAGE:
        tape.drop(len(marker))
        num, follows = yield from _words(tape)
        if follows in (CHANNEL, CONSTRAIN, MESSAGE):
            _consume(tape, num, header, marker, is_seen=True)
            continue
        known = _KNOWN[marker].match(tape.text, 0, num)
        num_known = known.end() if known else 0
        is_message = follows in ENDS or num_known < num
        _consume(tape, num_known, header, marker, is_seen=is_message)
        return is_message
    tape.drop(len(MESSAGE))
    return True


def _words(tape: Tape) -> Scan[tuple[int, str]]:
    """The number of characters before the next marker, and this marker. No marker if they are too many."""
    while True:
        found = find_stop(tape.text, MARKERS, 0)
        if found and found[0] <= MAX_WORDS:
            return found
        if found or tape.ended or len(tape.text) > MAX_WORDS + max(map(len, MARKERS)):
            return min(len(tape.text), MAX_WORDS), ""
        yield


def _consume(tape: Tape, num: int, header: _Header, marker: str, *, is_seen: bool) -> None:
    """Read and consume words of a header. `is_seen`: a message follows, whose stream shows the recipient.
    Tokens of words that no stream shows are withheld, because no hook sees them."""
    is_known = header.read(tape.text[:num], marker)
    if not is_known or (header.recipient and not is_seen):
        tape.mute(0, num)
    tape.drop(num)


def _message(tape: Tape, stream: Stream) -> Scan[None]:
    """Give the stream all text up to a marker that begins or ends a message. It loses other markers."""
    if stream.call:  # blanks alone are no arguments
        num = yield from at(tape, *MARKERS)
        if num or tape.text.isspace():
            tape.drop(len(tape.text) - len(tape.text.lstrip()))
    while (yield from until(tape, stream, *MARKERS)) and (marker := _marker(tape)) in (CONSTRAIN, MESSAGE):
        tape.drop(len(marker))
        if marker == CONSTRAIN:
            num, follows = yield from _words(tape)
            if follows == MESSAGE:
                _consume(tape, num, _Header(), CONSTRAIN, is_seen=False)
    if stream.call and tape.last != stream and not tape.is_cut:
        tape.insert("{}", stream)
