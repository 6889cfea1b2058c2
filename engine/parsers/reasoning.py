"""Models that write their reasoning between two markers before they answer. Parsers have vLLM's names.

Each splits an output as vLLM's parser of its name splits a whole output, with these exceptions. No text is
lost: vLLM drops text in front of some markers, and blanks at the end of some reasoning. Reasoning that never
ends is reasoning, because a stream cannot wait for its end. A request that turns thinking off gets an answer
from every parser.
"""

from collections.abc import Mapping
from functools import cache
from typing import Literal, NamedTuple

from engine.parsers.scan import Scan, at, skip, until
from engine.parsers.tape import CONTENT, REASONING, Tape
from engine.protocol import GenerationRequest
from engine.protocol.parts import PARSERS, PartError


class Markers(NamedTuple):
    """The markers around a family's reasoning. If there are several, any of them counts."""

    start: tuple[str, ...]
    end: tuple[str, ...]
    is_open: bool = False
    """Whether the chat template opens reasoning, so that the output begins inside. A prompt whose end is
    known to close reasoning is an exception."""
    may_be_open: bool = False
    """Whether some chat templates of the family open reasoning. If the prompt's end is unknown, the output
    begins inside."""
    opens: Literal["first", "once", "always"] = "first"
    """The places where a start marker opens reasoning: the output's beginning, one anywhere, or all."""
    drops_strays: bool = False
    """Whether a start marker inside reasoning, and an end marker outside, belong to no channel."""
    calls: tuple[str, ...] = ()
    """The beginnings of tool calls, which end reasoning where no parser of tool calls reads them."""
    switches: tuple[str, ...] = ()
    """The arguments of the chat template that turn reasoning off. Then no marker is read."""
    needs_switch: bool = False
    """Whether there is no reasoning unless one of the `switches` turns it on."""
    title: str = ""
    """A text at the beginning of reasoning that belongs to no channel."""
    answer: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """The markers before and after an answer. They belong to no channel, and may be missing."""


ANY_SWITCH = ("enable_thinking", "thinking")
THINK = Markers(("<think>",), ("</think>",))
OPEN_THINK = THINK._replace(is_open=True)
QWEN = THINK._replace(
    may_be_open=True, drops_strays=True, calls=("<tool_call>",), switches=("enable_thinking",)
)

GLM = QWEN._replace(opens="always", switches=ANY_SWITCH)

REASONING_MARKERS = {
    "deepseek_r1": OPEN_THINK,
    "deepseek_v3": OPEN_THINK._replace(switches=ANY_SWITCH, needs_switch=True),
    "ernie45": OPEN_THINK._replace(answer=(("<response>",), ("</response>",))),
    "gemma4": Markers(
        ("<|channel>",),
        ("<channel|>",),
        opens="always",
        drops_strays=True,
        calls=("<|tool_call>",),
        title="thought\n",
    ),
    "glm45": GLM,
    "glm47": GLM,
    "granite": Markers(
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
        opens="once",
    ),
    "holo2": OPEN_THINK._replace(switches=ANY_SWITCH),
    "hunyuan_a13b": Markers(("<think>\n",), ("\n</think>\n<answer>\n",), answer=((), ("\n</answer>",))),
    "kimi_k2": QWEN._replace(calls=("<|tool_calls_section_begin|>",), switches=ANY_SWITCH),
    "mimo": QWEN,
    "minimax_m2": OPEN_THINK._replace(drops_strays=True, calls=("<minimax:tool_call>",)),
    "mistral": Markers(
        ("[THINK]",), ("[/THINK]",), opens="always", drops_strays=True, calls=("[TOOL_CALLS]",)
    ),
    "nemotron_v3": QWEN,
    "olmo3": OPEN_THINK,
    "qwen3": QWEN,
    "seed_oss": QWEN._replace(start=("<seed:think>",), end=("</seed:think>",), calls=("<seed:tool_call>",)),
    "step3": OPEN_THINK._replace(start=()),
    "step3p5": QWEN._replace(is_open=True, switches=()),
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


def is_off(markers: Markers, request: GenerationRequest) -> bool:
    """Whether the request turns reasoning off, by an argument of the chat template. As in vLLM,
    `reasoning_effort: none` stands for `enable_thinking: false`."""
    given = request.extra.get("chat_template_kwargs")
    arguments = dict(given) if isinstance(given, Mapping) else {}
    if request.extra.get("reasoning_effort") == "none":
        arguments.setdefault("enable_thinking", False)
    values = [arguments[name] for name in markers.switches or ANY_SWITCH if arguments.get(name) is not None]
    return (bool(values) or markers.needs_switch) and not any(values)


def begins_open(markers: Markers, prompt_end: str, *, is_off: bool = False) -> bool:
    """Whether an output begins inside reasoning, if its prompt ends with `prompt_end`. Empty: unknown."""
    prompt_end = prompt_end.rstrip().removesuffix(markers.title.rstrip())
    if prompt_end and prompt_end.endswith(markers.start):
        return True
    is_open = markers.is_open or (markers.may_be_open and not prompt_end)
    return is_open and not is_off and not prompt_end.endswith(markers.end)


def reasoning(tape: Tape, markers: Markers, *, is_open: bool, holds_blanks: bool) -> Scan[None]:
    """Read an output's reasoning, and return where all that follows is content.

    `is_open`: the output begins inside reasoning. `holds_blanks`: blanks after reasoning wait for what
    follows, because blanks alone before a call belong to no stream.
    """
    if not (is_open and markers.drops_strays) and markers.opens != "always":
        is_open = bool((yield from skip(tape, *markers.start))) or is_open
    if markers.opens == "once" and not is_open:
        tape.drop((yield from until(tape, CONTENT, *markers.start)))
        is_open = True
    yield from _phases(tape, markers, is_open=is_open, holds_blanks=holds_blanks)


def _phases(tape: Tape, markers: Markers, *, is_open: bool, holds_blanks: bool) -> Scan[None]:
    """Read reasoning and content in turn."""
    strays = markers.start if markers.drops_strays else ()
    calls = () if holds_blanks else markers.calls
    opening = markers.start if markers.opens == "always" else ()
    answer, answer_end = markers.answer
    closing = (*(markers.end if markers.drops_strays else ()), *answer_end)
    while True:
        if is_open:
            yield from _skip_title(tape, markers.title)
            end = yield from until(tape, REASONING, *markers.end, *strays, *calls)
            marker = tape.text[:end]
            is_open = marker in strays
            if marker not in calls:
                tape.drop(end)
            if is_open:
                continue
            tape.last = CONTENT
            yield from skip(tape, *answer)
        if holds_blanks:
            yield from at(tape, *markers.end, *opening)
        if not closing:
            return
        end = yield from until(tape, CONTENT, *closing, *opening)
        is_open = tape.text[:end] in opening
        tape.drop(end)
        if not end:
            return


def _skip_title(tape: Tape, title: str) -> Scan[None]:
    """Consume the title, if the text begins with it."""
    while title and not tape.ended and len(tape.text) < len(title) and title.startswith(tape.text):
        yield
    if title and tape.text.startswith(title):
        tape.drop(len(title))


def after_call(tape: Tape, markers: Markers) -> Scan[None]:
    """Read what follows a call that ended reasoning. The end marker that is left belongs to no stream."""
    if markers.drops_strays:
        yield from _phases(tape, markers, is_open=False, holds_blanks=True)
        return
    tape.drop((yield from until(tape, CONTENT, *markers.end)))
    if markers.answer[1]:
        yield from _phases(tape, markers, is_open=False, holds_blanks=True)
