"""Runs guards: `admit` before the engine, `Guarding` after it, and the driver of the guard's machine.

The driver calls plain hooks, awaits async ones, and reports decisions to listeners. The time of calls,
cancellation and deadlines are here; `hooks.loading.async_call` has the deadline of one async call. The
service and the hook workers both use it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from copy import copy
from functools import partial
from operator import attrgetter
from time import monotonic
from typing import Any

from engine.protocol import Delta, EngineError, GenerationRequest, QueueFullError, RequestError, Tokenizer
from engine.protocol.prompt_size import prompt_size
from engine.streams.flow import Stage
from engine.turns.prompt_threads import PromptThreads
from hooks.api.decision import Held, Listener
from hooks.decisions.failure import HookError, HookFailure, count_failure
from hooks.decisions.log import DecisionLog
from hooks.decisions.tally import FIRST_BUCKET, Tallies, Tally
from hooks.loading.async_call import LateAndCancelledError
from hooks.loading.fuse import Run
from hooks.loading.loader import LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.admission import RefusedError
from hooks.pipeline.ask import Ask, Machine, Question, Reply, Step
from hooks.pipeline.asking_stage import AskingStage, Decide
from hooks.pipeline.guard import Guard
from hooks.pipeline.open_guard import OpenGuard, PassThrough
from hooks.prompts.texts import without_unread
from hooks.prompts.token_ids import has_token_ids, in_ids, in_text

READ_ON_THREAD = 512
"""A prompt of at least this many characters is read on a thread. A guard takes 2 to 4 microseconds for each
character, and many prompts may come at once."""


async def admit(guard: OpenGuard, tokenizer: Tokenizer | None = None) -> GenerationRequest | list[Delta]:
    """Show the guard's request to its hooks (contract 8.1).

    Returns the request for the engine, or the answer that a hook gave in the engine's place. `tokenizer`: the
    engine's, to show prompts of token ids as text. Hooks that read no prompts are shown them as text too, for
    `Chunk.lead`. Raises `RefusedError`, `HookError`, and `RequestError` for a prompt that cannot be shown.
    """
    asked = guard.request
    shows_ids = bool(asked.prompts) and not isinstance(guard, PassThrough) and has_token_ids(asked)
    if not (guard.reads_prompts or shows_ids):
        return asked
    try:
        shown = await in_text(asked, tokenizer)
    except RequestError:
        if guard.decides_prompts:
            raise
        return asked  # no hook in force reads prompts, so nothing is refused
    step = await guard.admit(shown)
    if step.refused is not None:
        raise RefusedError(step.refused, guard.request, step.refused_at)
    if step.is_over:
        return step.released
    admitted = await in_ids(guard.request, asked, shown, tokenizer)
    return without_unread(admitted) if guard.decides_prompts else admitted


def in_own_words(error: RequestError | QueueFullError, guard: OpenGuard) -> RequestError | QueueFullError:
    """The error without another server's words, if hooks must see all text first (contract 5.3)."""
    if error.unquoted is None or isinstance(guard, PassThrough):
        return error
    return copy(error.unquoted)  # once raised, it refers to `error`, which must not refer back to it


class Guarding(Stage):
    """A stage that feeds each released delta to the next one at once, and closes the guard at the end.

    Each output's last delta, and only that, has a finish reason. Raises `HookError`, and `EngineError` for an
    invalid delta.
    """

    __slots__ = ("_asking", "_decide", "_guard", "_step")

    def __init__(self, guard: OpenGuard, decide: Decide | None = None) -> None:
        """`decide`: has a person decide on a tool call. None: the guard was opened without `can_ask`."""
        self._guard = guard
        self._decide = decide
        self._asking: AskingStage | None = None
        self._step: Awaitable[Step] | None = None
        """The step that is waited for, or was."""

    def feed(self, delta: Delta) -> None:
        step = self._guard.feed(delta)
        if isinstance(step, Step):
            self._go_on(step)
        else:
            self._step = step
            self.flow.wait_for(self._wait(step))

    async def _wait(self, step: Awaitable[Step]) -> None:
        self._go_on(await step)

    def _go_on(self, step: Step) -> None:
        if step.questions:
            self._ask(step.questions)
        for released in step.released:
            self.next.feed(released)
        if step.is_over:
            self.flow.finish()
        elif step.rewind is not None:
            self.source.rewind(step.rewind)

    def _ask(self, questions: Sequence[Question]) -> None:
        """Ask a person. The first question of a request puts the stage of the questions after this one."""
        if self._asking is None:
            assert self._decide is not None
            self._asking = AskingStage(self._decide)
            self._asking.follow(self)
        for question in questions:
            self._asking.ask(question)

    async def close(self) -> None:
        if isinstance(self._step, Coroutine):
            self._step.close()  # nobody awaits it if the flow ended before
        try:
            if self._asking is not None:
                await self._asking.close()
        finally:
            await self._guard.close()


