"""What the guards that ship do about what they find, whoever finds it: their common arguments."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypedDict, get_args

from pydantic import Field

from hooks import (
    Channel,
    Chunk,
    GenerationRequest,
    Refusal,
    Span,
    Verdict,
    checked,
    emit,
    hold,
    redact,
    refuse,
    rewind,
    suppress,
    terminate,
)
from hooks.detect.argument_types import Template, Text
from hooks.detect.detector import Match, order
from hooks.detect.excerpt import Excerpt
from hooks.json.editing import LONGEST_ESCAPE, MAX_SCALAR, asks_for_json

Channels = Annotated[Sequence[Channel], Field(min_length=1)]
CHANNELS: tuple[Channel, ...] = get_args(Channel)
_JOINTS = str.maketrans("_-.", "   ")
"""The separators between the words of a tool's name."""


class Options(TypedDict, total=False):
    """What every guard that ships takes besides its own arguments: see `ActingGuard`."""

    action: Literal["redact", "suppress", "terminate", "rewind"]
    template: Template | None
    text: Text | None
    scope: Literal["request", "output"] | None
    channels: Channels
    prompt: Literal["redact", "refuse"] | None
    alternatives: Literal["withhold", "keep"]


class ActingGuard:
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
            entity = min(matches, key=order).entity
            if self._ends:  # without closing words, which would go out under that name
                end = rewind if self.may_rewind else terminate
                return end(entity, scope=self._scope)
            chunk.state["is_withheld"] = True
            return suppress(entity)
        return suppress() if chunk.state.get("is_withheld") else None

    def _excerpt(self, chunk: Chunk) -> Excerpt:
        excerpt: Excerpt | None = chunk.state.get("excerpt")
        if excerpt is None:
            is_answer = chunk.channel == "content" and asks_for_json(chunk.request)
            is_json = is_answer or chunk.channel == "tool_call"
            excerpt = chunk.state["excerpt"] = Excerpt(is_json=is_json)
        return excerpt

    def _act(
        self, chunk: Chunk, excerpt: Excerpt, text: str, matches: list[Match], undecided: int
    ) -> Verdict:
        """The verdict, if those are the matches that begin before `undecided`: see `Detector`."""
        keeps = not (self._withholds and chunk.request.sampling.logprobs)
        if matches and self._ends:
            first = min(matches, key=order)
            start, _ = excerpt.widened(text, first)
            after = excerpt.written(start)
            end = rewind if self.may_rewind else terminate
            return end(first.entity, after=after, text=self._text, scope=self._scope, alternatives=keeps)
        spans, held = self._decide(excerpt, text, matches, undecided, self._template)
        if spans:
            return redact(spans, hold=held, alternatives=keeps)
        return hold(held, alternatives=keeps) if held else emit(chunk.pending, alternatives=keeps)

    def _refusal(self, matches: list[Match]) -> Refusal:
        return refuse(min(matches, key=order).entity, self._text)

    def _decide(
        self, excerpt: Excerpt, text: str, matches: list[Match], undecided: int, template: str
    ) -> tuple[list[Span], int]:
        """What to replace in what is pending, and how much of it stays undecided. Moves the excerpt on."""
        spans: list[Span] = []
        for begin, stop, new, why in self._replace(matches, text, excerpt, template) if matches else ():
            edits = [*excerpt.edits(text, begin, stop, new)]
            spans += [(excerpt.written(start), excerpt.written(end), put, why) for start, end, put in edits]
            excerpt.covered, excerpt.owed = stop, "" if edits else new
        decided = max(undecided, excerpt.covered)
        held = excerpt.held(text, decided)
        excerpt.move(text, decided, self._reach)
        return spans, held

    def _replace(
        self, matches: list[Match], text: str, excerpt: Excerpt, template: str
    ) -> list[tuple[int, int, str, str]]:
        """What to replace, by what and why. What overlaps a match that has been replaced belongs to it."""
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
