"""Reads the tool calls of an output. No I/O.

A call comes in parts: a head with an id and a name, and pieces of its arguments. Servers count and name the
parts in their own ways: every index is 0, or counts the chunks; the id is in the head alone, or in each part,
or is another one each time; the name comes in pieces, or with each part, or after the first one.
Arguments may be an object in the place of its text, its text once more as a string, or null.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from engine.protocol import Channel, Delta, ToolCall
from engine.protocol.characters import whole_characters, with_whole_characters
from engine.upstream.arguments import Arguments
from engine.upstream.json_text import HalfCharacters
from engine.upstream.limits import OutputCount

Segment = tuple[Channel, ToolCall | None, str]
"""A text, and the stream that it belongs to."""

_NO_ARGUMENTS = "{}"


class _Call:
    """A call, as far as it has come."""

    def __init__(self, index: int) -> None:
        self.name = ""
        self.has_arguments = False
        self._index = index
        self._id: str | None = None
        self._unsent: list[str] = []
        """Arguments that no segment holds yet."""
        self._sent: ToolCall | None = None
        """The call as its segments name it, set with the first one. From then on, the name is final."""
        self._arguments = Arguments()

    @property
    def is_whole(self) -> bool:
        return self._arguments.is_whole

    @property
    def is_open(self) -> bool:
        return self._arguments.is_open

    @property
    def is_sent(self) -> bool:
        return self._sent is not None

    @property
    def is_held(self) -> bool:
        return self._arguments.is_held

    @property
    def has_more(self) -> bool:
        """Whether a segment can leave, and has arguments."""
        return bool(self.name and self._unsent)

    def add(self, call_id: Any, name: str, arguments: str) -> None:
        if isinstance(call_id, str) and call_id:
            self._id = self._id or call_id
        if self._sent is None and name != self.name:
            self.name += name
        if self.is_whole and not arguments.strip():
            return
        self.has_arguments = self.has_arguments or bool(arguments.strip())
        self._put(self._arguments.feed(arguments))

    def end(self) -> None:
        """No more of it comes."""
        self._put(self._arguments.end())

    def _put(self, arguments: str) -> None:
        if arguments:
            self._unsent.append(arguments)

    def segment(self) -> Segment:
        """The arguments that have come, whole characters alone."""
        arguments, self._unsent = "".join(self._unsent), []
        if self._sent is None:
            self._sent = ToolCall(self._index, whole_characters(self.name), self._id)
        return "tool_call", self._sent, arguments


class ToolCalls:
    """The calls of one output, numbered in the order in which they begin.

    They leave one after another: parts of a later call wait while the arguments of an earlier one are not
    whole. A call's first segment comes when it has a name and arguments, when another call begins, or at the
    end: until then more of its name may come.
    """

    def __init__(self, count: OutputCount) -> None:
        self._count = count
        """Counts the arguments as they come, also those that wait."""
        self._calls: list[_Call] = []
        self._by_id: dict[Hashable, _Call] = {}
        self._shared_ids: set[Hashable] = set()
        """Ids that the server gave to several calls. They name none."""
        self._by_index: dict[Hashable, _Call] = {}
        self._running: _Call | None = None
        """The call of the last part."""
        self._num_left = 0
        """Calls that are whole and have left."""
        self._num_open = 0
        """Calls of which more arguments must come."""
        self._halves = HalfCharacters()
        self.in_call = False
        """Whether the deltas so far end in a call whose arguments are not whole."""
        self._after_call: list[Delta] = []
        """Text that came in the middle of a call."""

    def __bool__(self) -> bool:
        return bool(self._calls)

    def feed(self, delta: Mapping[str, Any], *, are_whole: bool = False) -> Iterator[Segment]:
        """At least one segment for each part. An empty one marks the tokens of the same choice as a call's.
        `are_whole`: each part is a call of its own. Raises `TooMuchError`."""
        calls: Any = delta.get("tool_calls") or ()
        if isinstance(calls, Mapping):  # one call, without a list (Text Generation Inference)
            calls = (calls,)
        if function := delta.get("function_call"):
            calls = ({"index": 0, "function": function},)
        for part in filter(None, calls):
            self._add_part(part, is_whole=are_whole)
            yield from self._ready() or [("tool_call", None, "")]

    def end(self, *, is_cut: bool) -> Iterator[Segment]:
        """The rest. A call without arguments has those of no arguments, unless the output is cut."""
        for call in self._calls:
            if not call.name:
                continue
            if rest := self._halves.end(call):
                call.add(None, "", rest)
            if not (call.has_arguments or is_cut):
                call.add(None, "", _NO_ARGUMENTS)
            call.end()
            if call.has_more or not call.is_sent:
                yield call.segment()

    def in_order(self, deltas: list[Delta], *, is_last: bool = False) -> list[Delta]:
        """Text that came in the middle of a call comes after it. The totals of a request never decrease."""
        is_open = self._num_open > 0 and not is_last
        if not (is_open or self.in_call):
            return deltas
        channels = [delta.channel for delta in deltas]
        begin = channels.index("tool_call") if "tool_call" in channels and not self.in_call else 0
        ordered = [delta for at, delta in enumerate(deltas) if at < begin or delta.channel == "tool_call"]
        self._after_call += [delta for delta in deltas[begin:] if delta.channel != "tool_call"]
        self.in_call = is_open
        if not is_open:
            ordered += [replace(delta, usage=self._count.usage) for delta in self._after_call]
            self._after_call = []
        return ordered

    def _add_part(self, part: Mapping[str, Any], *, is_whole: bool) -> None:
        function = part.get("function") or {}
        index, call_id, name = part.get("index"), part.get("id") or None, function.get("name") or ""
        arguments = function.get("arguments")
        if arguments and not isinstance(arguments, str):
            arguments = orjson.dumps(with_whole_characters(arguments)).decode()
        arguments = arguments or ""
        self._count.add("tool_call", len(arguments), bool(arguments))
        call_id = None if call_id in self._shared_ids else call_id
        call = None if is_whole else self._known(index, call_id, name, arguments)
        if call is None:
            call = _Call(len(self._calls))
            self._calls.append(call)
            if call_id in self._by_id:
                self._shared_ids.add(call_id)
        self._running = call
        if index is not None:
            self._by_index[index] = call
        if call_id is not None:
            self._by_id[call_id] = call
        was_open = call.is_open
        call.add(call_id, name, self._halves.join(call, arguments))
        self._num_open += call.is_open - was_open

    def _known(self, index: Any, call_id: Any, name: str, arguments: str) -> _Call | None:
        """The call that a part continues. None: the part begins a call."""
        by_id, by_index = self._by_id.get(call_id), self._by_index.get(index)
        known = by_id or by_index or self._running
        if known is None:
            return None
        is_new = call_id is not None and by_id is None, index is not None and by_index is None
        if not known.name:
            return None if name and all(is_new) else known
        if not name:
            # A head may have its name still to come. It has no arguments yet.
            return None if all(is_new) and not arguments else known
        has_new_id, has_new_index = is_new
        if has_new_id or (name != known.name and (known.has_arguments or not (by_id or by_index))):
            return None
        goes_on = known.has_arguments and arguments and not arguments.lstrip().startswith("{")
        if known.is_whole:  # a part of it repeats its name alone, or has text after the arguments
            is_its = goes_on and (by_id or not has_new_index) if arguments else not has_new_index
            return known if is_its else None
        if by_id or by_index or not has_new_index:
            return known
        # Without ids, the index counts calls, or else parts that go on with the arguments.
        return known if goes_on else None

    def _ready(self) -> list[Segment]:
        """The segments that may leave."""
        ready: list[Segment] = []
        while self._num_left < len(self._calls):
            call, is_last = self._calls[self._num_left], self._num_left == len(self._calls) - 1
            may_begin = not (is_last or call.is_sent or not call.name)
            if not call.is_held and (call.has_more or may_begin):
                ready.append(call.segment())
            if is_last or not call.is_whole:
                break
            self._num_left += 1
        return ready
