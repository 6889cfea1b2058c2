"""Coverage: how much of one stream a judge has judged, and when the judge is asked next. No I/O.

Positions and lengths count the stream's characters, as the judge reads them, from the stream's beginning.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, NamedTuple

from hooks import Chunk
from hooks.detect.detector import Match

Mode = Literal["hold", "release"]
"""hold: text waits for a verdict that covers it. release: text leaves first, and the verdict follows."""

_CHARACTERS = 4
"""Characters that count as one token if the engine reports no tokens."""
_LONGEST_TOKEN = 32
"""Characters that count as one token if a token claims to have more."""


class Judged(NamedTuple):
    """A judge's answer about one stream."""

    num_judged: int
    """Characters of the stream, from its beginning, that a verdict covers."""
    offence: Match | None = None
    """The characters that the judge objects to. They are covered; `entity` is the category."""
    others: Sequence[Match] = ()
    """Further offences, in order."""
    open_from: int | None = None
    """For a stream that ends: where the text begins that may begin an offence. None: nowhere."""


class JudgeError(RuntimeError):
    """A judge gave an answer that cannot be true. The message has no text of the stream."""


def pieces_of(chunk: Chunk) -> list[tuple[str, int]]:
    """The chunk's new text in the pieces that its tokens make, each with the number of tokens that it counts
    as. Text that is not that of the tokens is one piece."""
    text, tokens = chunk.text_diff, chunk.tokens_diff
    if not text:
        return []
    if "".join([token.text for token in tokens]) != text:
        return [(text, max(len(tokens), -(-len(text) // _CHARACTERS)))]
    pieces: list[tuple[str, int]] = []
    num_textless = 0
    for token in tokens:
        if not token.text:
            num_textless += 1
            continue
        pieces.append((token.text, num_textless + -(-len(token.text) // _LONGEST_TOKEN)))
        num_textless = 0
    return pieces


class _Piece(NamedTuple):
    """A piece of the stream that verdicts do not cover wholly."""

    end: int
    """The length of the stream with the piece."""
    num_written: int
    """The piece's characters as written in the stream. They are more than those read if JSON has escapes."""
    num_tokens: int


@dataclass(slots=True, eq=False, repr=False)
class Coverage:
    """One stream's account: text that came, text that the judge was asked about, text that it has judged.

    The stream has windows, which follow from its tokens alone. In mode `hold`, the first window has
    `first_window` tokens, and each later one twice as many, up to `window`: so the first text leaves early.
    In mode `release`, each has half of `window`, which leaves the judge the time of the other half. The judge
    is asked when a window has ended, about all text that has come by then (`whole_windows`: about ended
    windows alone). The stream waits when more than `window` + `debounce` tokens would be out unjudged.
    """

    mode: Mode
    window: int
    """Tokens, 1 or more."""
    _: KW_ONLY
    debounce: int = 0
    """Tokens at the end of a text that the judge leaves unjudged, because its rule needs to see the tokens
    after them."""
    first_window: int = 1
    """Tokens, 1 or more."""
    whole_windows: bool = False
    num_characters: int = field(default=0, init=False)
    """Characters of the stream so far."""
    num_asked: int = field(default=0, init=False)
    """Characters that the judge was asked about."""
    num_judged: int = field(default=0, init=False)
    """Characters that a verdict covers."""
    offences: list[Match] = field(default_factory=list, init=False)
    """The offences that nobody has acted on yet. Whoever acts clears the list."""
    open_from: int | None = field(default=None, init=False)
    """See `Judged`."""
    _enough: int = field(init=False)
    """Tokens of the window that ends next."""
    _pieces: deque[_Piece] = field(default_factory=deque, init=False)
    """The pieces that have characters that are not judged."""
    _ended: list[str] = field(default_factory=list, init=False)
    """Windows that the judge was not asked about. If it was asked about a part, the rest."""
    _open: list[str] = field(default_factory=list, init=False)
    """The same of the window that has not ended."""
    _num_open: int = field(default=0, init=False)
    """Tokens of the window that has not ended."""

    def __post_init__(self) -> None:
        is_held = self.mode == "hold"
        self._enough = min(self.first_window, self.window) if is_held else max(1, self.window // 2)

    def add(self, text: str, num_tokens: int, num_written: int | None = None) -> None:
        """The stream has a piece more. `num_written`: its characters as written; None: those of `text`."""
        if text:
            self.num_characters += len(text)
            written = len(text) if num_written is None else num_written
            self._pieces.append(_Piece(self.num_characters, written, num_tokens))
            self._open.append(text)
        self._num_open += num_tokens
        if self._num_open >= self._enough and self._open:
            self._end_window()

    def _end_window(self) -> None:
        self._ended.append("".join(self._open))
        self._open.clear()
        self._num_open = 0
        if self.mode == "hold":
            self._enough = min(2 * self._enough, self.window)

    def add_judged(self, text: str) -> None:
        """The stream has a piece more, which is judged already. So is all text before it."""
        self.num_characters += len(text)
        self.num_asked = self.num_judged = self.num_characters

    @property
    def is_complete(self) -> bool:
        """Whether verdicts cover the whole stream so far."""
        return self.num_judged == self.num_characters

    @property
    def is_due(self) -> bool:
        """Whether enough text has come for the judge to be asked again."""
        return bool(self._ended)

    @property
    def has_unasked(self) -> bool:
        """Whether the judge can be asked about more, before the stream ends."""
        return bool(self._ended) or (bool(self._open) and not self.whole_windows)

    @property
    def must_wait(self) -> bool:
        """Whether the stream has to wait for the judge's next answer."""
        if self.mode == "hold":
            return self.is_due
        return self.num_releasable < self.num_characters

    @property
    def num_unjudged_written(self) -> int:
        """Characters at the end of the stream, as written, of pieces that no verdict covers wholly."""
        return sum(piece.num_written for piece in self._pieces)

    @property
    def num_releasable(self) -> int:
        """Characters of the stream that may be out now."""
        if self.mode == "hold":
            return self.num_judged
        end, left = self.num_judged, self.window + self.debounce
        for piece in self._pieces:
            left -= piece.num_tokens
            if left < 0:
                break
            end = piece.end
        return end

    def drain(self, *, is_final: bool = False) -> list[str]:
        """The text that the judge is asked about next, in windows. `is_final`: the stream ends, and all of
        its text is taken."""
        windows, self._ended = self._ended, []
        if self._open and (is_final or not self.whole_windows):
            windows.append("".join(self._open))
            self._open.clear()
        self.num_asked += sum(map(len, windows))
        return windows

    def judged(self, answer: Judged) -> None:
        """Take in the judge's answer. Raises `JudgeError` for one that cannot be true."""
        num_judged, first, others, self.open_from = answer
        if not self.num_judged <= num_judged <= self.num_asked:
            raise JudgeError(f"the judge has judged {num_judged} of {self.num_asked} characters")
        offences = others if first is None else (first, *others)
        if not all(0 <= one.start < one.end <= num_judged for one in offences):
            raise JudgeError("the judge's offence is not in the text that it has judged")
        self.num_judged = num_judged
        while self._pieces and self._pieces[0].end <= num_judged:
            self._pieces.popleft()
        self.offences += offences
