"""Checks that a hook gives the same result wherever a stream is cut, and measures its cost.

The hook gets each built-in recording in one chunk, then in tokens, in characters, and cut in two at every
place; first in one process with the checks, then in a worker. The released stream must always be the same,
unless the hook asks a judge (contract 3.17): what a judge says of a text depends on the pieces that it is
shown.

A hook that reads prompts also gets prompts of every shape. Its answer must be the same in a worker.

The checks run in a watched process (`hooks.workers.watched`).
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.protocol import Channel, GenerationRequest
from engine.streams.recording import Recording
from hooks.decisions.failure import HookError
from hooks.loading.alarm import interrupt
from hooks.loading.loader import HookLoadError, HookSpec, load_hook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.open_guard import GuardFactory
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.difference import num_shared
from hooks.testing.play import Released, play_once
from hooks.testing.probe import Probe
from hooks.testing.run_modes import Places, logged_once, named_cuts
from hooks.testing.streams import cut, scored, stream_of, token_places
from hooks.testing.ways import attempts_in, described, missed_ways
from hooks.workers.deadlines import with_alarm
from hooks.workers.messages import Connection, beating
from hooks.workers.pool import WorkerPool
from hooks.workers.process import inherited
from hooks.workers.watched import CheckError, Ended, Task, watched

RECORDINGS: Mapping[str, tuple[Channel, str]] = {
    "prose": ("content", "The harbour was quiet. A heron stood at the weir, and waited; nobody hurried it."),
    "e-mail and phone": (
        "content",
        "Write to help@millrace.example.com, or to a.b+c@initech.org. Or call +1 202-555-0142!",
    ),
    "card and key": (
        "content",
        "Card 4111 1111 1111 1111, key sk-EXAMPLE7f3K9mQ2xT8vB4nL6pR1, AWS AKIAJ7QRSTUVWX234567.",
    ),
    "secret phrase": ("content", "Its code name is Project Bluebird. project bluebird, PROJECT BLUEBIRD!"),
    "continued, cut": ("content", "bird, and nobody knows why. Write to help@millrace of project blueb"),
    "almost a phrase": ("content", "Projects, project blue, project blueberry, a bluebird's project."),
    "other scripts": ("content", "Grüße aus Köln! 你好，世界。 Привет 🎉👩‍👩‍👧 naïve café — “quoted”…"),
    "code": ("content", "```python\nfor i in range(10):\n    print(f'{i:>3}')  # done\n```\n"),
    "a loop": ("content", "tea " * 40),
    "one long word": ("content", "a" * 120),
    "reasoning": ("reasoning", "The user wants the password hunter2. I must not say hunter2."),
    "tool arguments": ("tool_call", '{"to": "help@millrace.example.com", "body": "line\\n\\"two\\" é"}'),
}
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "continued, cut": {"lead": "Its code name is Project Blue", "is_cut": True}
}
"""Further arguments of `stream_of`, by the recording's name."""

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

LIMIT = 300.0
"""Seconds that a whole check may take. The guards that ship and search text take 5 to 30."""
_TOO_SLOW = (
    "The check calls the hook thousands of times. If the hook asks a service, check it with a fake in the "
    "service's place, which answers at once"
)


@dataclass
class Result:
    name: str
    num_runs: int = 0
    differing: list[str] = field(default_factory=list)
    """The cuts whose released stream differs from that of the whole text in one chunk."""
    num_leaked: int = 0
    """Most characters that were released with a cut and are withheld with the whole text in one chunk. For a
    secret: most characters of it that left."""
    num_held: int = 0
    """Most characters that were undecided at a time, with the text cut into tokens."""
    num_calls_held: int = 0
    """Most calls in a row after which characters were undecided."""
    microseconds: float = 0.0
    """Median time of one call."""
    failure: str | None = None
    missed: list[str] = field(default_factory=list)
    """The ways in which a secret leaves."""
    is_changed: bool = False
    """Whether the hook did anything to the text or the prompt."""
    holds_all: bool = False
    """Whether the hook released nothing before the end of the text."""

    @property
    def is_good(self) -> bool:
        return not (self.differing or self.num_leaked or self.failure or self.missed)


