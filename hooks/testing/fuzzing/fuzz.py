"""Searches with Hypothesis, for some seconds, for a text on which a hook is wrong.

A hook is wrong on a text if it fails or takes too long, if what it releases depends on where the text is cut
(unless it asks a judge: see `hooks.testing.check`), if it releases a secret, or if it holds more characters
than its `max_hold`.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import hypothesis
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky

from engine.protocol import Channel
from engine.streams.recording import Recording
from hooks.decisions.failure import HookError
from hooks.loading.alarm import interrupting
from hooks.loading.loader import HookSpec, load_hook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.pipeline import Pipeline
from hooks.testing import leaks
from hooks.testing.difference import Difference, cut_at, failure_of
from hooks.testing.fuzzing.texts import texts
from hooks.testing.play import Released, opened, play_once
from hooks.testing.probe import Probe
from hooks.testing.run_modes import Places, smallest
from hooks.testing.streams import cut, stream_of, with_scores

CHANNELS: tuple[Channel, ...] = ("content", "reasoning", "tool_call")
PHRASES = (
    "a.b+c@initech.org",
    "+1 202-555-0142",
    "4111 1111 1111 1111",
    "sk-EXAMPLE7f3K9mQ2xT8vB4nL6pR1",
    "Project Bluebird",
    "hunter2",
)
"""Texts that guards often look for. The texts in the hook's arguments are added."""
NUM_TEXTS = 200
"""Texts drawn with one seed, before the next seed."""
MAX_SHRINKING = 20.0
"""Seconds to search for a smaller counterexample."""


@dataclass(frozen=True)
class Example:
    channel: Channel
    text: str
    places: Places
    """The places where the text is cut."""
    streaming: bool
    in_worker: bool

    @property
    def size(self) -> tuple[int, ...]:
        simple = CHANNELS.index(self.channel), self.in_worker, not self.streaming
        return len(self.text), len(self.places), *simple

    @property
    def stream(self) -> Recording:
        return stream_of(self.text, channel=self.channel)

    @property
    def where(self) -> str:
        """The mode in words, as in `hooks.testing.run_modes`."""
        return ("streaming" if self.streaming else "not streaming") + ", in a worker" * self.in_worker


@dataclass(frozen=True)
class Finding:
    """The smallest example found on which the hook is wrong, and the seed that draws it first."""

    example: Example
    problem: str
    seed: int

    def __str__(self) -> str:
        return f"{self.problem}\n  channel {self.example.channel}\n  text    {self.example.text!r}"


class WrongError(Exception):
    """Raised for Hypothesis, which then searches for the smallest example that raises."""


