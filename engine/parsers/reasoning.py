"""Models that think between two markers before they answer. Names are vLLM's."""

from typing import NamedTuple

from engine.parsers.scan import Scan, skip, until
from engine.parsers.tape import CONTENT, REASONING, Tape


class Markers(NamedTuple):
    """What a family's reasoning stands between; where there are several, any of them."""

    start: tuple[str, ...]
    end: tuple[str, ...]
    is_open: bool = False
    """The output begins inside reasoning: its chat template opens it, unless the prompt is seen to end
    otherwise."""


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


def reasoning(tape: Tape, markers: Markers, prompt_end: str) -> Scan[None]:
    """Only what an output begins with can be reasoning, so that an answer may speak of the markers. Returns
    where it ends."""
    if not ((yield from skip(tape, *markers.start)) or begins_open(markers, prompt_end)):
        return
    if end := (yield from until(tape, REASONING, *markers.end)):
        tape.drop(end)
        tape.last = CONTENT


def begins_open(markers: Markers, prompt_end: str) -> bool:
    """Whether an output after a prompt that ends so begins inside reasoning."""
    prompt_end = prompt_end.rstrip()
    return prompt_end.endswith(markers.start) or (markers.is_open and not prompt_end.endswith(markers.end))
