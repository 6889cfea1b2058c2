"""A guard that holds or releases text by the part of a stream that a judge has judged. No I/O."""

from dataclasses import dataclass, field, replace
from typing import Literal, Unpack

from hooks import Chunk, Verdict, checked, emit, hold, rewind, suspect, terminate
from hooks.detect.acting_guard import ActingGuard, Options, Sources, StreamOptions
from hooks.detect.argument_types import Count
from hooks.detect.coverage import Coverage, JudgeError, Mode, pieces_of
from hooks.detect.detector import Match
from hooks.detect.excerpt import Excerpt

_REACH = 64
"""Decided characters that are kept before the pending text: they show where in JSON it begins."""


class CoverageOptions(StreamOptions, total=False):
    """The arguments of every guard that judges streams as they grow: see `CoverageGuard`."""

    mode: Mode
    window: Count
    first_window: Count
    prompt: Literal["refuse", "taint"] | None
    of: Sources | None


@dataclass(slots=True, eq=False, repr=False)
class ReadStream:
    """One stream as a guard that judges it has read it."""

    excerpt: Excerpt
    coverage: Coverage
    text: str = field(default="", init=False)
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
    """Acts on the verdicts of a judge on a stream, and holds the text that no verdict covers, or reports how
    much of such text is out.

    `mode`: `hold` releases nothing that no verdict covers. `release` releases text at once, and ends the
    stream with the next piece after the verdict. At most `window` tokens are out unjudged, and those that the
    judge's rule needs to see more of. There, `rewind` acts as `terminate` if all of the offence is out.
    `window`: tokens that the judge is asked about together. `first_window`: in mode `hold`, the tokens that
    the first question waits for. Each later one waits for twice as many, up to `window`.

    A subclass reads a chunk with `_read`, passes the judge's answers to `ReadStream.coverage`, and returns
    `_verdict`. It releases text that it does not judge with `_unasked`.
    """

    judges = True
    judges_windows = False
    """Whether the judge's offences are windows, so that it must be asked about whole ones."""

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
        return Coverage(
            self._mode,
            self._window,
            debounce=self._debounce,
            first_window=self._first_window,
            whole_windows=self.judges_windows,
        )

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
        # Withheld, because an offence may begin there and the client has cut the output (contract 3.12).
        open_from = coverage.open_from if self._withholds_at_cut(chunk) else None
        verdict = self._act(chunk, excerpt, text, matches, end, None if open_from is None else open_from - at)
        if is_out and isinstance(verdict, rewind):
            verdict = verdict.as_terminate  # the model can no longer write the offence differently
        if is_held and not isinstance(verdict, suspect):
            return verdict  # a verdict covers all that it releases
        return self._with_unjudged(chunk, verdict, coverage.num_unjudged_written)

    @staticmethod
    def _with_unjudged(chunk: Chunk, verdict: Verdict, count: int) -> Verdict:
        """The verdict, with how much of the released text is not judged. `count`: characters at the end
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
