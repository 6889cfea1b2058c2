"""The common part of guards that act on matches: their common arguments, and the verdict for a match."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, Self, TypedDict, get_args

from pydantic import Field

from hooks import (
    Channel,
    Chunk,
    GenerationRequest,
    Refusal,
    Restored,
    Source,
    Span,
    Verdict,
    checked,
    emit,
    hold,
    redact,
    refuse,
    rewind,
    suppress,
    suspect,
    terminate,
)
from hooks.detect.argument_types import Template, Text
from hooks.detect.detector import Match, order
from hooks.detect.excerpt import Excerpt
from hooks.detect.placeholders import PASSED, RESTORED
from hooks.json.editing import LONGEST_ESCAPE, MAX_SCALAR, asks_for_json
from hooks.prompts.names import readings_of
from hooks.prompts.sources import STRANGERS

Action = Literal["redact", "suppress", "terminate", "rewind", "suspect"]
PromptAction = Literal["redact", "refuse", "refuse_new", "taint"]
Sources = Annotated[Sequence[Source], Field(min_length=1)]
SOURCES: tuple[Source, ...] = get_args(Source)
Channels = Annotated[Sequence[Channel], Field(min_length=1)]
CHANNELS: tuple[Channel, ...] = get_args(Channel)
PromptReply = GenerationRequest | Refusal
"""The request, perhaps with other texts, or why it is refused."""
WITHHELD = "withheld"
"""Key of the state of a request, with the index of an output of which a call is withheld."""
AT_CUT = "at_cut"
"""The decision's reason for withheld text that may be the beginning of a match."""


class StreamOptions(TypedDict, total=False):
    """The arguments of every guard that acts on matches in streams: see `ActingGuard`."""

    action: Action
    template: Template | None
    text: Text | None
    scope: Literal["request", "output"] | None
    channels: Channels
    alternatives: Literal["withhold", "keep"]


class Options(StreamOptions, total=False):
    """The arguments that all acting guards take: see `ActingGuard`."""

    prompt: PromptAction | None
    of: Sources | None
    at_cut: Literal["withhold", "release"]


