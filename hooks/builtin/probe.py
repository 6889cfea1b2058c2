"""Acts on the scores that a probe of the served model gives its tokens: `--hook probe`.

The model reads each token before the guard is shown it. So a score is there with the token, and text waits
only for the first window of `max_of_means`. The guard smooths the scores and compares them with a threshold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Annotated, Any, Literal, Unpack

from pydantic import Field

from engine.protocol import Calibration, ProbeInfo, Smoothing, Token
from hooks import Chunk, ProbeNeeds, Verdict, checked, emit, rewind, suppress, suspect
from hooks.builtin.probe_scores.reader import Finding, ScoreReader
from hooks.detect.acting_guard import StreamOptions
from hooks.detect.argument_types import Count, Names
from hooks.detect.coverage import Judged
from hooks.detect.coverage_guard import CoverageGuard, ReadStream
from hooks.detect.detector import Match

Finite = Annotated[float, Field(allow_inf_nan=False)]


class MissingScoresError(RuntimeError):
    """The engine gave a token without scores. The message has no text."""


class Probe(CoverageGuard):
    """Finds what a probe of the served model finds in the model's own activations."""

    @checked
    def __init__(
        self,
        probe: str | None = None,
        *,
        threshold: Finite | None = None,
        smoothing: Smoothing | None = None,
        span: Count | None = None,
        labels: Names | None = None,
        prompt: Literal["refuse"] | None = None,
        **options: Unpack[StreamOptions],
    ) -> None:
        """`probe`: the name of one of the model's probes (None: the model has one). `threshold`: the least
        smoothed score, a logit, that counts as found. `smoothing`: `ema`, `rolling_mean` or `max_of_means`.
        `span`: the tokens that the smoothing spans. For these three, None is what the probe was calibrated
        with. An attention probe smooths by itself, and takes neither `smoothing` nor `span`. `labels`: the
        labels to act on (None: all of the probe's).

        `action` is `terminate` by default. `prompt: refuse` also reads the scores of the prompt's tokens,
        and ends the answer before its beginning, whatever `action` does to replies: the model has read the
        prompt by then, and nothing else. With `action: suspect`, the prompt is suspect instead.
        """
        super().__init__(**options)
        self._threshold = threshold
        self._smoothing = smoothing
        self._span = span
        self._labels = None if labels is None else tuple(labels)
        self._reads_prompt = prompt is not None
        self.needs_probe = ProbeNeeds(
            name=probe,
            labels=self._labels,
            is_calibrated=threshold is None,
            is_pointwise=smoothing is not None or span is not None,
        )

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.state.get("is_withheld"):
            return suppress()
        stream: ProbedStream | None = chunk.state.get("stream")
        if stream is not None and stream.passes(chunk):
            return emit(chunk.pending, alternatives=stream.excerpt.keeps_alternatives)
        if self._passes(chunk):
            return self._unasked(chunk)
        if stream is None:
            stream = chunk.state["stream"] = self._open(chunk)
        if stream.prompt_label is not None:
            end = self._end(stream.prompt_label, after=0, text=self._text)
            return end.as_terminate if isinstance(end, rewind) else end
        stream.judge(chunk)
        if stream.due is not None and chunk.is_final and not stream.coverage.offences:
            # The end of sequence was found: all text before it is judged, and none of it is to blame.
            if self._suspects:
                return suspect(stream.due)
            if self._ends:
                return self._end(stream.due, after=len(chunk.pending), text=self._text)
        return self._verdict(chunk, stream)

    def _suspect(self, chunk: Chunk, entity: str) -> suspect:
        del chunk.state["stream"]
        return super()._suspect(chunk, entity)

    def _open(self, chunk: Chunk) -> "ProbedStream":
        info = self.needs_probe.choose(chunk.probes)
        stream = ProbedStream(self._excerpt(chunk), self._new_coverage(), self._reader(info, chunk.probes))
        if self._reads_prompt:
            before = self._reader(info, chunk.probes)
            findings = [*map(before.add, chunk.prompt_scores or ()), before.end()]
            label = next((label for label, _ in findings if label is not None), None)
            if self._suspects:
                stream.due = label
            else:
                stream.prompt_label = label
        return stream

    def _reader(self, info: ProbeInfo, probes: Sequence[ProbeInfo]) -> ScoreReader:
        given: dict[str, Any] = {
            "threshold": self._threshold,
            "smoothing": self._smoothing,
            "span": self._span,
        }
        calibration = info.calibration or Calibration(threshold=inf)
        used = replace(calibration, **{name: value for name, value in given.items() if value is not None})
        return ScoreReader(info, probes, used, self._labels)