class Fuzzer:
    """One hook, and the secrets that it must not release."""

    def __init__(
        self,
        spec: HookSpec,
        *,
        secrets: Sequence[str] = (),
        texts: Sequence[str] = (),
        options: PipelineOptions | None = None,
        report: Callable[[str], None] = lambda _: None,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """`texts`: further texts to try. `report` gets each text's description before the hook sees the text.
        `beat` is called at each chunk. Raises `HookLoadError`."""
        self._report, self._beat = report, beat
        self._options = options or PipelineOptions()
        loaded = load_hook(spec, self._options.hook_load_timeout)
        self._max_hold = loaded.max_hold
        self._probe = Probe(loaded.wrapped(interrupting(self._options.hook_timeout)))
        self._secrets = secrets
        self._phrases = [*secrets, *texts, *_strings(spec.args), *PHRASES]
        self.num_texts = 0

    def run(self, seconds: float, seed: int, runner: asyncio.Runner | None = None) -> Finding | None:
        until = time.monotonic() + seconds
        running = nullcontext(runner) if runner else asyncio.Runner()
        pipeline = Pipeline([self._probe.hook])
        with tempfile.TemporaryDirectory() as folder, running as runner:
            set_hypothesis_home_dir(folder)  # otherwise Hypothesis writes into the working folder
            try:
                runner.run(pipeline.give_models())
                while not (finding := self._draw(runner, until, seed)) and time.monotonic() < until:
                    seed += 1
            finally:
                set_hypothesis_home_dir(None)
                runner.run(pipeline.aclose())
        return finding

    def _draw(self, runner: asyncio.Runner, until: float, seed: int) -> Finding | None:
        found: list[Finding] = []

        def try_one(example: Example) -> None:
            nonlocal until
            if time.monotonic() > until:
                return
            self.num_texts += 1
            if problem := runner.run(self._problem_of(example)):
                until = until if found else time.monotonic() + MAX_SHRINKING
                found.append(Finding(example, problem, seed))
                raise WrongError

        settings = hypothesis.settings(
            max_examples=NUM_TEXTS,
            phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
            database=None,
            deadline=None,
            verbosity=hypothesis.Verbosity.quiet,
            report_multiple_bugs=False,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        try:
            hypothesis.seed(seed)(settings(hypothesis.given(examples(self._phrases))(try_one)))()
        except (WrongError, Flaky):  # Flaky: time ran out, or the hook's answer to a text changes
            return runner.run(self._smaller(min(found, key=lambda finding: finding.example.size)))
        return None

    async def _smaller(self, finding: Finding) -> Finding:
        """The finding without cuts that are not needed, which Hypothesis may have left."""

        async def problem_at(places: Places) -> str | None:
            return await self._problem_of(replace(finding.example, places=places))

        places = await smallest(finding.example.places, problem_at)
        problem = await problem_at(places) or finding.problem
        return replace(finding, example=replace(finding.example, places=places), problem=problem)

    def _stream_of(self, example: Example) -> Recording:
        needs = self._probe.hook.needs_probe
        return example.stream if needs is None else with_scores(example.stream, needs)

    async def _play(self, example: Example) -> Released:
        stream = cut(self._stream_of(example), example.places)
        seen = f"{example.text!r} on channel {example.channel}, {cut_at(example.places)} ({example.where})"
        self._report(f"it saw {seen}")
        async with opened([self._probe.hook], in_worker=example.in_worker, options=self._options) as opener:
            return await play_once(opener, stream, streaming=example.streaming, beat=self._beat)

    async def _problem_of(self, example: Example) -> str | None:
        self._probe.reset()
        stream = self._stream_of(example)
        whole = await self._play(replace(example, places=(), streaming=True, in_worker=False))
        if isinstance(whole.failure, HookError):
            return f"it fails on the whole text: {failure_of(whole)}"
        if whole.refused is not None:
            return f"it refuses the prompt, {stream.request.messages[0]['content']!r}: {whole.refused}"
        got = await self._play(example)
        if self._probe.hook.depends_on_cuts:
            if isinstance(got.failure, HookError):
                return f"it fails, {cut_at(example.places)} ({example.where}): {failure_of(got)}"
        elif got.outcome != whole.outcome:
            difference = Difference(stream, example.places, example.where, whole, got)
            return f"not the same wherever the text is cut\n{difference}"
        for released, places in ((whole, ()), (got, example.places)):
            for secret in self._secrets:
                if place := leaks.find(secret, released.deltas):
                    where = example.where if released is got else "streaming"
                    return f"{secret!r} is released, in {place}, {cut_at(places)} ({where})"
        held, most = self._probe.num_held, self._max_hold
        if most is not None and held > most:
            return f"it holds {held} characters, and says that it holds {most} at most"
        return None


def examples(phrases: Sequence[str]) -> st.SearchStrategy[Example]:
    some, everywhere = st.sets(st.integers(0, 999), max_size=12), st.none()

    def example(channel: Channel, text: str, drawn: set[int] | None, streaming: bool, worker: int) -> Example:
        every = range(1, len(text) + 1)
        places = every if drawn is None else {1 + number % len(text) for number in drawn if text}
        return Example(channel, text, tuple(sorted(places)), streaming, worker == 9)

    channels, workers = st.sampled_from(CHANNELS), st.integers(0, 9)
    modes = st.sampled_from([True, False])
    return st.builds(example, channels, texts(phrases), some | everywhere, modes, workers)


def _strings(value: object) -> Iterator[str]:
    """All texts in a hook's arguments."""
    match value:
        case str() if value:
            yield value
        case Mapping():
            yield from (text for key in value for text in (*_strings(key), *_strings(value[key])))
        case list() | tuple():
            yield from (text for one in value for text in _strings(one))
