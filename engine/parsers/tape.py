"""One output's text while a parser reads it. Text is undecided until it is given to a stream or consumed.

A token is settled when all of its text is decided. So a token waits only while its text could still become a
marker. A settled token goes to a stream:

- If all of its text was given to one stream, the token goes there unchanged.
- If none of its text was given, the token loses its text. It goes with the text that follows, on any stream
  (contract 2.4).
- If one part of its text was given and the rest was a marker, both go together: the token without text,
  then the text as a token without id. They are released together or not at all (contract 3.11). Tokens before
  them that any parser put with them share their fate.
- If parts on both sides of a marker were given, only their text goes, each part with the token's scores. The
  token's id and logprob speak for all parts, and the guard of one stream must not release them.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from engine.protocol import Channel, Delta, Token, ToolCall
from engine.text.alignment import align_tokens


class Stream(NamedTuple):
    """A channel, and on `tool_call` the call: the place that text is given to."""

    channel: Channel
    call: ToolCall | None = None


CONTENT = Stream("content")
REASONING = Stream("reasoning")


class Tape:
    """Takes text and tokens, and returns the settled texts of streams.

    `markers`: markers that may be special tokens. A special token has no text, only raw bytes. If these are a
    marker's, the token is read as the marker.
    """

    def __init__(self, markers: Iterable[str] = ()) -> None:
        self.text = ""
        """The undecided text, as far as it is not in `held`."""
        self.held: list[str] | None = None
        """Undecided text that came after `text`, in pieces, while a scan looks at new text alone. None: text
        goes to `text` as it comes."""
        self.absent: set[str] = set()
        """Markers that the output ended without, after a place before the undecided text."""
        self.ended = False
        """Whether the output has ended."""
        self.is_cut = False
        """Whether the output ended at a limit of its length."""
        self.waiting: tuple[Token, ...] = ()
        """Settled tokens that go with the text that follows, or with the output's end."""
        self.last = CONTENT
        """The stream that last received text, or that begins here."""
        self._markers = {marker.encode(): marker for marker in markers}
        self._units: deque[_Unit] = deque()
        self._settled: list[SettledText] = []

    def put(self, delta: Delta) -> None:
        """Append a delta of the content channel."""
        if not delta.tokens and delta.text:
            self._add(_Unit(None, delta.text))
        tokens = align_tokens(delta.tokens, delta.text)
        tied: list[Token] = []
        for i, token in enumerate(tokens):
            marker = "" if token.text else self._markers.get(token.raw, "")
            # The last of several tokens that share a text has it. A marker in this text is not hidden.
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
        """Give the first `length` undecided characters to the stream."""
        self._decide(length, stream)

    def drop(self, length: int) -> None:
        """Consume the first `length` undecided characters: they are a marker."""
        self._decide(length, None)

    def mute(self, begin: int, end: int) -> None:
        """Withhold the tokens of these undecided characters. They will be consumed and are not a marker: no
        hook sees them, and no token may reveal them."""
        position = 0
        for unit in self._units:
            if position < end and position + unit.num_open > begin:
                unit.is_muted = True
            position += unit.num_open

    def insert(self, text: str, stream: Stream) -> None:
        """Give the stream a text that the model did not write."""
        self.last = stream
        self._give(stream, text, ())

    def release(self) -> None:
        """Append the held text to `text`, and hold no more."""
        self.text, self.held = "".join((self.text, *(self.held or ()))), None

    def drain(self) -> list["SettledText"]:
        """Remove and return the texts settled so far, in order."""
        settled, self._settled = self._settled, []
        return settled

    def _add(self, unit: "_Unit") -> None:
        if self.held is None:
            self.text += unit.text
        else:
            self.held.append(unit.text)
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
                tokens = (Token(None, text, position=token.position, scores=token.scores),)
            elif text == token.text:
                tokens = (token,)
            else:
                tokens = (token._replace(text=""), Token(None, text, position=token.position))
            self._give(stream, text, tokens)

    def _give(self, stream: Stream, text: str, tokens: tuple[Token, ...]) -> None:
        if self.waiting:
            tokens = (*self.waiting, *(tokens or (Token(None, text),)))
            self.waiting = ()
        last = self._settled[-1] if self._settled else None
        if last is not None and last.stream == stream and bool(last.tokens) == bool(tokens):
            self._settled.pop()
            text, tokens = last.text + text, last.tokens + tokens
        self._settled.append(SettledText(stream, text, tokens))


class SettledText(NamedTuple):
    """Settled text of one stream."""

    stream: Stream
    text: str
    tokens: tuple[Token, ...]
    """The tokens' texts joined are `text`, or there are no tokens."""


class _Unit:
    """A token, or text without a token, and the streams that its characters were given to."""

    __slots__ = ("is_hidden", "is_muted", "num_open", "runs", "text", "tied", "token")

    def __init__(
        self, token: Token | None, text: str, *, is_hidden: bool = False, tied: tuple[Token, ...] = ()
    ) -> None:
        self.token = token
        self.text = text
        self.tied = tied
        """Tokens before this one that share its text. They have no text of their own."""
        self.is_hidden = is_hidden
        """`text` is the marker that the token means. No stream receives it."""
        self.is_muted = False
        """Some of `text` is consumed, and is not a marker."""
        self.num_open = len(text)
        """Undecided characters, at the end of `text`."""
        self.runs: list[tuple[Stream | None, str]] = []
        """Decided text, in order, with its stream. None: consumed."""

    def decide(self, length: int, stream: Stream | None) -> None:
        if not length:
            return
        begin = len(self.text) - self.num_open
        text = self.text[begin : begin + length]
        self.num_open -= length
        if self.runs and self.runs[-1][0] == stream:
            text = self.runs.pop()[1] + text
        self.runs.append((stream, text))