@dataclass(slots=True, eq=False, repr=False)
class ProbedStream(ReadStream):
    """One stream, judged token by token as it comes."""

    _reader: ScoreReader
    _ahead: list[Finding] = field(default_factory=list, init=False)
    """The reader's findings in the chunk's first tokens, if it has read them already."""
    due: str | None = field(default=None, init=False)
    """A label that was found, and that no text has as its match yet."""
    prompt_label: str | None = field(default=None, init=False)
    """The label that was found in the prompt, if that ends the stream."""

    def passes(self, chunk: Chunk) -> bool:
        """Judge a simple chunk quickly; most are simple. True: all text so far is judged, and nothing was
        found. False: the chunk needs `judge`."""
        tokens, excerpt = chunk.tokens_diff, self.excerpt
        if not (tokens and excerpt.is_plain and self.is_clear) or chunk.is_final or chunk.num_incomplete:
            return False
        for token in tokens:
            if token.scores is None:
                return False
            label, score = finding = self._reader.add(token.scores)
            self._ahead.append(finding)
            if label is not None or score is None:
                return False
        self._ahead.clear()
        self.coverage.add_judged(chunk.text_diff)
        if excerpt.text:
            excerpt.forget()
        return True

    def judge(self, chunk: Chunk) -> None:
        """Read the chunk, and judge its text. Raises `MissingScoresError`."""
        self.text = self.excerpt.text
        parts = _parts(chunk)
        for number, (text, tokens) in enumerate(parts, 1):
            was_complete = self.coverage.is_complete
            num_read = len(self.text) - len(self.excerpt.text)
            new = self.excerpt.read(text, chunk.is_final and number == len(parts), num_read)
            self.text += new
            is_whole = number < len(parts) or not chunk.num_incomplete
            is_judged = was_complete and not tokens and is_whole  # another hook wrote the text
            for token in tokens:
                if token.scores is not None:
                    label, score = self._ahead.pop(0) if self._ahead else self._reader.add(token.scores)
                    self.due = self.due or label
                    is_judged = is_judged or score is not None
                elif token.id is not None:
                    raise MissingScoresError("the engine gave a token without scores")
            if is_judged and was_complete and self.due is None:
                self.coverage.add_judged(new)
                continue
            self.coverage.add(new, len(tokens), len(text))
            if is_judged:
                self._cover()
        if chunk.is_final:
            self.due = self.due or self._reader.end()[0]
            self._cover()

    @property
    def is_clear(self) -> bool:
        """Whether all text so far is judged, and nothing was found that is not acted on."""
        coverage = self.coverage
        return (
            self.due is None
            and self.prompt_label is None
            and coverage.num_judged == coverage.num_characters
            and not coverage.offences
        )

    def _cover(self) -> None:
        """All text so far is judged. If a label is due, its match is the text that was not judged before."""
        coverage = self.coverage
        coverage.drain()
        start, end = coverage.num_judged, coverage.num_characters
        if self.due is not None and end > start:
            coverage.judged(Judged(end, Match(start, end, self.due)))
            self.due = None
        else:
            coverage.judged(Judged(end))


def _parts(chunk: Chunk) -> list[tuple[str, Sequence[Token]]]:
    """The chunk's new text in parts, each with its tokens. Text whose token comes later is the last part."""
    text, end = chunk.text_diff, len(chunk.text_diff) - chunk.num_incomplete
    parts = _whole_parts(text[:end], chunk.tokens_diff)
    return [*parts, (text[end:], ())] if chunk.num_incomplete else parts


def _whole_parts(text: str, tokens: Sequence[Token]) -> list[tuple[str, Sequence[Token]]]:
    """Tokens without text go with the text that follows, or are a part at the end."""
    if len(tokens) == 1 or "".join([token.text for token in tokens]) != text:
        return [(text, tokens)]  # it is one part, or another hook has changed some of the text
    parts: list[tuple[str, Sequence[Token]]] = []
    waiting: list[Token] = []
    for token in tokens:
        waiting.append(token)
        if token.text:
            parts.append((token.text, waiting))
            waiting = []
    if waiting or not tokens:
        parts.append(("", waiting))
    return parts