class GuardDriver:
    """A guard whose hooks run in this process. Implements `OpenGuard`."""

    def __init__(
        self,
        request: GenerationRequest,
        hooks: list[LoadedHook],
        tallies: Tallies,
        options: PipelineOptions,
        *,
        can_rewind: bool = False,
        can_ask: bool = False,
        listener: Listener | None = None,
        min_held: float = 0.0,
        prompt_threads: PromptThreads | None = None,
        runs: Sequence[Run] = (),
    ) -> None:
        """`tallies`: the counts, by hook. `can_rewind`, `can_ask`, `min_held`: see `GuardFactory.open`.
        `listener`: receives the decisions, as hooks that listen do. `prompt_threads`: where thread-safe hooks
        read prompts that are not short; None: in this thread. `runs`: the hooks that are fused."""
        self._tallies = tallies
        self._timeout = options.hook_timeout
        self._prompt_threads = prompt_threads
        self._listeners = [*filter(attrgetter("on_decision"), hooks)]
        self._counters = [*filter(attrgetter("on_usage"), hooks)]
        self.reads_prompts = self.decides_prompts = self.reads_media = self.withholds_alternatives = False
        for hook in hooks:
            if hook.withholds_alternatives and not hook.is_shadow:
                self.withholds_alternatives = True
            self.reads_media = self.reads_media or hook.reads_media
            if hook.on_request is not None:
                self.reads_prompts = True
                self.decides_prompts = self.decides_prompts or not hook.is_shadow
        self._listener = listener
        self._log = DecisionLog(0.0 if self._listeners else min_held) if self._listeners or listener else None
        self._guard = Guard(
            request,
            hooks,
            tallies,
            options,
            can_rewind=can_rewind,
            can_ask=can_ask,
            decisions=self._log,
            runs=runs,
        )
        self.may_rewind = self._guard.may_rewind

    @property
    def request(self) -> GenerationRequest:
        return self._guard.guarded.request

    async def admit(self, shown: GenerationRequest) -> Step:
        size = 0 if self._prompt_threads is None else prompt_size(shown)
        return await self._run(self._guard.admit(shown), size if size >= READ_ON_THREAD else 0)

    async def look_ahead(self) -> str | None:
        asking = self._guard.look_ahead()
        try:
            while True:
                ask = next(asking)  # no copyable hook is async
                ask.reply = self._call(ask.tally, ask.method, ask.shown)
        except StopIteration as end:
            text: str | None = end.value
            return text

    def held(self) -> Iterable[Held]:
        return self._guard.held()

    def feed(self, delta: Delta) -> Step | Awaitable[Step]:
        machine, log = self._guard.feed(delta), self._log
        if log is not None:
            log.now = monotonic()
        yielded = self._run_plain(machine, 0)
        if type(yielded) is not Step:
            return self._wait(machine, yielded, 0)
        return yielded if yielded.error is None and not log else self._ended(yielded)

    async def close(self) -> None:
        # A listener that fails now is counted and logged; nothing is left to end.
        try:
            with contextlib.suppress(HookError):
                await self._run(self._guard.close())
        finally:
            if self._counters:
                self._tell_usage()

    def _tell_usage(self) -> None:
        """Tell the hooks that count tokens, once (contract 8.18)."""
        counters, self._counters, usage = self._counters, [], self._guard.guarded.usage
        for hook in counters if usage is not None else ():
            assert hook.on_usage is not None
            tally = self._tallies[hook.name]
            reply = self._call(tally, partial(hook.on_usage, self.request), usage)
            if isinstance(reply, HookFailure):
                count_failure(hook, tally, reply.error)

    def _run(self, machine: Machine, size: int = 0) -> Step | Awaitable[Step]:
        """Answer the machine's questions. Listeners receive the decisions before anything released leaves.

        Waits only for a hook that must be awaited. Raises the step's error, or `HookError` for a listener
        that failed. `size`: the characters of a prompt, if it may be read on a thread; otherwise 0.
        """
        if self._log is not None:
            self._log.now = monotonic()
        yielded = self._run_plain(machine, size)
        return self._ended(yielded) if isinstance(yielded, Step) else self._wait(machine, yielded, size)

    def _run_plain(self, machine: Machine, size: int) -> Step | Ask:
        """Run the machine and call plain hooks. Returns the step, or the first question to be awaited."""
        for yielded in machine:
            if type(yielded) is Step:
                return yielded
            assert isinstance(yielded, Ask)
            if yielded.is_async or (size and yielded.may_run_on_thread):
                return yielded
            yielded.reply = self._call(yielded.tally, yielded.method, yielded.shown)
        raise RuntimeError("the guard's machine ends with a step")

    async def _wait(self, machine: Machine, yielded: Step | Ask, size: int) -> Step:
        """Answer the machine's questions up to its step. If one last call of an aborted stream is cancelled,
        the other last calls still come."""
        cancelled: asyncio.CancelledError | None = None
        while isinstance(yielded, Ask):
            ask = yielded
            try:
                ask.reply = await (self._await(ask) if ask.is_async else self._call_on_thread(ask, size))
            except asyncio.CancelledError as error:
                if not ask.is_aborted:
                    ask.is_abandoned = isinstance(error, LateAndCancelledError)
                    machine.close()
                    raise
                cancelled, ask.reply = error, None
            yielded = self._run_plain(machine, size)
        return self._ended(yielded, cancelled)

    def _ended(self, step: Step, cancelled: asyncio.CancelledError | None = None) -> Step:
        failed = self._report(self._log) if self._log else None
        if cancelled is not None:
            raise cancelled
        if failed is not None and not isinstance(step.error, EngineError):
            raise failed
        if step.error is not None:
            raise step.error
        return step

    def _call(self, tally: Tally, method: Callable[[Any], Any], shown: Any) -> Reply:
        """Call a plain method. It cannot be interrupted here: it is late once it returns."""
        started = monotonic()
        reply: Reply
        try:
            reply = method(shown)
        except BaseException as error:  # noqa: BLE001 - any error of a hook fails its request (contract 4.1)
            reply = HookFailure(error)
        if self._count(tally, started) <= self._timeout or isinstance(reply, HookFailure):
            return reply
        return HookFailure.late()

    async def _await(self, ask: Ask) -> Reply:
        started = monotonic()
        try:
            return await ask.hook.awaited(ask.method(ask.shown), self._timeout)
        except BaseException as error:
            if is_cancelled(error):
                raise
            return HookFailure(error)
        finally:
            self._count(ask.tally, started)

    async def _call_on_thread(self, ask: Ask, size: int) -> Reply:
        """Call a plain `on_request` on a thread. It is late once it returns, as in `_call`."""
        assert self._prompt_threads is not None
        work = partial(_timed, ask.method, ask.shown)
        reply, seconds = await self._prompt_threads.run(work, size=size, caller=self.request.caller)
        self._count(ask.tally, monotonic() - seconds)
        return reply if seconds <= self._timeout or isinstance(reply, HookFailure) else HookFailure.late()

    def _count(self, tally: Tally, started: float) -> float:
        """Count a call that began at `started`. Returns the seconds that it took."""
        now = monotonic()
        seconds = now - started
        tally.seconds += seconds
        tally.num_calls += 1
        if seconds > FIRST_BUCKET:
            tally.count_slow(seconds)
        if self._log is not None:
            self._log.now = now
        return seconds

    def _report(self, log: DecisionLog) -> HookError | None:
        """Report to every listener. Returns the error of the last that failed; a failed one gets no more."""
        decisions = log.drain()
        if self._listener is not None:
            for decision in decisions:
                self._listener(decision)
        failed: HookError | None = None
        for listener in self._listeners[:]:
            assert listener.on_decision is not None
            tally, method = self._tallies[listener.name], listener.on_decision
            replies = (self._call(tally, method, decision) for decision in decisions)
            failure = next((reply for reply in replies if isinstance(reply, HookFailure)), None)
            if failure is not None:
                self._listeners.remove(listener)
                count_failure(listener, tally, failure.error)
                if not listener.is_shadow:
                    failed = HookError(listener.name)
                    failed.__cause__ = failure.error
        return failed


