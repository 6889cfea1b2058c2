"""A guard out of a detector. A detector knows text and nothing of streams; what streams ask for is here.

What a client gets never depends on where the stream was cut, because a detector decides a place only when no
more text could change what it says of it, and from bounded text around it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypedDict, Unpack, get_args

from pydantic import Field

from hooks import (
    Chunk,
    GenerationRequest,
    PromptText,
    Refusal,
    Span,
    Verdict,
    checked,
    emit,
    hold,
    prompt_texts,
    redact,
    refuse,
    rewind,
    suppress,
    terminate,
    with_prompt_texts,
)
from hooks.builtin.argument_types import Template, Text
from hooks.builtin.json_text import LONGEST_ESCAPE, MAX_SCALAR, JsonText, asks_for_json

Channel = Literal["content", "reasoning", "tool_call", "echo"]
Channels = Annotated[Sequence[Channel], Field(min_length=1)]
CHANNELS: tuple[Channel, ...] = get_args(Channel)
_JOINTS = str.maketrans("_-.", "   ")
"""What stands between the words of a tool's name."""
_PIECE = 4096
"""Characters of a prompt to look at at a time, so that no search gets longer with the prompt."""


class Match(NamedTuple):
    """Characters `start` up to `end` are an `entity`. `rule` tells a detector's rules apart."""

    start: int
    end: int
    entity: str
    rule: int = 0


class Detector(Protocol):
    """Finds matches in a text, or in the beginning of one. It knows of no stream, and keeps no state."""

    longest: int
    """Most characters at the end of a text that it leaves undecided."""
    reach: int
    """Characters to the left of a place that it may look at to decide it."""

    def scan(
        self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()
    ) -> tuple[list[Match], int]:
        """The matches that begin in `text[start:undecided]`, in any order, and `undecided`: the first place
        at which more text could still bring a match about, or change one. With `is_final` all is decided.

        `text` begins at least `reach` characters before `start`, or where the stream does. `taken` are
        matches found earlier that reach up to `start` or beyond. One of them may be given again, longer.
        """
        ...


class Options(TypedDict, total=False):
    """What every guard that ships takes besides its own arguments: see `Actor`."""

    action: Literal["redact", "suppress", "terminate", "rewind"]
    template: Template | None
    text: Text | None
    scope: Literal["request", "output"] | None
    channels: Channels
    prompt: Literal["redact", "refuse"] | None
    alternatives: Literal["withhold", "keep"]


