"""The parsers by name (`Parsers`), and their use on one request's deltas (`Parsing`)."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

from engine.parsers.call_format import Format, read_calls
from engine.parsers.formats import FORMATS
from engine.parsers.harmony import MARKERS as HARMONY_MARKERS
from engine.parsers.harmony import harmony
from engine.parsers.output_parser import OutputParser
from engine.parsers.reasoning import Markers, after_call, begins_open, is_off, markers_of, reasoning
from engine.parsers.scan import Calls, Scan
from engine.parsers.tape import Tape
from engine.protocol import Delta, GenerationRequest, Rewind, Tokenizer
from engine.protocol.parts import PARSERS, PartError
from engine.streams.flow import Stage

HARMONY_REASONING = "openai_gptoss"
"""The reasoning parser of a format that has tool calls, too."""
NUM_PROMPT_TOKENS = 16
"""The last tokens of a prompt that show whether it opened reasoning."""


class ToolCalls(NamedTuple):
    parse: Callable[[Tape, Calls], Scan[None]]
    markers: tuple[str, ...]
    """Texts that are special tokens in some of its models."""
    parse_marked: Callable[[Tape, Calls], Scan[None]] | None = None
    """Finds the calls that have a marker in front. It reads an output before reasoning is parsed, so that a
    call inside reasoning is found. None: calls are in content alone."""


def _family(form: Format) -> ToolCalls:
    marked = partial(read_calls, form)
    parse = partial(read_calls, form, begins_output=True) if form.begins_output else marked
    return ToolCalls(parse, form.markers, marked if form.begin and form.in_reasoning else None)


HARMONY = ToolCalls(harmony, HARMONY_MARKERS)

TOOL_CALL_FAMILIES = {**{name: _family(form) for name, form in FORMATS.items()}, "openai": HARMONY}


@cache
def tool_calls_of(name: str) -> ToolCalls:
    """The parser of tool calls. Raises `PartError` for a package's parser of another kind."""
    if name in TOOL_CALL_FAMILIES:
        return TOOL_CALL_FAMILIES[name]
    found = PARSERS.load(name)
    if isinstance(found, Format):
        return _family(found)
    if not isinstance(found, ToolCalls):
        raise PartError(
            f"parser {name!r} is not for tool calls: it is no Format or ToolCalls of engine.parsers"
        )
    return found


@dataclass(frozen=True, slots=True)
class Parsers:
    """The names of a server's parsers. None: no such parser. Raises `PartError` for a package's parser that
    cannot be used."""

    reasoning: str | None = None
    tool_calls: str | None = None

    def __post_init__(self) -> None:
        if self.reasoning is not None and self.reasoning != HARMONY_REASONING:
            markers_of(self.reasoning)
        if self.tool_calls is not None:
            tool_calls_of(self.tool_calls)

    def open(self, request: GenerationRequest, prompt_end: str = "") -> list[OutputParser]:
        """The parsers for one output. Tool calls are parsed only if the request lets the model call tools."""
        calls = Calls(math.inf if request.parallel_tool_calls else 1, request.tools)
        if self.reasoning == HARMONY_REASONING or self.tool_calls == "openai":
            return [_tool_parser(harmony, HARMONY, calls)]
        family = (
            tool_calls_of(self.tool_calls) if self.tool_calls is not None and request.uses_tools else None
        )
        markers = markers_of(self.reasoning) if self.reasoning is not None else None
        if markers is None or (markers.switches and is_off(markers, request)):
            return [_tool_parser(family.parse, family, calls)] if family else []
        opened = [_reasoning_parser(markers, request, prompt_end, family)]
        if family and family.parse_marked:
            opened.insert(0, _tool_parser(family.parse_marked, family, calls))
        if family and family.parse is not family.parse_marked:
            opened.append(_tool_parser(family.parse, family, calls))
        return opened


class Parsing(Stage):
    """Feeds the deltas on their channels, as soon as the channel of each text is known.

    After a rewind, the source must begin the output anew (`Rewindable`).
    """

    __slots__ = ("_num_reasoning", "_open", "_outputs", "_rewound")

    def __init__(
        self, parsers: Parsers, request: GenerationRequest, tokenizer: Tokenizer | None = None
    ) -> None:
        """`tokenizer` decodes the prompt's end, if the deltas hold the prompt's ids. Reasoning tokens are
        counted here unless the engine counts them."""
        self._open = partial(self._opened, parsers, request, tokenizer)
        self._outputs: dict[int, list[OutputParser]] = {}
        self._num_reasoning: Counter[int] = Counter()
        self._rewound = False

    def feed(self, delta: Delta) -> None:
        self._rewound = False
        if delta.index not in self._outputs:
            self._outputs[delta.index] = self._open(delta)
        deltas = [delta]
        for parser in self._outputs[delta.index]:
            deltas = [parsed for one in deltas for parsed in parser.feed(one)]
        for one in deltas:
            self.next.feed(self._counted(one))
            if self._rewound:
                break  # the rewind makes the other deltas void

    def rewind(self, rewind: Rewind) -> None:
        """The output begins anew, with new parsers."""
        self._rewound = True
        del self._outputs[rewind.index], self._num_reasoning[rewind.index]
        self.source.rewind(rewind)

    @staticmethod
    def _opened(
        parsers: Parsers, request: GenerationRequest, tokenizer: Tokenizer | None, first: Delta
    ) -> list[OutputParser]:
        ids = first.prompt_token_ids
        prompt_end = tokenizer.decode(ids[-NUM_PROMPT_TOKENS:]) if tokenizer and ids else ""
        return parsers.open(request, prompt_end)

    def _counted(self, delta: Delta) -> Delta:
        """The delta, with the reasoning tokens so far if the engine does not count them."""
        num_reasoning = self._num_reasoning
        if delta.channel == "reasoning":
            num_reasoning[delta.index] += sum(token.id is not None for token in delta.tokens)
        if num_reasoning and delta.usage is not None and not delta.usage.reasoning_tokens:
            return replace(delta, usage=replace(delta.usage, reasoning_tokens=num_reasoning.total()))
        return delta


def _reasoning_parser(
    markers: Markers, request: GenerationRequest, prompt_end: str, family: ToolCalls | None
) -> OutputParser:
    tape = Tape((*markers.start, *markers.end, *markers.answer[0], *markers.answer[1]))
    is_open = begins_open(markers, prompt_end, is_off=is_off(markers, request))
    reads_calls = family is not None and family.parse_marked is not None
    scan = reasoning(tape, markers, is_open=is_open, holds_blanks=reads_calls)
    return OutputParser(
        "reasoning", tape, scan, after_call=partial(after_call, tape, markers) if reads_calls else None
    )


def _tool_parser(parse: Callable[[Tape, Calls], Scan[None]], family: ToolCalls, calls: Calls) -> OutputParser:
    tape = Tape(family.markers)
    return OutputParser("tool_call", tape, parse(tape, calls), calls)
