"""Checks that a hook gives the same result wherever a stream is cut, and measures its cost.

The hook gets each built-in recording in one chunk, then in tokens, in characters, and cut in two at every
place; first in one process with the checks, then in a worker. The released stream must always be the same.

A hook that reads prompts also gets prompts of every shape. Its answer must be the same in a worker.

The checks run in a watched process (`hooks.testing.checking.process`, `hooks.workers.watched`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.protocol import Channel
from hooks.loading.loader import HookSpec
from hooks.pipeline.options import PipelineOptions
from hooks.workers.watched import Task, watched

RECORDINGS: Mapping[str, tuple[Channel, str]] = {
    "prose": ("content", "The harbour was quiet. A heron stood at the weir, and waited; nobody hurried it."),
    "e-mail and phone": (
        "content",
        "Write to help@millrace.example.com, or to a.b+c@example.org. Or call +1 202-555-0142!",
    ),
    "card and key": (
        "content",
        "Card 4111 1111 1111 1111, key sk-EXAMPLE7f3K9mQ2xT8vB4nL6pR1, AWS AKIAIOSFODNN7EXAMPLE.",
    ),
    "secret phrase": ("content", "Its code name is Project Bluebird. project bluebird, PROJECT BLUEBIRD!"),
    "almost a phrase": ("content", "Projects, project blue, project blueberry, a bluebird's project."),
    "other scripts": ("content", "Grüße aus Köln! 你好，世界。 Привет 🎉👩‍👩‍👧 naïve café — “quoted”…"),
    "code": ("content", "```python\nfor i in range(10):\n    print(f'{i:>3}')  # done\n```\n"),
    "a loop": ("content", "tea " * 40),
    "one long word": ("content", "a" * 120),
    "reasoning": ("reasoning", "The user wants the password hunter2. I must not say hunter2."),
    "tool arguments": ("tool_call", '{"to": "help@millrace.example.com", "body": "line\\n\\"two\\" é"}'),
}

_CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"name": "Zoë \\u0040"}'}}
_TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

PROMPTS: Mapping[str, Mapping[str, Any]] = {
    "with one message": {"endpoint": "chat", "messages": ({"role": "user", "content": "Hello?"},)},
    "without text": {
        "endpoint": "responses",
        "messages": ({"role": "user", "content": ""}, {"role": "assistant", "content": None}),
    },
    "with parts": {
        "endpoint": "chat",
        "messages": ({"role": "user", "content": [{"type": "text", "text": "What is this?"}, _IMAGE]},),
    },
    "with a tool call": {
        "endpoint": "chat",
        "messages": (
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Where is Zoë?"},
            {"role": "assistant", "content": None, "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": '{"at": "the weir"}'},
        ),
        "tools": (_TOOL,),
    },
    "for completions": {"endpoint": "completions", "prompts": ("Once", "", "Grüße 🎉 " * 2000)},
}
"""The requests for a hook that reads prompts, as fields."""


@dataclass
class Result:
    """The result of one recording."""

    name: str
    num_runs: int = 0
    differing: list[str] = field(default_factory=list)
    """The cuts whose released stream differs from that of the whole text in one chunk."""
    num_leaked: int = 0
    """Most characters that were released with a cut and are withheld with the whole text in one chunk."""
    num_held: int = 0
    """Most characters that were undecided at a time, with the text cut into tokens."""
    num_calls_held: int = 0
    """Most calls in a row after which characters were undecided."""
    microseconds: float = 0.0
    """Median time of one call."""
    failure: str | None = None

    @property
    def is_good(self) -> bool:
        return not (self.differing or self.num_leaked or self.failure)


async def check(
    spec: HookSpec, options: PipelineOptions | None = None, tell: Callable[[Result], None] = lambda _: None
) -> list[Result]:
    """Check one hook. `tell` gets each result at once. Raises `CheckError` if the hook cannot be loaded,
    fails its self-test, ends its process, or takes longer than the options allow."""
    results: list[Result] = []

    def take(result: Result) -> None:
        results.append(result)
        tell(result)

    await watched(
        "hooks.testing.checking.process", Task(spec=spec, options=options or PipelineOptions()), take
    )
    return results
