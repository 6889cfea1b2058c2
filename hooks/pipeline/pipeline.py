"""The configured hooks, built once. A `Pipeline` opens a guard for each request."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from engine.local.own_models import OwnModels
from engine.protocol import Delta, GenerationRequest, RequestError, Token
from engine.protocol.did_you_mean import did_you_mean
from engine.protocol.guard_models import GuardModels
from engine.protocol.import_path import describe
from engine.turns.prompt_threads import PromptThreads
from hooks.api.decision import Listener, Mode
from hooks.api.probe_needs import ProbeNeeds
from hooks.decisions.failure import BadVerdictError, HookError
from hooks.decisions.tally import SilentTally, Tallies, Tally
from hooks.loading.alarm import interrupting
from hooks.loading.async_call import GRACE
from hooks.loading.fuse import Run, fuse
from hooks.loading.loader import HookLoadError, HookSpec, LoadedHook, load_hook
from hooks.loading.options import PipelineOptions
from hooks.loading.screen import JointScreen, Screened
from hooks.pipeline.driver import GuardDriver, RepeatingDriver
from hooks.pipeline.open_guard import OpenGuard, PassThrough

logger = logging.getLogger("weir.hooks")


def check_named(request: GenerationRequest, allowed: Collection[str]) -> None:
    """Raise `RequestError` for a hook that the request names and may not (contract 1.3)."""
    for name in request.hooks:
        if name not in allowed:
            hint = did_you_mean(name, allowed) or "."
            raise RequestError(f"The hook '{name}' is not one that a request may name{hint}", param="hooks")


_TEST = "weir-self-test"
_CANARIES = (
    GenerationRequest(
        request_id=_TEST, model=_TEST, endpoint="chat", messages=({"role": "user", "content": "Hello?"},)
    ),
    GenerationRequest(request_id=_TEST, model=_TEST, endpoint="completions", prompts=("Hello,",)),
)


class Pipeline:
    """The hooks that a server was configured with, in order."""

    is_ready = True

    def __init__(
        self,
        hooks: Iterable[LoadedHook] = (),
        allowed: Iterable[LoadedHook] = (),
        options: PipelineOptions | None = None,
        *,
        prompt_threads: PromptThreads | None = None,
    ) -> None:
        """`hooks` run for every request, `allowed` for requests that name them (contract 1.3).
        `prompt_threads`: where thread-safe hooks read prompts that are not short. The
        pipeline closes them."""
        self._prompt_threads = prompt_threads
        self._own_models = OwnModels()
        self.hooks = tuple(hooks)
        self.allowed: Mapping[str, LoadedHook] = {hook.name: hook for hook in allowed}
        self.options = options or PipelineOptions()
        self._screens: dict[tuple[Screened, ...], JointScreen] = {}
        self._runs = fuse(self.hooks, self._screens)
        self.tallies: Tallies = {hook.name: Tally() for hook in self._all}

    @classmethod
    async def load(
        cls,
        specs: Iterable[HookSpec],
        allowed: Iterable[HookSpec] = (),
        options: PipelineOptions | None = None,
        *,
        load: Callable[[HookSpec], LoadedHook] | None = None,
        prompt_threads: PromptThreads | None = None,
    ) -> "Pipeline":
        """Import and build every hook. Raises `HookLoadError` (contract 1.4), and has then closed those that
        were built. `load`: builds one hook, if it is not `load_hook`."""
        options = options or PipelineOptions()
        load = load or partial(load_hook, timeout=options.hook_load_timeout)
        hooks: list[LoadedHook] = []
        more: list[LoadedHook] = []
        try:
            for group, built in ((specs, hooks), (allowed, more)):
                for spec in group:
                    built.append(load(spec))
        except BaseException:
            await cls((*hooks, *more), options=options, prompt_threads=prompt_threads).aclose()
            raise
        return cls(hooks, more, options, prompt_threads=prompt_threads)

    @property
    def _all(self) -> tuple[LoadedHook, ...]:
        return (*self.hooks, *self.allowed.values())

    @property
    def modes(self) -> Mapping[str, Mode]:
        return {hook.name: hook.mode for hook in self._all}

    @property
    def prompt_readers(self) -> frozenset[str]:
        """The names of the hooks that read prompts."""
        return frozenset(hook.name for hook in self._all if hook.on_request is not None)

    @property
    def media_readers(self) -> frozenset[str]:
        """The names of the hooks that look at the images, sounds and files of prompts."""
        return frozenset(hook.name for hook in self._all if hook.reads_media)

    @property
    def alternative_withholders(self) -> frozenset[str]:
        """The names of the hooks that withhold the top alternatives of the content's tokens."""
        return frozenset(hook.name for hook in self._all if hook.withholds_alternatives)

    @property
    def needed_probes(self) -> Mapping[str, ProbeNeeds]:
        return {hook.name: hook.needs_probe for hook in self.hooks if hook.needs_probe is not None}

    @property
    def rewinders(self) -> frozenset[str]:
        return frozenset(hook.name for hook in self._all if hook.may_rewind)

    def open(
        self,
        request: GenerationRequest,
        *,
        can_rewind: bool = False,
        can_ask: bool = False,
        listener: Listener | None = None,
        min_held: float = 0.0,
        num_repeated: int = 0,
    ) -> OpenGuard:
        hooks, runs = list(self.hooks), self._runs
        if request.hooks:
            check_named(request, self.allowed)
            hooks += [self.allowed[name] for name in request.hooks]
            runs = [*self._runs, *self._runs_of(request.hooks)]
        if num_repeated:
            runs = []  # such a guard looks ahead at each question, and each hook is called for that
        if not hooks:
            return PassThrough(request)
        kind = partial(RepeatingDriver, num_repeated=num_repeated) if num_repeated else GuardDriver
        return kind(
            request,
            hooks,
            self.tallies,
            self.options,
            can_rewind=can_rewind,
            can_ask=can_ask,
            listener=listener,
            min_held=min_held,
            prompt_threads=self._prompt_threads,
            runs=runs,
        )

    def _runs_of(self, named: Sequence[str]) -> Iterator[Run]:
        """The runs of allowed hooks. Each is fused alone: an automaton for each order of names has no
        bound."""
        for place, name in enumerate(named, len(self.hooks)):
            for run in fuse([self.allowed[name]], self._screens):
                yield replace(run, start=place)

    async def start(self, models: GuardModels | None = None) -> None:
        """Start every hook, and run its self-test with the hook alone (contract 1.4, 1.9). Raises
        `HookLoadError`, with the hook's own error: no user's text is in the self-test."""
        await self.give_models(models)
        for hook in self._all:
            # A deadline that interrupts plain calls, so that a hanging hook can be named.
            limited = hook.wrapped(interrupting(self.options.hook_timeout))
            try:
                await self._test(limited, {hook.name: SilentTally()}, fuse([limited], self._screens))
            except HookError as error:
                reason = describe(error.__cause__ or error)
                if isinstance(error.__cause__, BadVerdictError):
                    reason += hook.place
                raise HookLoadError(f"hook {hook.name!r} failed its self-test: {reason}") from error

    async def give_models(self, models: GuardModels | None = None) -> None:
        """Start every hook. None: the pipeline loads the models that hooks ask for, and closes them. Raises
        `HookLoadError`."""
        for hook in self._all:
            await hook.start(models or self._own_models)

    @property
    def is_alive(self) -> bool:
        """Whether the models that the pipeline has loaded can serve: if not, only a new process can."""
        return self._own_models.are_alive

    async def _test(self, hook: LoadedHook, tallies: Tallies, runs: list[Run]) -> None:
        """Show the hook two requests, with any result, and then a short stream to its end. A guard that has a
        screen is fused: the screen reads the stream where it can."""
        # No listener gets the canaries' decisions. A hook in shadow mode would fail in silence.
        hook = replace(hook, on_decision=None, is_shadow=False)
        chat, *others = _CANARIES
        guard = GuardDriver(chat, [hook], tallies, self.options, runs=runs)
        if hook.on_request:
            step = await guard.admit(chat)
            if step.refused is not None or step.is_over:
                guard = GuardDriver(chat, [hook], tallies, self.options, runs=runs)
            for request in others:
                await GuardDriver(request, [hook], tallies, self.options).admit(request)
        try:
            prompt = None if hook.needs_probe is None else hook.needs_probe.canary()
            scores = None if prompt is None else prompt.tokens[0]
            for i, word in enumerate(("Hello", ", ", "world.")):
                token = Token(i, word, word.encode(), -0.5, scores=scores)
                delta = Delta(text=word, tokens=(token,), prompt_scores=None if i else prompt)
                await guard.feed(delta)
            await guard.feed(Delta(finish_reason="stop"))
        finally:
            await guard.close()

    async def aclose(self) -> None:
        """Wait a moment for calls that continue past their deadlines, and close the hooks."""
        if self._prompt_threads is not None:
            self._prompt_threads.close()
        late = {task: hook.name for hook in self._all for task in hook.late}
        if late:
            _, running = await asyncio.wait(late, timeout=GRACE / 2)  # a worker must be gone within one
            for task in running:
                logger.warning("hook %s does not end", late[task])
        for hook in self._all:
            await hook.close(self.options.hook_timeout)
        await self._own_models.aclose()
