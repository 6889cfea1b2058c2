"""The judges: each reads what one script's upstream said and what its client saw, and names the faults."""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from streamguard_bench.client import Seen, request_of
from streamguard_bench.scripts import CALL_NAME, Script
from streamguard_bench.upstream import Asked

MIN_PART = 6
"""A part of a value that is shorter counts as nothing."""
SHARE = 0.5
"""The share of a value that counts as a part of it: masks that keep the last four digits stay below."""


class Fault(NamedTuple):
    judge: str
    """The rule that is broken, a key of `FAULTS`."""
    place: str
    """The channel, or the part of the exchange."""


FAULTS = {
    "leak": "a value reached the client",
    "part": "half of a value or more reached the client",
    "changed": "the client's text is not the model's, though nothing in it is guarded",
    "order": "channels came in another order than the model wrote them",
    "call": "a tool call came without a name, an id, or arguments that are JSON",
    "end": "an answer that ended well has no finish reason, or does not end as its interface has it",
    "broken": "a stream that the upstream broke off came as a whole answer",
    "left": "the upstream had to go on after the client had left",
    "request": "the upstream got other messages or tools than the client sent",
    "mask": "a value of the prompt reached the upstream",
    "restore": "a value of the prompt did not come back as it was",
    "hangs": "the answer did not end in time",
    "refused": "a request without any value was refused",
}
"""By judge, the fault in words."""


def longest_part(value: str, text: str) -> int:
    """The length of the longest part of `value` that is in `text`."""
    best = 0
    for start in range(len(value)):
        while start + best < len(value) and value[start : start + best + 1] in text:
            best += 1
    return best


def leaks(script: Script, seen: Seen) -> Iterator[Fault]:
    whole = [place for place, text in seen.texts() if script.secret in text]
    if not whole and script.secret in seen.raw.decode("utf-8", "replace"):
        whole = ["elsewhere"]
    for place in dict.fromkeys(whole):
        yield Fault("leak", place)
    if whole or script.is_echoed:  # the client itself sent a part of it
        return
    needed = max(MIN_PART, SHARE * len(script.secret))
    parts = [place for place, text in seen.texts() if longest_part(script.secret, text) >= needed]
    for place in dict.fromkeys(parts):
        yield Fault("part", place)


def outcome(script: Script, seen: Seen) -> str:
    """What became of a script with a value: `leaked`, `in part`, `withheld`, `refused` or `absent`: its
    channel did not come, and no error says why."""
    name = script.channel.removesuffix(", whole")
    # The content beside these channels has the value too, and counts as content.
    beside = "content" if name in ("logprobs", "token ids") else ""
    found = {fault.judge for fault in leaks(script, seen) if fault.place != beside}
    if "leak" in found:
        return "leaked"
    if "part" in found:
        return "in part"
    if seen.is_refused and not seen.pieces:
        return "refused"
    if seen.error:
        return "withheld"
    said = {
        "logprobs": bool(seen.logprobs),
        "token ids": bool(seen.ids),
        "second choice": bool(seen.text("content", 1)),
    }
    channel = "call" if script.has_calls else "reasoning" if script.text("reasoning") else "content"
    return "withheld" if said.get(name, bool(seen.text(channel)) or bool(seen.calls)) else "absent"


def changes(script: Script, seen: Seen) -> Iterator[Fault]:
    """Faults of an answer in which nothing is guarded."""
    if seen.is_refused:
        yield Fault("refused", script.channel)
        return
    if seen.is_hanging:
        yield Fault("hangs", script.channel)
        return
    came = {choice for _, _, choice, _ in seen.pieces} or {0}
    for choice in sorted(came & {*range(script.n)}):
        expected = script.text("content", choice)
        if script.is_echoed:
            expected = str(request_of(script, "")[1]["prompt"]) + expected
        if seen.text("content", choice) != expected:
            yield Fault("changed", "content")
        if seen.text("reasoning", choice) not in (script.text("reasoning", choice), ""):
            yield Fault("changed", "reasoning")
    if script.has_calls and (seen.calls or _says_calls(seen)):
        arguments = "".join(call.arguments for call in seen.calls.values())
        if _read(arguments) != _read(script.text("call")):
            yield Fault("changed", "call")
    if not seen.is_over or not came <= seen.reasons.keys():
        yield Fault("end", script.channel)
    yield from order(script, seen)


def order(script: Script, seen: Seen) -> Iterator[Fault]:
    """Channels that come in another order. A server may leave a channel out. Whole answers have no order."""
    if script.n > 1 or not script.is_streamed:
        return
    came = [channel for channel, _ in groupby(channel for _, channel, _, _ in seen.pieces)]
    sent = [channel for channel, _ in groupby(p.channel for p in script.pieces) if channel in came]
    if came != sent:
        yield Fault("order", script.channel)


def calls(script: Script, seen: Seen) -> Iterator[Fault]:
    """Tool calls that an agent cannot run, in an answer that says it has some."""
    if not script.has_calls or not _says_calls(seen):
        return
    for call in seen.calls.values():
        if call.name != CALL_NAME or not call.id or not isinstance(_read(call.arguments), dict):
            yield Fault("call", script.channel)
    if not seen.calls:
        yield Fault("call", script.channel)


def _says_calls(seen: Seen) -> bool:
    return bool(set(seen.reasons.values()) & {"tool_calls", "tool_use"})


def broken(seen: Seen) -> Iterator[Fault]:
    if seen.is_over and not seen.error and set(seen.reasons.values()) & {"stop", "end_turn", "tool_calls"}:
        yield Fault("broken", "content")


def requested(script: Script, asked: Asked) -> Iterator[Fault]:
    """Messages and tools that came to the upstream otherwise than the client sent them."""
    if asked.body is None or script.api != "chat":
        return
    _, sent = request_of(script, "")
    came = asked.body
    if [*map(_turn, sent["messages"])] != [*map(_turn, came.get("messages") or ())]:
        yield Fault("request", "messages")
    if [*map(_tool, sent.get("tools") or ())] != [*map(_tool, came.get("tools") or ())]:
        yield Fault("request", "tools")


def _turn(message: dict[str, object]) -> tuple[object, ...]:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    asked = message.get("tool_calls")
    names = (
        [(c["function"]["name"], c["function"]["arguments"]) for c in asked]
        if isinstance(asked, list)
        else []
    )
    return message.get("role"), content or "", names, message.get("tool_call_id")


def _tool(tool: dict[str, dict[str, object]]) -> tuple[object, ...]:
    function = tool.get("function") or {}
    return function.get("name"), json.dumps(function.get("parameters"), sort_keys=True)


def restored(script: Script, seen: Seen, asked: Asked, *, comes_back: bool) -> Iterator[Fault]:
    """`comes_back`: whether the server says that values of the prompt come back in the answer."""
    if script.secret in asked.raw or script.secret in json.dumps(asked.body, ensure_ascii=False):
        yield Fault("mask", "prompt")
    expected = script.prompt.removeprefix("Repeat this: ")
    if comes_back and seen.text("content") != expected:
        yield Fault("restore", "content")


def left(seen: Seen, asked: Asked) -> Iterator[Fault]:
    """An answer that had ended before its client left is no fault."""
    if asked.count and not asked.was_left and not seen.is_over and not seen.is_refused:
        yield Fault("left", "upstream")


def _read(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
