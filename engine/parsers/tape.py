"""One output's text as a parser reads it: undecided until it is given to a stream, or consumed.

A token is settled when all of its text is decided, so the tokens that touch what could still become a marker
wait, no others. What becomes of it then:

- Its whole text was given to one stream: it goes there as it is.
- None of its text was: it is left without text, and goes with the text that follows, on whichever stream
  that is (contract 2.4).
- One piece was, and the rest was a marker's: it goes there as one piece, `(token without text, the text)`,
  which is released whole or not at all (contract 3.11).
  Those before it in such a piece, whichever parser made it, share its fate.
- Pieces on both sides of a marker were: only their text goes. Its id and logprob tell of all of them, and no
  single stream's guard may let them pass.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from engine.protocol import Channel, Delta, Token, ToolCall
from engine.text.alignment import align_tokens


class Stream(NamedTuple):
    """Where text goes."""

    channel: Channel
    call: ToolCall | None = None


CONTENT = Stream("content")
REASONING = Stream("reasoning")


class Tape:
    """Text and tokens in; pieces out. `markers`: those that a special token may stand for. It has no text of
    its own, only raw bytes, and is read as the marker."""

    def __init__(self, markers: Iterable[str] = ()) -> None:
        self.text = ""
        """Undecided."""
        self.ended = False
        """No more will come."""
        self.waiting: tuple[Token, ...] = ()
        """Settled tokens that go with the text that follows, or with the end."""
        self.last = CONTENT
        """The stream that was given text last, or that begins here."""
        self._markers = {marker.encode(): marker for marker in markers}
        self._units: deque[_Unit] = deque()
        self._pieces: list[Piece] = []

    def put(self, delta: Delta) -> None:
        """Take in what came, on the content channel."""
        if not delta.tokens and delta.text:
            self._add(_Unit(None, delta.text))
        tokens = align_tokens(delta.tokens, delta.text)
        tied: list[Token] = []
        for i, token in enumerate(tokens):
            marker = "" if token.text else self._markers.get(token.raw, "")
            # Of tokens that share a text, the last has it: there the marker is not hidden.
            shared = next((t.text for t in tokens[i + 1 :] if t.text), "") if marker else ""
            if not token.text and i + 1 < len(tokens) and marker in shared:
                tied.append(token)
                continue
            is_hidden = marker not in shared
            if token.id is not None or is_hidden:
                for one in tied:
                    self._add(_Unit(one, ""))
                tied = []
            self._add(
                _Unit(token, marker if is_hidden else token.text, is_hidden=is_hidden, tied=tuple(tied))
            )
            tied = []

    def give(self, length: int, stream: Stream) -> None:
        """The first `length` undecided characters are the stream's."""
        self._decide(length, stream)

    def drop(self, length: int) -> None:
        """They are a marker's, and consumed."""
        self._decide(length, None)

    def mute(self, begin: int, end: int) -> None:
        """These undecided characters will be consumed and are no marker's: no token may tell of them, since
        nobody is shown them."""
        position = 0
        for unit in self._units:
            if position < end and position + unit.num_open > begin:
                unit.is_muted = True
            position += unit.num_open

    def insert(self, text: str, stream: Stream) -> None:
        """Give the stream a text that the model did not write."""
        self.last = stream
        self._give(stream, text, ())

    def take(self) -> list["Piece"]:
        """What has been settled, in order."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def _add(self, unit: "_Unit") -> None:
        self.text += unit.text
        self._units.append(unit)
        self._decide(0, None)

    def _decide(self, length: int, stream: Stream | None) -> None:
        if length and stream is not None:
            self.last = stream
        self.text = self.text[length:]
        while self._units and (length or not self._units[0].num_open):
            unit = self._units[0]
            taken = min(length, unit.num_open)
            length -= taken
            unit.decide(taken, stream)
            if not unit.num_open:
                self._settle(self._units.popleft())
            elif unit.token is None:
                self._settle(unit)
                unit.runs = []

    def _settle(self, unit: "_Unit") -> None:
        token = unit.token
        given = [] if unit.is_hidden else [run for run in unit.runs if run[0] is not None]
        if len(given) <= 1 and not unit.is_muted:
            self.waiting += unit.tied
        if token is not None and not given and not unit.is_muted:
            self.waiting += (token._replace(text=""),)
        for stream, text in given:
            assert stream is not None
            if token is None:
                tokens: tuple[Token, ...] = ()
            elif len(given) > 1 or unit.is_muted:
                tokens = (Token(None, text, position=token.position),)
            elif text == token.text:
                tokens = (token,)
            else:
                tokens = (token._replace(text=""), Token(None, text, position=token.position))
            self._give(stream, text, tokens)

    def _give(self, stream: Stream, text: str, tokens: tuple[Token, ...]) -> None:
        if self.waiting:
            tokens = (*self.waiting, *(tokens or (Token(None, text),)))
            self.waiting = ()
        last = self._pieces[-1] if self._pieces else None
        if last is not None and last.stream == stream and bool(last.tokens) == bool(tokens):
            self._pieces.pop()
            text, tokens = last.text + text, last.tokens + tokens
        self._pieces.append(Piece(stream, text, tokens))


class Piece(NamedTuple):
    stream: Stream
    text: str
    tokens: tuple[Token, ...]
    """Their texts joined are `text`, or there are none."""


class _Unit:
    """A token, or text without any, and which streams its characters were given to."""

    __slots__ = ("is_hidden", "is_muted", "num_open", "runs", "text", "tied", "token")

    def __init__(
        self, token: Token | None, text: str, *, is_hidden: bool = False, tied: tuple[Token, ...] = ()
    ) -> None:
        self.token = token
        self.text = text
        self.tied = tied
        """Tokens without text whose text this is as well: they came before it in one piece."""
        self.is_hidden = is_hidden
        """`text` is what the token means, and not to be given to anyone."""
        self.is_muted = False
        """Some of `text` is consumed, and is no marker."""
        self.num_open = len(text)
        self.runs: list[tuple[Stream | None, str]] = []

    def decide(self, length: int, stream: Stream | None) -> None:
        if not length:
            return
        begin = len(self.text) - self.num_open
        text = self.text[begin : begin + length]
        self.num_open -= length
        if self.runs and self.runs[-1][0] == stream:
            text = self.runs.pop()[1] + text
        self.runs.append((stream, text))