class Actor:
    """What guards do about what they find, whoever finds it.

    `action`: `redact` puts `template` in a match's place (`{entity}` is what was found); `suppress` takes the
    match out and goes on; `terminate` ends the request before the match, with `text` as closing words, or
    with `scope="output"` that output alone; `rewind` has the model say it otherwise, and where it cannot, is
    `terminate`. Matches that overlap are one. `channels`: where it acts; elsewhere everything passes. Of a
    tool call, also the name is looked at, unless the request has such a tool: a match in it takes the whole
    call out, whatever the `action`, but for `terminate` and `rewind`.

    `prompt`: what to do about matches in what the model is asked: `redact` puts `template` in their place;
    `refuse` refuses the request, with `text`, if there is one, as the answer. None: nothing.

    `alternatives`: whether to `withhold` the top alternatives of tokens, which nobody looks at and which may
    spell a match, where the request asks for some, or to `keep` them.
    """

    default_scope: Literal["request", "output"] = "request"

    @checked
    def __init__(
        self,
        reach: int,
        longest: int,
        *,
        action: Literal["redact", "suppress", "terminate", "rewind"] = "redact",
        template: Template | None = None,
        text: Text | None = None,
        scope: Literal["request", "output"] | None = None,
        channels: Channels = CHANNELS,
        prompt: Literal["redact", "refuse"] | None = None,
        alternatives: Literal["withhold", "keep"] = "withhold",
    ) -> None:
        """`reach`, `longest`: see `Detector`. Raises `ValueError` for an argument that makes no sense, or
        that nothing would come of."""
        self.max_hold = LONGEST_ESCAPE * (longest + 1) + MAX_SCALAR
        """Most characters that it holds: `longest` of text, and more of JSON, where each may be an escape."""
        self.channels = frozenset(channels)
        self._reach = reach
        self.may_rewind = action == "rewind"
        self._ends = action in ("terminate", "rewind")
        self._prompt = prompt
        self._prompt_template = "[{entity}]" if template is None else template
        self._template = self._prompt_template if action == "redact" else ""
        self._text = text
        self._scope = scope or self.default_scope
        self._withholds = alternatives == "withhold"
        if template is not None and "redact" not in (action, prompt):
            raise ValueError("template: it is for redact, which is neither the action nor what prompts get")
        if text is not None and not self._ends and prompt != "refuse":
            raise ValueError("text: it is for an end or a refused prompt, and there is neither")
        if scope is not None and not self._ends:
            raise ValueError(f"scope: it says what ends, and {action} ends nothing")

    @property
    def on_request(self) -> Callable[[GenerationRequest], Any] | None:
        """Of a guard that was told nothing of prompts, none: it is not shown them."""
        return getattr(self, f"_{self._prompt}_prompt") if self._prompt else None

    def _passes(self, chunk: Chunk) -> bool:
        """Whether the chunk is none of its business."""
        return chunk.channel not in self.channels or chunk.aborted

    def _own_name(self, chunk: Chunk) -> str:
        """The name of a tool call that begins, as it is and, on a line of its own, in words; empty if the
        request has such a tool, or the call has begun before."""
        if chunk.channel != "tool_call" or "is_withheld" in chunk.state:
            return ""
        chunk.state["is_withheld"] = False
        name = chunk.tool_name or ""
        return "" if name in chunk.request.tool_names else f"{name}\n{name.translate(_JOINTS)}"

    def _act_on_name(self, chunk: Chunk, matches: list[Match]) -> Verdict | None:
        """The verdict that the call's name asks for; None: none. `matches`: those in the name."""
        if matches:
            entity = min(matches, key=_order).entity
            if self._ends:  # without closing words, which would go out under that name
                end = rewind if self.may_rewind else terminate
                return end(entity, scope=self._scope)
            chunk.state["is_withheld"] = True
            return suppress(entity)
        return suppress() if chunk.state.get("is_withheld") else None

    def _window(self, chunk: Chunk) -> "_Window":
        window: _Window | None = chunk.state.get("window")
        if window is None:
            is_answer = chunk.channel == "content" and asks_for_json(chunk.request)
            is_json = is_answer or chunk.channel == "tool_call"
            window = chunk.state["window"] = _Window(is_json=is_json)
        return window

    def _act(
        self, chunk: Chunk, window: "_Window", text: str, matches: list[Match], undecided: int
    ) -> Verdict:
        """The verdict, if those are the matches that begin before `undecided`: see `Detector`."""
        keeps = not (self._withholds and chunk.request.sampling.logprobs)
        if matches and self._ends:
            first = min(matches, key=_order)
            start, _ = window.widened(text, first)
            after = window.written(start)
            end = rewind if self.may_rewind else terminate
            return end(first.entity, after=after, text=self._text, scope=self._scope, alternatives=keeps)
        spans, held = self._decide(window, text, matches, undecided, self._template)
        if spans:
            return redact(spans, hold=held, alternatives=keeps)
        return hold(held, alternatives=keeps) if held else emit(chunk.pending, alternatives=keeps)

    def _refusal(self, matches: list[Match]) -> Refusal:
        return refuse(min(matches, key=_order).entity, self._text)

    def _decide(
        self, window: "_Window", text: str, matches: list[Match], undecided: int, template: str
    ) -> tuple[list[Span], int]:
        """What to replace in what is pending, and how much of it stays undecided. Moves the window on."""
        spans: list[Span] = []
        for begin, stop, new, why in self._replace(matches, text, window, template) if matches else ():
            for start, end, put in window.edits(text, begin, stop, new):
                spans.append((window.written(start), window.written(end), put, why))
            window.covered = stop
        decided = max(undecided, window.covered)
        held = window.held(text, decided)
        window.move(text, undecided, decided, matches, self._reach)
        return spans, held

    def _replace(
        self, matches: list[Match], text: str, window: "_Window", template: str
    ) -> list[tuple[int, int, str, str]]:
        """What to replace, by what and why. What overlaps a match that has been replaced belongs to it."""
        places: list[tuple[int, int, str, str]] = []
        covered = window.covered
        for match in sorted(matches, key=_order):
            start, end = window.widened(text, match)
            if start >= covered:
                places.append((start, end, template.format(entity=match.entity), match.entity))
            elif end > covered and places:
                places[-1] = (places[-1][0], end, *places[-1][2:])
            elif end > covered:
                places.append((covered, end, "", match.entity))
            covered = max(covered, end)
        return places


class SpanGuard(Actor):
    """Acts on what a detector finds, and holds just what the detector leaves undecided."""

    def __init__(self, detector: Detector, **options: Unpack[Options]) -> None:
        super().__init__(detector.reach, detector.longest, **options)
        self.detector = detector

    def __call__(self, chunk: Chunk) -> Verdict:
        if self._passes(chunk):
            return emit(chunk.pending)
        name = self._own_name(chunk)
        if verdict := self._act_on_name(chunk, self.detector.scan(name)[0] if name else []):
            return verdict
        window = self._window(chunk)
        text, matches, undecided = self._scan(window, chunk.text_diff, chunk.is_final)
        return self._act(chunk, window, text, matches, undecided)

    def _redact_prompt(self, request: GenerationRequest) -> GenerationRequest:
        return with_prompt_texts(request, self._redacted)

    def _refuse_prompt(self, request: GenerationRequest) -> GenerationRequest | Refusal:
        for prompt in prompt_texts(request):
            window = window_of(prompt)
            for piece, is_final in _pieces(prompt.text):
                text, matches, undecided = self._scan(window, piece, is_final)
                if matches:
                    return self._refusal(matches)
                self._decide(window, text, matches, undecided, "")
        return request

    def _redacted(self, prompt: PromptText) -> str:
        window = window_of(prompt)
        released: list[str] = []
        pending = ""
        for piece, is_final in _pieces(prompt.text):
            pending += piece
            text, matches, undecided = self._scan(window, piece, is_final)
            spans, held = self._decide(window, text, matches, undecided, self._prompt_template)
            end = len(pending) - held
            released.append(spliced(pending[:end], spans))
            pending = pending[end:]
        return "".join(released)

    def _scan(self, window: "_Window", piece: str, is_final: bool) -> tuple[str, list[Match], int]:
        """The window's text with a piece more, the matches that begin in what is decided of it, and where
        that ends."""
        text = window.text + window.read(piece, is_final)
        matches, undecided = self.detector.scan(text, window.start, is_final, window.taken)
        if not is_final:
            matches, undecided = window.settled(text, matches, undecided)
            matches = [match for match in matches if match.start < undecided]
        return text, matches, undecided