class RepeatingDriver(GuardDriver):
    """A guard for text that another guard has judged before, and that is read once more.

    Listeners receive no decision about the text that was judged before, and no verdict on it is counted
    twice. Ends and failures are the exception: after one, there is no second reading, so none came before."""

    def __init__(
        self,
        request: GenerationRequest,
        hooks: list[LoadedHook],
        tallies: Tallies,
        options: PipelineOptions,
        *,
        num_repeated: int,
        **others: Any,
    ) -> None:
        """`num_repeated`: the characters of the only output that were judged before. They come as deltas of
        their own. `others`: see `GuardDriver`."""
        own = {hook.name: Tally() for hook in hooks}
        super().__init__(request, hooks, own, options, **others)
        self._own, self._total = own, tallies
        self._num_repeated = num_repeated

    async def feed(self, delta: Delta) -> Step:
        try:
            return await super().feed(delta)
        finally:
            self._add_counts()
            self._num_repeated -= len(delta.text)

    async def close(self) -> None:
        self._num_repeated = 0
        await super().close()
        self._add_counts()

    def _report(self, log: DecisionLog) -> HookError | None:
        if self._num_repeated > 0:
            log.forget_repeated(0)
        return super()._report(log)

    def _add_counts(self) -> None:
        for name, tally in self._own.items():
            counts = tally.drain()
            self._total[name].add(counts.repeated() if self._num_repeated > 0 else counts)


def _timed(method: Callable[[Any], Any], shown: Any) -> tuple[Reply, float]:
    """The reply of a plain method, and the seconds that it took. Runs on any thread."""
    started = monotonic()
    try:
        reply: Reply = method(shown)
    except BaseException as error:  # noqa: BLE001 - see `GuardDriver._call`
        reply = HookFailure(error)
    return reply, monotonic() - started


def is_cancelled(error: BaseException) -> bool:
    """Whether the request is being cancelled, rather than an async hook raising this by itself."""
    task = asyncio.current_task()
    is_cancelling = task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit) or (isinstance(error, asyncio.CancelledError) and is_cancelling)