class ActingGuard:
    """A guard that acts on matches. A subclass finds them; matches that overlap are one match.

    `action`: `redact` puts `template` in the place of a match. `suppress` removes the match and continues;
    a tool call with a match is no call then.
    `terminate` ends the request before the match. `rewind` has the model write something else, and acts as
    `terminate` if the engine cannot go back. `suspect` withholds nothing: the hooks after this one see it,
    such as a judge with `only_when: suspect`, and the rest of the stream passes. `template`: the
    replacement; `{entity}` in it is the name of the match. `text`: the closing text of `terminate`, and the
    answer to a refused prompt. `scope`: whether `terminate` ends the whole `request` or only this `output`.

    `channels`: the channels to read; text on other channels passes. On `tool_call` the guard also reads the
    tool's name, unless the request has a tool of that name. If the name contains a match, `redact` and
    `suppress` withhold the whole call.

    `prompt`: the action for a match in a prompt. `redact` puts `template` in its place. `refuse` refuses the
    request, and answers with `text` if there is one. `refuse_new` refuses only what the user, a tool or a
    document says after the model's last answer, until the caller says more, and acts as `redact` on the rest:
    a conversation goes on after a refusal. `taint` marks the request, for guards such as `tools`
    that then allow less. None: prompts are not read. `of`: the texts of a prompt to read, by their source.
    None: for `redact` and `refuse_new` all texts, for `refuse` all but definitions, and for `taint` results
    of tools and documents.

    `alternatives`: `withhold` or `keep` tokens' top alternatives, which no guard reads and may spell a match.

    `at_cut`: `withhold` or `release` text that may be the beginning of a match when the output ends where the
    client chose: at `max_tokens`, at a stop string or at a stop token.
    """

    default_scope: Literal["request", "output"] = "request"
    refuses_new = False
    """Whether `prompt: refuse_new` is for this guard."""

    @checked
    def __init__(
        self,
        reach: int,
        longest: int | None,
        *,
        action: Action = "redact",
        template: Template | None = None,
        text: Text | None = None,
        scope: Literal["request", "output"] | None = None,
        channels: Channels = CHANNELS,
        prompt: PromptAction | None = None,
        of: Sources | None = None,
        alternatives: Literal["withhold", "keep"] = "withhold",
        at_cut: Literal["withhold", "release"] = "withhold",
    ) -> None:
        """`reach`, `longest`: see `Detector`; None: the held text has no bound in characters. Raises
        `ValueError` for an invalid or useless argument."""
        self.max_hold = None if longest is None else LONGEST_ESCAPE * (longest + 1) + MAX_SCALAR
        """The most characters that the guard holds: `longest`, if each is written as a JSON escape."""
        self.channels = frozenset(channels)
        self._reach = reach
        self.may_rewind = action == "rewind"
        self._suspects = action == "suspect"
        self._ends = action in ("terminate", "rewind")
        self._withholds_calls = action == "suppress"
        self._end = partial(rewind if self.may_rewind else terminate, scope=scope or self.default_scope)
        self._prompt = prompt
        self._of = frozenset(of or _default_sources(prompt))
        self._prompt_template = "[{entity}]" if template is None else template
        self._template = self._prompt_template if action == "redact" else ""
        self._text = text
        self._withholds = alternatives == "withhold"
        self.withholds_alternatives = self._withholds and "content" in channels
        self._releases_at_cut = at_cut == "release"
        if template is not None and action != "redact" and prompt not in ("redact", "refuse_new"):
            raise ValueError("template: it is for redact, but neither action nor prompt redacts")
        if text is not None and not self._ends and prompt not in ("refuse", "refuse_new"):
            raise ValueError("text: it is for terminate, rewind or a refused prompt, and neither is set")
        if prompt == "refuse_new" and not self.refuses_new:
            raise ValueError("prompt: refuse_new is for guards that search text")
        if of is not None and prompt is None:
            raise ValueError("of: it says which texts of a prompt to read, and prompt is not set")
        if scope is not None and not self._ends:
            raise ValueError(f"scope: it says what to end, and {action} ends nothing")

    @property
    def on_request(self) -> Callable[..., Any] | None:
        """None unless `prompt` is set: then the guard is not shown prompts."""
        if self._prompt is None:
            return None
        return self._redact_prompt if self._prompt == "redact" else self._judge_prompt

    def _redact_prompt(self, request: GenerationRequest) -> Any:
        raise NotImplementedError(f"{type(self).__name__} redacts no prompts")

    def _judge_prompt(self, request: GenerationRequest) -> Any:
        raise NotImplementedError(f"{type(self).__name__} judges no prompts")

    def __deepcopy__(self, memo: object) -> Self:
        return self  # a stream's state may have a guard: it knows nothing of the stream

    def _passes(self, chunk: Chunk) -> bool:
        """Whether the guard ignores the chunk."""
        return chunk.channel not in self.channels or chunk.aborted or "is_suspect" in chunk.state

    def _withholds_at_cut(self, chunk: Chunk) -> bool:
        return chunk.is_cut and not self._releases_at_cut

    def _keeps_alternatives(self, chunk: Chunk) -> bool:
        sampling = chunk.request.sampling
        has_top = sampling.logprobs or sampling.logprob_token_ids or sampling.prompt_logprobs
        return not (self._withholds and has_top)

    def _own_name(self, chunk: Chunk) -> str:
        """The name of a tool call at the call's first chunk: as written and, on further lines, as words.
        Empty at later chunks, and if the request has a tool of that name."""
        if chunk.channel != "tool_call" or "is_withheld" in chunk.state:
            return ""
        chunk.state["is_withheld"] = False
        name = chunk.tool_name or ""
        return "" if name in chunk.request.tool_names else "\n".join([name, *readings_of(name)])

    def _act_on_name(self, chunk: Chunk, matches: list[Match]) -> Verdict | None:
        """The verdict because of `matches` in the tool's name; None: the name allows the call."""
        if matches:
            entity = min(matches, key=order).entity
            if self._suspects:
                return self._suspect(chunk, entity)
            if self._ends:  # without a closing text, which would be released under this name
                return self._end(entity)
            return self._withhold_call(chunk, entity)
        return suppress() if chunk.state.get("is_withheld") else None

    def _withhold_call(self, chunk: Chunk, entity: str, **before: Any) -> suppress:
        """Withhold the call: without the match, it would do something else than the model wrote. `before`:
        what `suppress` takes for the text before the match."""
        chunk.state.pop("excerpt", None)
        chunk.state["is_withheld"] = True
        chunk.request_state[WITHHELD, chunk.output_index] = entity
        return suppress(entity, **before)

    def _suspect(self, chunk: Chunk, entity: str) -> suspect:
        """Mark the request as suspect. The rest of the stream passes, because one mark is enough."""
        chunk.state.pop("excerpt", None)
        chunk.state["is_suspect"] = True
        return suspect(entity, alternatives=self._keeps_alternatives(chunk))

    def _excerpt(self, chunk: Chunk) -> Excerpt:
        excerpt: Excerpt | None = chunk.state.get("excerpt")
        if excerpt is None:
            is_answer = chunk.channel == "content" and asks_for_json(chunk.request)
            is_json = is_answer or chunk.channel == "tool_call"
            excerpt = chunk.state["excerpt"] = self._begun(chunk, is_json=is_json)
            excerpt.keeps_alternatives = self._keeps_alternatives(chunk)
        return excerpt

    def _begun(self, chunk: Chunk, *, is_json: bool) -> Excerpt:
        """The excerpt of a stream that begins with this chunk."""
        return Excerpt(is_json=is_json)

    def _act(
        self,
        chunk: Chunk,
        excerpt: Excerpt,
        text: str,
        matches: list[Match],
        undecided: int,
        withheld_from: int | None = None,
    ) -> Verdict:
        """The verdict for these matches; the text from `undecided` on is held. `withheld_from`: text from
        there on is withheld (None: none)."""
        if self._suspects:
            withheld_from = None
            if matches:
                return self._suspect(chunk, min(matches, key=order).entity)
        keeps = excerpt.keeps_alternatives
        withheld = None if withheld_from is None else excerpt.written(max(withheld_from, excerpt.pending))
        is_withheld = self._withholds_calls and chunk.channel == "tool_call"
        if (self._ends or is_withheld) and (offences := [match for match in matches if match.rule >= 0]):
            first = min(offences, key=order)
            after = excerpt.written(excerpt.widened(text, first)[0])
            after = after if withheld is None else min(after, withheld)
            back = (self._restored(excerpt, text, match) for match in matches if match.rule == RESTORED)
            spans = [span for span in back if span[1] <= after]
            if is_withheld:
                return self._withhold_call(chunk, first.entity, after=after, spans=spans, alternatives=keeps)
            return self._end(first.entity, after=after, spans=spans, text=self._text, alternatives=keeps)
        places, held = self._decide(excerpt, text, matches, undecided, self._template)
        if withheld is not None:
            places += _gaps(places, withheld, len(chunk.pending))
        if places:
            return redact(places, hold=held, alternatives=keeps)
        return hold(held, alternatives=keeps) if held else emit(chunk.pending, alternatives=keeps)

    def _restored(self, excerpt: Excerpt, text: str, match: Match) -> Restored:
        """The span of a value that comes back, or that passes."""
        start, end = excerpt.written(max(match.start, excerpt.pending)), excerpt.written(match.end)
        if match.rule == PASSED or excerpt.placeholders is None:
            return Restored(start, start, "", match.entity)
        value = excerpt.placeholders.value(text[match.start : match.end])
        return Restored(start, end, excerpt.escaped(value, match.start), match.entity)

    def _answer_prompt(
        self, request: GenerationRequest, matches: Sequence[Match], place: str | None = None
    ) -> PromptReply:
        """The answer of `on_request` because of `matches` in the prompt, at this place."""
        if not matches:
            return request
        entity = min(matches, key=order).entity
        if self._prompt == "taint":
            return replace(request, taint=request.taint or entity)
        return refuse(entity, self._text, place=place)

    def _decide(
        self, excerpt: Excerpt, text: str, matches: list[Match], undecided: int, template: str
    ) -> tuple[list[Span], int]:
        """Move the excerpt on. Returns the spans to replace, and how many characters stay undecided."""
        spans: list[Span] = []
        back: list[Match] = []
        if matches and excerpt.placeholders is not None:
            back = [match for match in matches if match.rule < 0]
            matches = [match for match in matches if match.rule >= 0]
            spans += [self._restored(excerpt, text, match) for match in back]
        for begin, stop, new, why in self._places(matches, text, excerpt, template) if matches else ():
            excerpt.owed = new
            for start, end, put in excerpt.edits(text, begin, stop, new):
                spans.append((excerpt.written(start), excerpt.written(end), put, why))
                excerpt.owed = ""
            excerpt.covered = stop
        excerpt.covered = max([excerpt.covered, *(one.end for one in back if one.rule == RESTORED)])
        decided = max(undecided, excerpt.covered)
        held = excerpt.held(text, decided)
        excerpt.move(text, decided, self._reach_of(excerpt, text))
        return spans, held

    def _reach_of(self, excerpt: Excerpt, text: str) -> int:
        """Most characters of decided text that are read once more."""
        return self._reach

    def _places(
        self, matches: list[Match], text: str, excerpt: Excerpt, template: str
    ) -> list[tuple[int, int, str, str]]:
        """The places to replace: begin, end, replacement, entity. Matches that overlap make one place."""
        places: list[tuple[int, int, str, str]] = []
        covered = excerpt.covered
        for match in sorted(matches, key=order):
            start, end = excerpt.widened(text, match)
            if start >= covered:
                places.append((start, end, template.format(entity=match.entity), match.entity))
            elif end > covered and places:
                places[-1] = (places[-1][0], end, *places[-1][2:])
            elif end > covered:
                places.append((covered, end, excerpt.owed, match.entity))
            covered = max(covered, end)
        return places


def _default_sources(prompt: PromptAction | None) -> Iterable[Source]:
    if prompt == "taint":
        return STRANGERS
    return (one for one in SOURCES if prompt in ("redact", "refuse_new") or one != "definition")


def _gaps(spans: Iterable[Span], start: int, end: int) -> list[Span]:
    """Spans that withhold the characters from `start` to `end` that are in none of `spans`."""
    gaps: list[Span] = []
    for begin, stop, *_ in sorted((span[0], span[1]) for span in spans):
        if begin > start:
            gaps.append((start, begin, "", AT_CUT))
        start = max(start, stop)
    return [*gaps, (start, end, "", AT_CUT)] if start < end else gaps


def spliced(text: str, spans: Iterable[Span]) -> str:
    pieces: list[str] = []
    done = 0
    for start, end, new, *_ in spans:
        pieces += (text[done:start], new)
        done = end
    return "".join([*pieces, text[done:]])