def _order(match: Match) -> tuple[int, int, int]:
    """First the one that begins first, of those the longest, of those the one whose rule stands first."""
    return match.start, -match.end, match.rule


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Each with whether it is the last."""
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE], start + _PIECE >= len(text)


def spliced(text: str, spans: Iterable[Span]) -> str:
    """`text` with the spans replaced."""
    pieces: list[str] = []
    done = 0
    for start, end, new, *_ in spans:
        pieces += (text[done:start], new)
        done = end
    return "".join([*pieces, text[done:]])


def window_of(prompt: PromptText) -> "_Window":
    return _Window(is_json=prompt.is_json)


class _Window:
    """The part of a stream that may still matter: some decided text, and all that is pending.

    Positions are in its `text`, which of JSON is what it reads, not as it is written.
    """

    __slots__ = ("_json", "covered", "pending", "start", "taken", "text")

    def __init__(self, *, is_json: bool) -> None:
        self._json = JsonText() if is_json else None
        self.text = ""
        self.start = 0
        """Where the detector goes on. What lies between `start` and `pending` is part of a match already."""
        self.pending = 0
        """Where the text begins that a verdict is about."""
        self.taken: list[Match] = []
        """Matches that reach up to `start` or beyond."""
        self.covered = 0
        """Where what was replaced ends."""

    def read(self, piece: str, is_final: bool) -> str:
        return piece if self._json is None else self._json.read(piece, len(self.text), is_final)

    def written(self, position: int) -> int:
        """How many characters of what is pending stand before `position`, as they are written."""
        if self._json is None:
            return position - self.pending
        return self._json.length(self.pending, position)

    def held(self, text: str, decided: int) -> int:
        """How many characters there are from `decided` on, as they are written."""
        if self._json is None:
            return len(text) - decided
        return self._json.length(decided, len(text)) + len(self._json.unread)

    def settled(self, text: str, matches: list[Match], undecided: int) -> tuple[list[Match], int]:
        """Of what the detector has decided, that which stays decided though a JSON number or word at the end
        of the text may go on: nothing that reaches into it."""
        if self._json is None:
            return matches, undecided
        begin = self._json.open_scalar(text, self.pending)
        starts = (max(match.start, self.start) for match in matches if match.end > begin)
        return [match for match in matches if match.end <= begin], min(undecided, begin, *starts)

    def widened(self, text: str, match: Match) -> tuple[int, int]:
        """Where what has to be replaced for a match begins and ends: of JSON, whole numbers and words."""
        if self._json is None:
            return match.start, match.end
        start, end = self._json.widened(text, max(0, match.start), match.end, self.pending)
        return min(start, match.start), end

    def edits(self, text: str, start: int, end: int, new: str) -> Iterable[tuple[int, int, str]]:
        """What to put where, as it has to be written, to replace what lies between."""
        return [(start, end, new)] if self._json is None else self._json.edits(text, start, end, new)

    def replaceable(self, text: str, match: Match, window: tuple[int, int]) -> list[Match]:
        """The parts of what was found in a window that another text can stand in place of: of arguments,
        those that leave JSON what is JSON. A window may begin and end anywhere."""
        if self._json is None:
            return [match]
        parts = self._json.parts(text, match.start, match.end, is_whole=match[:2] == window)
        return [match._replace(start=start, end=end) for start, end in parts]

    def move(self, text: str, start: int, pending: int, found: list[Match], reach: int) -> None:
        """Go on from `start`, and forget what lies more than `reach` before it."""
        gone = max(0, start - reach)
        self.text = text[gone:]
        self.start = start - gone
        self.pending = pending - gone
        self.covered = max(0, self.covered - gone)
        if self._json is not None:
            self._json.forget(text, gone)
        if found or self.taken:
            # One that is given again, longer, takes its own place.
            ahead = {(m.start, m.rule): m for m in (*self.taken, *found) if m.end >= start}
            self.taken = [Match(s - gone, e - gone, entity, rule) for s, e, entity, rule in ahead.values()]
