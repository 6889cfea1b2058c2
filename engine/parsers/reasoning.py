"""Models that write their reasoning between two markers before they answer. Parsers have vLLM's names."""

from functools import cache
from typing import NamedTuple

from engine.parsers.scan import Scan, skip, until
from engine.parsers.tape import CONTENT, REASONING, Tape
from engine.protocol.parser_names import PARSERS
from engine.protocol.parts import PartError


class Markers(NamedTuple):
    """The markers around a family's reasoning. If there are several, any of them counts."""

    start: tuple[str, ...]
    end: tuple[str, ...]
    is_open: bool = False
    """Whether the chat template opens reasoning, so that the output begins inside. A prompt whose end is
    known to close reasoning is an exception."""


THINK = Markers(("<think>",), ("</think>",))
OPEN_THINK = THINK._replace(is_open=True)

REASONING_MARKERS = {
    "deepseek_r1": OPEN_THINK,
    "glm45": THINK,
    "granite": Markers(
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
    ),
    "minimax_m2": OPEN_THINK,
    "mistral": Markers(("[THINK]",), ("[/THINK]",)),
    "olmo3": OPEN_THINK,
    "qwen3": THINK,
    "seed_oss": Markers(("<seed:think>",), ("</seed:think>",)),
    "step3": OPEN_THINK,
}


@cache
def markers_of(name: str) -> Markers:
    """The markers of a reasoning parser. Raises `PartError` for a package's parser of another kind."""
    if name in REASONING_MARKERS:
        return REASONING_MARKERS[name]
    found = PARSERS.load(name)
    if not isinstance(found, Markers):
        raise PartError(f"parser {name!r} is not for reasoning: it is not a Markers of engine.parsers")
    return found


def reasoning(tape: Tape, markers: Markers, prompt_end: str) -> Scan[None]:
    """Read the reasoning that an output begins with, and return at its end. Later markers are content, so
    that an answer may write about them."""
    if not ((yield from skip(tape, *markers.start)) or begins_open(markers, prompt_end)):
        return
    if end := (yield from until(tape, REASONING, *markers.end)):
        tape.drop(end)
        tape.last = CONTENT


def begins_open(markers: Markers, prompt_end: str) -> bool:
    """Whether an output begins inside reasoning, if its prompt ends with `prompt_end`."""
    prompt_end = prompt_end.rstrip()
    return prompt_end.endswith(markers.start) or (markers.is_open and not prompt_end.endswith(markers.end))