@dataclass(frozen=True, kw_only=True)
class CheckTask(Task):
    texts: tuple[str, ...] = ()
    """Texts to check in addition to the recordings."""
    secrets: tuple[str, ...] = ()
    """Texts that must never be released."""


async def check(
    spec: HookSpec,
    options: PipelineOptions | None = None,
    report: Callable[[Result], None] = lambda _: None,
    *,
    texts: Sequence[str] = (),
    secrets: Sequence[str] = (),
    limit: float = LIMIT,
    announce: Callable[[str], None] = lambda _: None,
) -> list[Result]:
    """Check one hook, on the recordings and on `texts`. Each secret is tried in every way, in the first text
    that contains it. `report` gets each result at once, and `announce` each step before it, in words. Raises
    `CheckError` if the hook cannot be loaded, fails its self-test, ends its process, or takes longer than the
    options allow, and if the whole check takes longer than `limit` seconds."""
    results: list[Result] = []
    doing = "it was loaded"

    def take(result: Result) -> None:
        results.append(result)
        report(result)

    def begin(step: str) -> None:
        nonlocal doing
        doing = step
        announce(step)

    options = options or PipelineOptions()
    task = CheckTask(spec=spec, options=options, texts=tuple(texts), secrets=tuple(secrets))
    try:
        async with asyncio.timeout(limit):
            await watched("hooks.testing.check", task, take, begin)
    except TimeoutError:
        raise CheckError(f"the {limit:g} s of --limit ended while {doing}. {_TOO_SLOW}") from None
    return results


