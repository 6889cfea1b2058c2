"""Coverage: how much of one stream a judge has judged, and when the judge is asked next; and the guard that
holds or releases text by it. No I/O.

Positions and lengths count the stream's characters, as the judge reads them, from the stream's beginning.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypedDict, Unpack

from hooks import Chunk, Verdict, checked, emit, hold, rewind, suspect, terminate
from hooks.detect.acting_guard import ActingGuard, Action, Channels, Options
from hooks.detect.argument_types import Count, Template, Text
from hooks.detect.detector import Match
from hooks.detect.excerpt import Excerpt

Mode = Literal["hold", "release"]
"""hold: text waits for a verdict that covers it. release: text leaves first, and the verdict follows."""

_CHARACTERS = 4
"""Characters that count as one token where the engine tells no tokens."""
_LONGEST_TOKEN = 32
"""Characters that count as one token if a token claims to have more."""
_REACH = 64
"""Decided characters that are kept before the pending text: they tell where in JSON it begins."""


class Judged(NamedTuple):
    """A judge's answer about one stream."""

    num_judged: int
    """Characters of the stream, from its beginning, that a verdict covers."""
    offence: Match | None = None
    """The characters that the judge objects to. They are covered; `entity` is the category."""
    others: Sequence[Match] = ()
    """Further offences, in order."""


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
    """Its characters as the stream has them written: more than it has if JSON escapes are read."""
    num_tokens: int


