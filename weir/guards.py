"""Guards for a program's own texts: made once, and opened for each answer."""

import inspect
import json
import math
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Self, overload

from engine.protocol import Delta, GenerationRequest
from hooks.api.decision import Decision
from hooks.loading.coroutines import run
from hooks.loading.given import Hooks, OneHook, load_one
from hooks.loading.loader import LoadedHook
from hooks.loading.options import PipelineOptions
from hooks.pipeline.admission import RefusedError as PromptRefusedError
from hooks.pipeline.driver import admit
from hooks.pipeline.open_guard import OpenGuard
from hooks.pipeline.pipeline import Pipeline
from weir.answer import Answer, RefusedError, Text
from weir.feeding import Item
from weir.running import LoopRunner, PlainRunner, Runner
from weir.streams import GuardedIterator, GuardedStream

OnDecision = Callable[[Decision], object]
_numbers = count(1)


class Guards:
    """Hooks that are built once, and guard any number of answers, at the same time too.

    `hooks`: one or several, in order. Each is a short name (`"pii"`), an import path
    (`"acme.guards:Strict"`), a `HookSpec` with arguments, a class without arguments, or an instance. An
    instance of your own is never closed here. `options`: the hooks' deadline and other options of all hooks.
    `on_decision`: called with each decision before anything that follows from it is released. Decisions have
    the withheld text: do not log them.

    The clauses of the contract hold here as in the proxy: a hook is built once and tested before its first
    use (1.1, 1.4, 1.6), its arguments are checked (1.8), it sees every piece in order (2.3), also of a whole
    text (2.5), it has exactly one last call for each stream (2.6), and text and tokens are released together
    (3.6). A hook that fails or is late ends its answer, closed, with `HookError`; others go on (4.1). What is
    promised of HTTP, engines and several servers has no meaning here. Some clauses hold in part:

    - 2.9: nobody says where a stream of strings was cut. `may_be_cut` says that it may have been.
    - 3.21: nobody can be asked about a tool call, so `ask` acts as `suppress`.
    - 8.3: no model can go back, so `rewind` acts as `terminate`.
    - 8.12: plain hooks run in the thread that asks, one call at a time. A long prompt is read there, too.
    - 1.9: hooks that ask for models load their own, by folder or hub name.

    Hooks that await nothing need no event loop, and every method serves them, in async programs too. If a
    hook is async, its guards belong to the first event loop that uses them, and there the async forms must be
    used. Without an event loop, the guards run in a thread with one of their own.

    Raises `HookLoadError` for a hook that cannot be imported, built or called, and `ValueError` for no hooks:
    no text passes because nobody reads it. If a hook is async, the first use raises what its start or its
    self-test raises.
    """

    def __init__(
        self, hooks: Hooks, *, options: PipelineOptions | None = None, on_decision: OnDecision | None = None
    ) -> None:
        some: Sequence[OneHook] = (
            hooks if isinstance(hooks, Sequence) and not isinstance(hooks, str) else [hooks]
        )
        if not some:
            raise ValueError("guards need at least one hook")
        self._on_decision = on_decision
        loaded: list[LoadedHook] = []
        self._runner: Runner = PlainRunner()
        self._is_closed = False
        try:
            for hook in some:
                loaded.append(load_one(hook))  # noqa: PERF401 - those that are built are closed
            self._pipeline = Pipeline(loaded, options=options)
            self.hooks: Sequence[LoadedHook] = loaded
            """The hooks, loaded, in order."""
            if any(map(_is_async, loaded)):
                self._runner = LoopRunner(self._pipeline.start)
            else:
                self._runner.run(self._pipeline.start)
        except BaseException:
            run(Pipeline(loaded, options=options).aclose())
            raise

    def open(self, request: GenerationRequest, *, may_be_cut: bool = False) -> Answer:
        """The guard of the answer to a request, whose prompt the hooks are not shown: `admit` shows it."""
        decisions: list[Decision] = []
        return Answer(self._opened(request, decisions), self._runner, decisions, may_be_cut=may_be_cut)

    def admit(self, request: GenerationRequest, *, may_be_cut: bool = False) -> Answer:
        """As `open`, once the hooks that read prompts have read it. Raises `RefusedError` and `HookError`."""
        decisions: list[Decision] = []
        guard = self._opened(request, decisions)
        try:
            admitted = self._runner.run(admit, guard)
        except PromptRefusedError as error:
            raise self._refused(error, guard, decisions) from None
        return self._answer(guard, admitted, decisions, may_be_cut)

    async def aadmit(self, request: GenerationRequest, *, may_be_cut: bool = False) -> Answer:
        """As `admit`, for hooks of which one is async."""
        decisions: list[Decision] = []
        guard = self._opened(request, decisions)
        try:
            admitted = await self._runner.wait(admit, guard)
        except PromptRefusedError as error:
            raise self._refused(error, guard, decisions) from None
        return self._answer(guard, admitted, decisions, may_be_cut)

    def _opened(self, request: GenerationRequest, decisions: list[Decision]) -> OpenGuard:
        if self._is_closed:
            raise RuntimeError("these guards are closed")
        listener = decisions.append
        if (also := self._on_decision) is not None:

            def listener(decision: Decision) -> None:
                decisions.append(decision)
                also(decision)

        return self._pipeline.open(request, listener=listener, min_held=math.inf)

    def _answer(
        self,
        guard: OpenGuard,
        admitted: GenerationRequest | list[Delta],
        decisions: list[Decision],
        may_be_cut: bool,
    ) -> Answer:
        if isinstance(admitted, GenerationRequest):
            return Answer(guard, self._runner, decisions, may_be_cut=may_be_cut, request=admitted)
        text = "".join(delta.text for delta in admitted)
        reason = next(str(delta.stop_reason) for delta in reversed(admitted) if delta.is_blocked)
        raise RefusedError(reason, guard.request, None, text, decisions)

    def _refused(
        self, error: PromptRefusedError, guard: OpenGuard, decisions: list[Decision]
    ) -> RefusedError:
        return RefusedError(error.reason, guard.request, error.place, None, decisions)

    def prompt(self, prompt: str, *, caller: str = "", may_be_cut: bool = False) -> Answer:
        """Show the hooks a prompt. The result has the prompt for the model, and guards the answer to it:
        values that the prompt's placeholders stand for come back there (contract 9).

        `caller`: whose prompt it is: callers have different placeholders for the same value. `may_be_cut`:
        whether somebody who is not trusted may choose where the answer ends, as by a limit of its tokens
        (2.9). Raises `RefusedError` if a hook refuses the prompt, and `HookError`.
        """
        return self.admit(_completion(prompt, caller), may_be_cut=may_be_cut)

    async def aprompt(self, prompt: str, *, caller: str = "", may_be_cut: bool = False) -> Answer:
        """As `prompt`, for hooks of which one is async."""
        return await self.aadmit(_completion(prompt, caller), may_be_cut=may_be_cut)

    def messages(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        tools: Iterable[Mapping[str, Any]] = (),
        extra: Mapping[str, Any] = {},
        caller: str = "",
        may_be_cut: bool = False,
    ) -> Answer:
        """As `prompt`, for a chat's messages and tools, in the form of OpenAI's chat completions.

        `extra`: other fields for the model, as JSON has them. Hooks read all their texts (8.6), and
        `request.extra` of the result has them as the hooks let them go on.
        """
        return self.admit(_chat(messages, tools, extra, caller), may_be_cut=may_be_cut)

    async def amessages(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        tools: Iterable[Mapping[str, Any]] = (),
        extra: Mapping[str, Any] = {},
        caller: str = "",
        may_be_cut: bool = False,
    ) -> Answer:
        """As `messages`, for hooks of which one is async."""
        return await self.aadmit(_chat(messages, tools, extra, caller), may_be_cut=may_be_cut)

    @overload
    def stream(self, source: AsyncIterable[Item], *, may_be_cut: bool = False) -> GuardedStream[str]: ...
    @overload
    def stream(self, source: Iterable[Item], *, may_be_cut: bool = False) -> GuardedIterator[str]: ...
    def stream(self, source: Any, *, may_be_cut: bool = False) -> GuardedStream[str] | GuardedIterator[str]:
        """Guard an answer of which no hook has seen the prompt: see `Answer.stream`."""
        answer = self.open(_chat((), (), {}, ""), may_be_cut=may_be_cut)
        guarded: GuardedStream[str] | GuardedIterator[str] = answer.stream(source)
        return guarded

    @overload
    def deltas(self, source: AsyncIterable[Item], *, may_be_cut: bool = False) -> GuardedStream[Delta]: ...
    @overload
    def deltas(self, source: Iterable[Item], *, may_be_cut: bool = False) -> GuardedIterator[Delta]: ...
    def deltas(
        self, source: Any, *, may_be_cut: bool = False
    ) -> GuardedStream[Delta] | GuardedIterator[Delta]:
        """As `stream`: see `Answer.deltas`."""
        answer = self.open(_chat((), (), {}, ""), may_be_cut=may_be_cut)
        guarded: GuardedStream[Delta] | GuardedIterator[Delta] = answer.deltas(source)
        return guarded

    def text(self, text: str, *, may_be_cut: bool = False) -> Text:
        """Guard a whole text: see `Answer.text`."""
        return self.open(_chat((), (), {}, ""), may_be_cut=may_be_cut).text(text)

    async def atext(self, text: str, *, may_be_cut: bool = False) -> Text:
        """As `text`, for hooks of which one is async."""
        return await self.open(_chat((), (), {}, ""), may_be_cut=may_be_cut).atext(text)

    def close(self) -> None:
        """Close the hooks that were built here (contract 1.7). Closing twice is fine."""
        if not self._is_closed:
            self._is_closed = True
            self._runner.run(self._pipeline.aclose)
            self._runner.close()

    async def aclose(self) -> None:
        """As `close`, for hooks of which one is async."""
        if not self._is_closed:
            self._is_closed = True
            await self._runner.wait(self._pipeline.aclose)
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@overload
def guard(source: AsyncIterable[Item], hooks: Hooks | Guards) -> GuardedStream[str]: ...
@overload
def guard(source: Iterable[Item], hooks: Hooks | Guards) -> GuardedIterator[str]: ...
def guard(source: Any, hooks: Hooks | Guards) -> GuardedStream[str] | GuardedIterator[str]:
    """The text that hooks release of one stream of strings: see `Guards.stream`, and `Guards` for the hooks.

    Building the hooks takes longer than guarding an answer, up to a second. A program that guards more than
    one answer makes `Guards` once, and gives them here or uses their own methods.
    """
    guards = hooks if isinstance(hooks, Guards) else Guards(hooks)
    guarded: GuardedStream[str] | GuardedIterator[str] = guards.stream(source)
    return guarded


def json_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that JSON has, for `extra` of `Guards.messages`. Others, as classes, have no text for a
    model. The headers of a request are left out: its keys are in them."""
    return {name: value for name, value in fields.items() if name not in _HEADERS and _is_json(value)}


_HEADERS = ("extra_headers", "headers")


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _completion(prompt: str, caller: str) -> GenerationRequest:
    return GenerationRequest(
        request_id=_new_id(), model="", endpoint="completions", prompts=(prompt,), caller=caller
    )


def _chat(
    messages: Iterable[Mapping[str, Any]],
    tools: Iterable[Mapping[str, Any]],
    extra: Mapping[str, Any],
    caller: str,
) -> GenerationRequest:
    return GenerationRequest(
        request_id=_new_id(),
        model="",
        endpoint="chat",
        messages=tuple(messages),
        tools=tuple(tools),
        extra=extra,
        caller=caller,
        stream=True,
    )


def _new_id() -> str:
    return f"weir-{next(_numbers)}"


def _is_async(hook: LoadedHook) -> bool:
    """Whether the hook has a method that may await something."""
    closes = inspect.iscoroutinefunction(hook.on_close)
    return hook.is_async or hook.is_request_async or hook.on_start is not None or closes
