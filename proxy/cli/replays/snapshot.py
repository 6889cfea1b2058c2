"""The result of a replay, as JSON to keep and as lines to read and compare."""

import difflib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from hooks.testing import Judgement, Released

VERSION = 2

JSONObject = dict[str, Any]

_QUIET = ("emit", "hold")
"""Actions that do not change the released text."""


def snapshot(released: Released) -> JSONObject:
    """The part of a result that must not change unnoticed: outputs, and the verdicts that changed them."""
    verdicts = [
        {name: value for name, value in verdict_of(judgement).items() if name not in ("pending", "held")}
        for judgement in released.judgements
        if judgement.action not in _QUIET
    ]
    outputs, failure = outputs_of(released), failure_of(released)
    return {"version": VERSION, "outputs": outputs, "verdicts": verdicts, "failure": failure}


def outputs_of(released: Released) -> list[JSONObject]:
    """Each output: its streams, its number of tokens and its end."""
    outputs: dict[int, JSONObject] = {}
    for index in sorted({delta.index for delta in released.deltas}):
        finish_reason, stop_reason = released.finish(index)
        outputs[index] = {
            "output": index,
            "streams": [],
            "num_tokens": sum(len(delta.tokens) for delta in released.deltas if delta.index == index),
            "finish_reason": finish_reason,
            "stop_reason": stop_reason,
        }
    for (index, channel, call, tool), text in released.outcome.texts.items():
        outputs[index]["streams"].append({"channel": channel, "call": call, "tool": tool, "text": text})
    return list(outputs.values())


def verdict_of(judgement: Judgement) -> JSONObject:
    """One verdict as JSON. `pending` and `spans` are offsets in the text that the hook was shown."""
    return {
        "hook": judgement.hook,
        "shadow": judgement.is_shadow,
        "output": judgement.output_index,
        "channel": judgement.channel,
        "tool": judgement.tool_name,
        "action": judgement.action,
        "pending": [judgement.start, judgement.end],
        "spans": [list(span) for span in judgement.spans],
        "held": judgement.num_held,
        "reason": judgement.reason,
    }


def failure_of(released: Released) -> str | None:
    error = released.failure
    cause = error.__cause__ if error else None
    return f"{error} ({type(cause).__name__})" if cause else str(error) if error else None


def changes(before: JSONObject, after: JSONObject) -> list[str]:
    """The lines that differ: old lines begin with `- `, and new ones with `+ `."""
    diff = list(difflib.unified_diff(list(_lines(before)), list(_lines(after)), n=0, lineterm=""))
    return [f"{line[0]} {line[1:]}" for line in diff[2:] if not line.startswith("@@")]


def _lines(snapshot: JSONObject) -> Iterator[str]:
    for output in snapshot["outputs"]:
        for stream in output["streams"]:
            yield f"output {output['output']}, {_name(stream)}:"
            yield from (f"| {line}" for line in stream["text"].splitlines())
        yield f"output {output['output']}: {_ending(output)}, {output['num_tokens']} tokens"
    for verdict in snapshot["verdicts"]:
        spans = [f"{start}-{end} → {new!r}" for start, end, new in verdict["spans"]]
        parts = [_action(verdict), *spans, verdict["reason"]]
        yield f"{verdict['hook']}, {_name(verdict)}: {' '.join(filter(None, parts))}"
    if snapshot["failure"]:
        yield f"failed: {snapshot['failure']}"


def report(said: Released, released: Released) -> Iterator[str]:
    """The model's text beside the client's text, and every verdict."""
    after = {output["output"]: output for output in outputs_of(released)}
    for before in outputs_of(said):
        index = before["output"]
        got = after.get(index, {"streams": [], "num_tokens": 0, "finish_reason": None, "stop_reason": None})
        texts = {_key(stream): stream["text"] for stream in got["streams"]}
        for stream in before["streams"]:
            yield f"output {index}, {_name(stream)}"
            text = texts.get(_key(stream), "")
            if text == stream["text"]:
                yield from _margined("both", text)
            else:
                yield from _margined("model", stream["text"])
                yield from _margined("client", text)
        yield f"output {index} ended: {_ending(got)}; {got['num_tokens']} of {before['num_tokens']} tokens"
    yield from _verdicts(released.judgements)
    if failure := failure_of(released):
        yield f"failed: {failure}"


def _verdicts(judgements: Sequence[Judgement]) -> Iterator[str]:
    """The verdicts, by hook and stream. Adjacent verdicts that only emit, or only hold, share one line."""
    streams: dict[tuple[Any, ...], list[Judgement]] = {}
    for one in judgements:
        stream = one.hook, one.channel, one.tool_name, one.output_index
        streams.setdefault(stream, []).append(one)
    for (hook, channel, tool, index), own in streams.items():
        yield f"{hook}, {_name({'channel': channel, 'tool': tool})} of output {index}"
        for action, some in groupby(own, lambda judgement: judgement.action):
            few = list(some)
            if action in _QUIET:
                yield f"  {_quiet(few)}"
            else:
                yield from (f"  {line}" for judgement in few for line in _spans(judgement))


def _quiet(judgements: Sequence[Judgement]) -> str:
    first, last = judgements[0], judgements[-1]
    held = max(judgement.num_held for judgement in judgements)
    at_most = f", at most {held} characters" if held else ""
    return f"{_action(verdict_of(first)):<9} {first.start}-{last.end}  ×{len(judgements)}{at_most}"


def _spans(judgement: Judgement) -> Iterator[str]:
    action = _action(verdict_of(judgement))
    reason = f"  {judgement.reason}" if judgement.reason else ""
    if not judgement.spans:
        yield f"{action:<9} {judgement.start}-{judgement.end}{reason}"
    for start, end, new in judgement.spans:
        old = judgement.pending[start - judgement.start : end - judgement.start]
        yield f"{action:<9} {start}-{end}  {old!r} → {new!r}{reason}"


def _margined(label: str, text: str) -> Iterator[str]:
    for i, line in enumerate(text.splitlines() or [""]):
        yield f"  {'' if i else label:<7}| {line}"


def _action(verdict: JSONObject) -> str:
    return f"would {verdict['action']}" if verdict["shadow"] else str(verdict["action"])


def _name(stream: JSONObject) -> str:
    return f"{stream['channel']} {stream['tool']}" if stream["tool"] else str(stream["channel"])


def _key(stream: JSONObject) -> tuple[Any, ...]:
    return stream["channel"], stream["call"], stream["tool"]


def _ending(output: JSONObject) -> str:
    reasons = [output["finish_reason"] or "cut short", output["stop_reason"]]
    return ", ".join(str(reason) for reason in reasons if reason is not None)
