"""Shows, call by call, what hooks did with one stream."""

from collections.abc import Iterator, Sequence

from engine.protocol import Channel
from hooks.decisions.failure import HookError
from hooks.testing.play import Released
from hooks.testing.probe import Judgement

_HEADER = ("call", "hook", "channel", "chunk", "verdict", "released", "held")


def trace(released: Released) -> Iterator[str]:
    """The lines of a table with a row for each call: the new text, the verdict, the text that left the hook
    and the text that it holds. Text in neither of the two was withheld. Further lines say what a client gets.

    A hook's row is missing for text that was read in its place (contract 4.5).
    """
    rows = [_HEADER, *(_row(number, one) for number, one in enumerate(released.judgements, 1))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(map(str.ljust, row, widths)).rstrip()
    yield from _result(released)


def _row(number: int, one: Judgement) -> Sequence[str]:
    place = _place(one.output_index, one.channel, one.tool_name)
    texts = repr(one.text_diff), _verdict(one), repr(one.released), repr(one.held)
    return str(number), one.hook, place, *texts


def _verdict(one: Judgement) -> str:
    reason = f": {one.reason}" if one.reason else ""
    return f"{one.action}{reason}{' (shadow)' if one.is_shadow else ''}"


def _place(output_index: int, channel: Channel, tool_name: str | None) -> str:
    """The channel, with a tool's name, and the number of an output that is not the first."""
    parts = [channel, tool_name or "", f"of output {output_index}" if output_index else ""]
    return " ".join(part for part in parts if part)


def _result(released: Released) -> Iterator[str]:
    outcome = released.outcome
    for (index, channel, _, tool_name), text in outcome.texts.items():
        yield f"the client has {_place(index, channel, tool_name)}: {text!r}"
    for index, (finish_reason, stop_reason) in outcome.finishes.items():
        output = f"output {index} " if index else ""
        yield f"{output}ended: {finish_reason}{f', {stop_reason}' if stop_reason else ''}"
    if isinstance(released.failure, HookError):
        yield f"failed: {released.failure.hook}, {type(released.failure.__cause__).__name__}"
    elif released.failure is not None:
        yield f"failed: {released.failure}"