class Coverage:
    """One stream's account: text that came, text that the judge was asked about, text that it has judged.

    The judge is asked when enough text has come. In mode `hold`, enough are `first_window` tokens at first,
    then twice as many each time, up to `window`: so the first text leaves early. In mode `release`, enough is
    half a window, which leaves the judge the time of the other half. The stream waits when more than `window`
    + `debounce` tokens would be out unjudged.
    """

    __slots__ = (
        "_debounce",
        "_enough",
        "_num_unasked",
        "_pieces",
        "_unasked",
        "_window",
        "mode",
        "num_asked",
        "num_characters",
        "num_judged",
        "offences",
    )

    def __init__(self, mode: Mode, window: int, *, debounce: int = 0, first_window: int = 1) -> None:
        """`window`, `first_window`: tokens, 1 or more. `debounce`: tokens at the end of a text that the judge
        leaves unjudged, because its rule needs to see the tokens after them."""
        self.mode: Mode = mode
        self._window = window
        self._debounce = debounce
        self._enough = min(first_window, window) if mode == "hold" else max(1, window // 2)
        self._pieces: deque[_Piece] = deque()
        """The pieces that have characters that are not judged."""
        self._unasked: list[str] = []
        self._num_unasked = 0
        """Tokens of the text that the judge was not asked about."""
        self.num_characters = 0
        """Characters of the stream so far."""
        self.num_asked = 0
        """Characters that the judge was asked about."""
        self.num_judged = 0
        """Characters that a verdict covers."""
        self.offences: list[Match] = []
        """The offences that nobody has acted on yet. Whoever acts clears the list."""

    def add(self, text: str, num_tokens: int, num_written: int | None = None) -> None:
        """The stream has a piece more. `num_written`: its characters as written; None: those of `text`."""
        if text:
            self.num_characters += len(text)
            written = len(text) if num_written is None else num_written
            self._pieces.append(_Piece(self.num_characters, written, num_tokens))
            self._unasked.append(text)
        self._num_unasked += num_tokens

    @property
    def is_complete(self) -> bool:
        """Whether verdicts cover the whole stream so far."""
        return self.num_judged == self.num_characters

    @property
    def is_due(self) -> bool:
        """Whether enough text has come for the judge to be asked again."""
        return self._num_unasked >= self._enough and bool(self._unasked)

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
        end, left = self.num_judged, self._window + self._debounce
        for piece in self._pieces:
            left -= piece.num_tokens
            if left < 0:
                break
            end = piece.end
        return end

    def take(self) -> str:
        """The text that the judge is asked about next: all that it was not asked about."""
        text = "".join(self._unasked)
        self._unasked.clear()
        self._num_unasked = 0
        self.num_asked += len(text)
        if self.mode == "hold":
            self._enough = min(2 * self._enough, self._window)
        return text

    def judged(self, answer: Judged) -> None:
        """Take in the judge's answer. Raises `JudgeError` for one that cannot be true."""
        num_judged, first, others = answer
        if not self.num_judged <= num_judged <= self.num_asked:
            raise JudgeError(f"the judge has judged {num_judged} of {self.num_asked} characters")
        offences = others if first is None else (first, *others)
        if not all(0 <= one.start < one.end <= num_judged for one in offences):
            raise JudgeError("the judge's offence is not in the text that it has judged")
        self.num_judged = num_judged
        while self._pieces and self._pieces[0].end <= num_judged:
            self._pieces.popleft()
        self.offences += offences


class CoverageOptions(TypedDict, total=False):
    """The arguments of every guard that judges streams as they grow: see `CoverageGuard`."""

    mode: Mode
    window: Count
    first_window: Count
    action: Action
    template: Template | None
    text: Text | None
    scope: Literal["request", "output"] | None
    channels: Channels
    prompt: Literal["refuse"] | None
    alternatives: Literal["withhold", "keep"]


class ReadStream:
    """One stream as a guard that judges it has read it."""

    __slots__ = ("coverage", "excerpt", "text")

    def __init__(self, excerpt: Excerpt, coverage: Coverage) -> None:
        self.excerpt = excerpt
        self.coverage = coverage
        self.text = ""
        """The excerpt's text, with the chunk that is decided now."""

    def read(self, chunk: Chunk) -> None:
        new = self.excerpt.read(chunk.text_diff, chunk.is_final)
        self.text = self.excerpt.text + new
        pieces = pieces_of(chunk)
        if new == chunk.text_diff:
            for text, num_tokens in pieces:
                self.coverage.add(text, num_tokens)
        else:
            self.coverage.add(new, sum(count for _, count in pieces), len(chunk.text_diff))


class CoverageGuard(ActingGuard):
    """Acts on what a judge says of a growing stream, and holds the text that no verdict covers, or says how
    much of such text is out.

    `mode`: `hold` releases nothing that no verdict covers. `release` releases text at once, and ends the
    stream when the verdict comes; at most `window` tokens are out unjudged, and those that the judge's rule
    needs to see more of. There, `rewind` acts as `terminate` if all of the offence is out. `window`: tokens
    that the judge is asked about together. `first_window`: in mode `hold`, the tokens that the first question
    waits for. Each later one waits for twice as many, up to `window`.

    A subclass reads a chunk with `_read`, tells `ReadStream.coverage` the judge's answers, and returns
    `_verdict`. What it does not judge, it releases with `_unasked`.
    """

    judges = True

    @checked
    def __init__(
        self,
        *,
        mode: Mode = "hold",
        window: Count = 16,
        first_window: Count = 1,
        debounce: int = 0,
        **options: Unpack[Options],
    ) -> None:
        """`debounce`: see `Coverage`. Raises `ValueError` for an invalid or useless argument."""
        options.setdefault("action", "terminate")
        options.setdefault("channels", ("content", "reasoning", "tool_call"))
        if mode == "release" and options["action"] in ("redact", "suppress"):
            raise ValueError(f"action: {options['action']} is for mode hold; released text cannot be changed")
        super().__init__(_REACH, None, **options)
        self._mode: Mode = mode
        self._window = window
        self._first_window = first_window
        self._debounce = debounce

    def _read(self, chunk: Chunk) -> ReadStream:
        """The chunk's stream, with the chunk's text read. Its coverage has the new text."""
        stream: ReadStream | None = chunk.state.get("stream")
        if stream is None:
            stream = chunk.state["stream"] = ReadStream(self._excerpt(chunk), self._new_coverage())
        stream.read(chunk)
        return stream

    def _new_coverage(self) -> Coverage:
        return Coverage(self._mode, self._window, debounce=self._debounce, first_window=self._first_window)

    def _unasked(self, chunk: Chunk) -> Verdict:
        """The verdict on a chunk of a stream that this guard does not judge."""
        return emit(chunk.pending, unjudged=None)

    def _unasked_but_read(self, chunk: Chunk, stream: ReadStream) -> Verdict:
        """The verdict on a chunk of a stream that this guard does not judge as yet, and may judge later."""
        end = stream.excerpt.settled(stream.text, [], len(stream.text), chunk.is_final)[1]
        verdict = self._act(chunk, stream.excerpt, stream.text, [], end)
        return replace(verdict, unjudged=None) if isinstance(verdict, emit | hold) else verdict

    def _verdict(self, chunk: Chunk, stream: ReadStream) -> Verdict:
        """The verdict on the chunk that was read last. Raises `JudgeError` if the stream ends and is not
        judged whole."""
        coverage, excerpt, text = stream.coverage, stream.excerpt, stream.text
        if chunk.is_final and not coverage.is_complete:
            raise JudgeError("the stream ended, and the judge has not judged all of it")
        is_held = coverage.mode == "hold"
        at = coverage.num_characters - len(text)
        is_out = any(offence.end <= at + excerpt.pending for offence in coverage.offences)
        undecided = max(excerpt.pending, coverage.num_releasable - at)
        matches, end = excerpt.settled(text, self._matches(stream, at), undecided, chunk.is_final)
        verdict = self._act(chunk, excerpt, text, matches, end)
        if is_out and isinstance(verdict, rewind):
            verdict = verdict.as_terminate  # the offence cannot be said otherwise any more
        if is_held and not isinstance(verdict, suspect):
            return verdict  # a verdict covers all that it releases
        return self._with_unjudged(chunk, verdict, coverage.num_unjudged_written)

    @staticmethod
    def _with_unjudged(chunk: Chunk, verdict: Verdict, count: int) -> Verdict:
        """The verdict, which says how much of the released text is not judged. `count`: characters at the end
        of the stream that are not judged, those that are not released included."""
        match verdict:
            case emit() | suspect():
                return replace(verdict, unjudged=count)
            case hold(n=n):
                return replace(verdict, unjudged=max(0, count - (n or 0)))
            case terminate(after=after) | rewind(after=after):
                num_withheld = len(chunk.pending) - (after or 0)
                return replace(verdict, unjudged=max(0, count - num_withheld))
        return verdict

    def _matches(self, stream: ReadStream, at: int) -> list[Match]:
        """The new offences, with places in the excerpt, whose text begins at `at`. An offence in text that is
        released already has no text left there; it ends the stream all the same."""
        pending = stream.excerpt.pending
        found: list[Match] = []
        for offence in stream.coverage.offences:
            match = offence._replace(
                start=max(pending, offence.start - at), end=max(pending, offence.end - at)
            )
            if self._ends or self._suspects:
                found.append(match)
            elif match.end > match.start:
                found += stream.excerpt.replaceable(stream.text, match, (match.start, match.end))
        stream.coverage.offences.clear()
        return found