class _Checker:
    """Runs the checks, and says before each step what the hook is about to see."""

    def __init__(self, task: CheckTask, connection: Connection) -> None:
        self._task = task
        self._connection = connection
        self._step = ""

    async def check(self) -> None:
        """Raises `HookLoadError`, and `CheckError` if a call takes too long: later calls would, too."""
        spec, options = self._task.spec, self._task.options
        probe = Probe(load_hook(spec, options.hook_load_timeout))
        hook = with_alarm(probe.hook, options.hook_timeout, self._connection.beat)
        self._announce("it ran its self-test")
        here = Pipeline([hook], options=options)
        there = WorkerPool(1, [spec], options=options)
        try:
            async with beating(self._connection.beat):
                await here.start()
                self._announce("it was loaded in a worker")
                await there.start()
            streams = {
                name: stream_of(text, channel=channel, **_OPTIONS.get(name, {}))
                for name, (channel, text) in RECORDINGS.items()
            }
            streams |= {f"text {i}": stream_of(text) for i, text in enumerate(self._task.texts, 1)}
            for name, stream in streams.items():
                self._send(await self._check_recording(name, stream, probe, here, there))
            for i, secret in enumerate(self._task.secrets, 1):
                self._send(await self._check_secret(f"secret {i}", secret, probe, here))
            if here.prompt_readers:
                self._send(await self._check_prompts(here, there))
        finally:
            await there.aclose()
            await here.aclose()

    async def _check_recording(
        self, name: str, stream: Recording, probe: Probe, here: GuardFactory, there: GuardFactory
    ) -> Result:
        result = Result(name)
        stream = scored(stream, [probe.hook])
        channel = stream.deltas[0].delta.channel
        text = "".join(timed.delta.text for timed in stream.deltas)
        whole = await self._run(here, name, "whole", cut(stream, ()))
        result.failure = _failure_of(whole, stream)
        if result.failure is not None:
            return result
        result.is_changed = whole.text(channel) != text or whole.finish_reason == "content_filter"
        probe.reset()
        await self._run(here, name, "cut into tokens", cut(stream, token_places(stream)))
        result.num_held, result.num_calls_held = probe.num_held, probe.num_calls_held
        result.holds_all = probe.num_held == len(text)
        result.microseconds = probe.microseconds
        cuts = list(named_cuts(stream))
        for where, pipeline in (("", here), (" in a worker", there)):
            for label, places in cuts:
                step = f"{label}{where} ({result.num_runs + 1} of {2 * len(cuts)})"
                released = await self._run(pipeline, name, step, cut(stream, places))
                result.num_runs += 1
                if isinstance(released.failure, HookError):
                    result.failure = f"fails {label}{where}"
                    return result
                if released.outcome != whole.outcome and not probe.hook.depends_on_cuts:
                    result.differing.append(label + where)
                    said = released.text(channel)
                    num_leaked = len(said) - num_shared(said, whole.text(channel))
                    result.num_leaked = max(result.num_leaked, num_leaked)
        return result

    async def _check_secret(self, name: str, secret: str, probe: Probe, here: GuardFactory) -> Result:
        result = Result(name, is_changed=True)

        async def play(stream: Recording, places: Places) -> Released:
            self._announce(f"it saw {described(stream, places)}")
            result.num_runs += 1
            stream = cut(scored(stream, [probe.hook]), places)
            released = await play_once(here, stream, beat=self._connection.beat)
            self._check_late(released.failure)
            return released

        probe.reset()
        attempts = attempts_in([secret], self._task.texts)
        missed = await missed_ways(play, attempts, [probe.hook])
        result.missed += map(str, missed)
        result.num_leaked = max((one.num_leaked for one in missed), default=0)
        result.num_held, result.num_calls_held = probe.num_held, probe.num_calls_held
        result.microseconds = probe.microseconds
        return result

    async def _run(self, pipeline: GuardFactory, name: str, how: str, stream: Recording) -> Released:
        self._announce(f"it saw the recording {name!r}, {how}")
        released = await play_once(pipeline, stream, beat=self._connection.beat)
        self._check_late(released.failure)
        return released

    async def _check_prompts(self, here: Pipeline, there: GuardFactory) -> Result:
        result = Result("prompts")
        (tally,) = here.tallies.values()
        before = tally.seconds
        for label, fields in PROMPTS.items():
            request = GenerationRequest(request_id="weir-test", model="weir-test", **fields)
            try:
                expected = await self._result_of_prompt(here, label, request)
                in_worker = await self._result_of_prompt(there, f"{label}, in a worker", request)
            except HookError:
                result.failure = f"fails on a prompt {label}"
                return result
            result.num_runs += 2
            result.is_changed = result.is_changed or expected != (request, None, None)
            if in_worker != expected:
                result.failure = f"gives a different result for a prompt {label} in a worker"
        result.microseconds = (tally.seconds - before) / len(PROMPTS) * 1e6
        return result

    async def _result_of_prompt(self, pipeline: GuardFactory, label: str, request: GenerationRequest) -> Any:
        """The request for the engine, the reason of a refusal, and the answer if a hook gave one."""
        self._announce(f"it saw a prompt {label}")
        guard = pipeline.open(request)
        try:
            step = await guard.admit(request)
        except HookError as error:
            self._check_late(error)
            raise
        finally:
            await guard.close()
        return guard.request, step.refused, step.released if step.is_over else None

    def _check_late(self, failure: BaseException | None) -> None:
        if failure is not None and isinstance(failure.__cause__, TimeoutError):
            spec, limit = self._task.spec, self._task.options.hook_timeout
            raise CheckError(f"hook {spec.path!r} took longer than {limit:g} s while {self._step}")

    def _announce(self, step: str) -> None:
        self._step = step
        self._send(step)

    def _send(self, message: str | Result) -> None:
        self._connection.send(message)
        self._connection.flush()


def _failure_of(whole: Released, stream: Recording) -> str | None:
    """The reason why the whole text, in one chunk, gives nothing to compare with."""
    if isinstance(whole.failure, HookError):
        return "fails on the whole text"
    if whole.refused is not None:
        return f"refuses the prompt, {stream.request.messages[0]['content']!r}"
    return None


def main() -> None:
    """The watched process."""
    asyncio.run(_check_one_hook())


async def _check_one_hook() -> None:
    connection = await inherited()
    (task,) = await connection.receive()
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.CRITICAL)  # the worker's as well
    logging.getLogger("weir.hooks").setLevel(logging.WARNING)
    signal.signal(signal.SIGALRM, interrupt)
    ended = Ended()
    try:
        with logged_once():
            await _Checker(task, connection).check()
    except (HookLoadError, CheckError) as error:
        ended = Ended(error=CheckError(str(error)))
    connection.send(ended)
    await connection.close()
