"""The harmony format of gpt-oss, from its published description: messages, each with its own channel.

    <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>

A message on `analysis` is reasoning. A message to `functions.f`, on any channel, is a call of f. A message to
another recipient is content, together with its header.
"""

import re

from engine.parsers.scan import Calls, Scan, until
from engine.parsers.tape import CONTENT, REASONING, Stream, Tape

MESSAGE = "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = ("<|start|>", "<|channel|>", "<|constrain|>", MESSAGE, *ENDS)

MAX_HEADER = 256
"""Characters. Longer text without `MESSAGE` is not a header."""

_RECIPIENT = r"(?: ?to=(?P<{}>[\w.-]+))?"
_HEADER = re.compile(
    r"\s*(?:(?:<\|start\|>)?assistant)?"
    + _RECIPIENT.format("early")
    + r"<\|channel\|>(?P<channel>analysis|commentary|final)"
    + _RECIPIENT.format("late")
    + r"(?: ?(?:<\|constrain\|>)? ?(?:json|code))? ?"
)
_BEGINNINGS = ("<|channel|>", "<|start|>", "assistant<|channel|>", "to=functions.")


def harmony(tape: Tape, calls: Calls) -> Scan[None]:
    """Text that is not a known header is content, as the model wrote it: no text disappears unseen."""
    while (yield from _is_header(tape)):
        while not tape.ended and MESSAGE not in tape.text and len(tape.text) < MAX_HEADER:
            yield
        header, message, _ = tape.text[:MAX_HEADER].partition(MESSAGE)
        stream = _stream(header, calls) if message else None
        if stream is None:
            tape.give(len(header + message), CONTENT)
        else:
            tape.drop(len(header + message))
        end = yield from until(tape, stream or CONTENT, *ENDS)
        if end and stream is not None and stream.call and tape.last != stream:
            tape.insert("{}", stream)
        tape.drop(end)


def _is_header(tape: Tape) -> Scan[bool]:
    while True:
        text = tape.text.lstrip()
        if any(text.startswith(beginning) for beginning in _BEGINNINGS):
            return True
        if tape.ended or not any(beginning.startswith(text) for beginning in _BEGINNINGS):
            return False
        yield


def _stream(header: str, calls: Calls) -> Stream | None:
    """The stream of the message under this header. None: the text is not a header."""
    found = _HEADER.fullmatch(header)
    if not found:
        return None
    recipient = found["early"] or found["late"] or ""
    if recipient.startswith("functions."):
        return calls.begin(recipient.removeprefix("functions."))
    if recipient:
        return None  # the recipient is text of the model's own, and must not disappear
    return REASONING if found["channel"] == "analysis" else CONTENT
