"""Hooks by import path: `pkg.module.Class`, `pkg.module:Class` or `path/to/file.py:Class` (contract 1.1).

A guard that ships also has a short name.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pkgutil import extend_path
from typing import Any, ClassVar

from pydantic import ConfigDict

from engine.protocol.deltas import Usage
from engine.protocol.did_you_mean import did_you_mean
from engine.protocol.guard_models import GuardModels
from engine.protocol.import_path import ImportPathError, describe, find_class, search_working_folder_last
from engine.protocol.parts import Kind, PartError
from engine.protocol.request import GenerationRequest
from hooks.api.decision import Decision, Mode
from hooks.api.probe_needs import ProbeNeeds
from hooks.loading.alarm import interrupting
from hooks.loading.arguments import ArgumentError, check_arguments
from hooks.loading.async_call import AsyncCall
from hooks.loading.screen import Screened

logger = logging.getLogger("weir.hooks")

LOAD_TIMEOUT = 60.0

SHORT_NAMES = {
    "audit": "hooks.builtin.audit.Audit",
    "classifier": "hooks.builtin.classifier.Classifier",
    "injection": "hooks.builtin.injection.Injection",
    "json_schema": "hooks.builtin.json_schema.JsonSchema",
    "judge": "hooks.builtin.judge.Judge",
    "links": "hooks.builtin.links.Links",
    "media": "hooks.builtin.media.Media",
    "names": "hooks.builtin.names.Names",
    "patterns": "hooks.builtin.patterns.Patterns",
    "phrases": "hooks.builtin.phrases.Phrases",
    "pii": "hooks.builtin.pii.Pii",
    "presidio": "hooks.builtin.presidio.Presidio",
    "probe": "hooks.builtin.probe.Probe",
    "prompt_leak": "hooks.builtin.prompt_leak.PromptLeak",
    "remote": "hooks.builtin.remote.Remote",
    "repetition": "hooks.builtin.repetition.Repetition",
    "secrets": "hooks.builtin.secrets.Secrets",
    "stream_guard": "hooks.builtin.stream_guard.StreamGuard",
    "tools": "hooks.builtin.tools.Tools",
    "wrap": "hooks.builtin.wrap.Wrap",
}
GUARDS = Kind("guard", "weir.hooks", SHORT_NAMES)
"""A package adds a short name by an entry point to a class."""


class HookLoadError(RuntimeError):
    """A hook cannot be imported, built or called: the server must not start without it (contract 1.4)."""


@dataclass(frozen=True, slots=True)
class HookSpec:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    path: str
    args: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments for its `__init__`."""
    mode: Mode = "enforce"
    """shadow: its verdicts are counted, and have no effect (contract 3.10)."""
    name: str | None = None
    """The name in metrics, logs and requests; None: the path."""

    @property
    def label(self) -> str:
        return self.name or self.path


@dataclass(frozen=True, slots=True)
class LoadedHook:
    """A hook's instance, ready to be called."""

    name: str
    call: Callable[..., Any]
    is_async: bool
    is_shadow: bool = False
    on_request: Callable[..., Any] | None = None
    """The method that reads prompts; None: the hook has none."""
    is_request_async: bool = False
    takes_state: bool = False
    """Whether `on_request` takes the hook's state for the request (contract 2.12)."""
    on_decision: Callable[[Decision], object] | None = None
    """The method that gets decisions; None: the hook has none."""
    on_usage: Callable[[GenerationRequest, Usage], object] | None = None
    """The method that gets the tokens of a request that has ended; None: the hook has none."""
    on_start: Callable[[GuardModels], Awaitable[None]] | None = None
    """The method that gets models before the first call; None: the hook has none."""
    on_close: Callable[[], object] | None = None
    """Plain or async."""
    may_rewind: bool = False
    """Whether the hook may return `rewind`."""
    is_thread_safe: bool = False
    """Whether `on_request` may run on another thread, at the same time as the hook's other calls (contract
    8.12)."""
    reads_media: bool = False
    """Whether `on_request` looks at the images, sounds and files of a prompt."""
    withholds_alternatives: bool = False
    """Whether the hook withholds the top alternatives of the content's tokens."""
    is_copyable: bool = False
    """Whether a copy of the hook's state for a stream is as good as the state (contract 3.19)."""
    reads_text: bool = True
    """Whether the hook reads `Chunk.text` (contract 2.15)."""
    judges: bool = False
    """Whether the hook reports how much of the released text is judged (contract 3.17)."""
    needs_probe: ProbeNeeds | None = None
    """The hook's needs of the guarded model's probes; None: it has none."""
    max_hold: int | None = None
    """The most characters that the hook leaves undecided. None: the hook declares no bound."""
    place: str = ""
    """The file and the line of its `__call__`, in brackets."""
    screened: Screened | None = None
    """The hook's instance, if one automaton may read text in its place (`hooks.loading.fuse`)."""
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    """Puts a limit round a plain method of the hook's, and round what reads in its place. None: there is
    none."""
    late: set[asyncio.Task[None]] = field(default_factory=set, compare=False, repr=False)
    """Calls that continue though their deadlines have passed."""

    @classmethod
    def of(cls, name: str, instance: Any, *, is_shadow: bool = False) -> "LoadedHook":
        """Make one from a hook's instance or a function. Raises `TypeError` for methods and attributes of
        the wrong kind."""
        names = ("on_request", "on_decision", "on_usage", "start", "close")
        methods = [getattr(instance, one, None) for one in names]
        on_request, on_decision, on_usage, on_start, on_close = methods
        if any(method is not None and not callable(method) for method in methods):
            raise TypeError(f"{', '.join(names)} are methods")
        for plain, method in (("on_decision", on_decision), ("on_usage", on_usage)):
            if inspect.iscoroutinefunction(method):
                raise TypeError(f"{plain} is a plain method")
        if on_start is not None and not inspect.iscoroutinefunction(on_start):
            raise TypeError("start is an async method")
        _check_call("__call__(chunk)", instance, 1)
        if on_request is not None:
            _check_call("on_request(request)", on_request, 1, 2)
        if on_decision is not None:
            _check_call("on_decision(decision)", on_decision, 1)
        if on_usage is not None:
            _check_call("on_usage(request, usage)", on_usage, 2)
        call = instance if inspect.isroutine(instance) else type(instance).__call__
        is_async = inspect.iscoroutinefunction(call)
        return cls(
            name,
            instance,
            is_async,
            is_shadow,
            on_request,
            inspect.iscoroutinefunction(on_request),
            on_request is not None and _takes_two(on_request),
            on_decision,
            on_usage,
            on_start,
            on_close,
            bool(getattr(instance, "may_rewind", False)),
            bool(getattr(instance, "thread_safe", False)),
            bool(getattr(instance, "reads_media", False)),
            bool(getattr(instance, "withholds_alternatives", False)),
            not is_async and bool(getattr(instance, "copyable", False)),
            bool(getattr(instance, "reads_text", True)),
            bool(getattr(instance, "judges", False)),
            getattr(instance, "needs_probe", None),
            _max_hold_of(instance),
            _line_of(instance),
            screened=instance if isinstance(instance, Screened) and instance.screen is not None else None,
        )

    @property
    def mode(self) -> Mode:
        return "shadow" if self.is_shadow else "enforce"

    @property
    def depends_on_cuts(self) -> bool:
        """Whether the hook may release different text if the stream is cut differently. A judge's verdict
        depends on the texts that it is shown one by one. A probe's scores come with the tokens."""
        return self.judges and self.needs_probe is None

    def wrapped(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> "LoadedHook":
        """The same hook, with its plain methods replaced by `wrap(method)`."""
        hook = self if self.is_async else replace(self, call=wrap(self.call), wrap=wrap)
        if hook.on_decision is not None:
            hook = replace(hook, on_decision=wrap(hook.on_decision))
        if hook.on_usage is not None:
            hook = replace(hook, on_usage=wrap(hook.on_usage))
        if hook.on_request is None or hook.is_request_async:
            return hook
        return replace(hook, on_request=wrap(hook.on_request))

    async def start(self, models: GuardModels) -> None:
        """Give the hook its models (contract 1.9). Raises `HookLoadError`, with the hook's own error."""
        if self.on_start is None:
            return
        try:
            await self.on_start(models)
        except (Exception, SystemExit) as error:
            raise HookLoadError(f"hook {self.name!r} could not be started: {describe(error)}") from error

    async def close(self, seconds: float) -> None:
        """Call the hook's `on_close`. An error is logged. The hook has `seconds`, if it is async or
        `interrupting` works here."""
        if self.on_close is None:
            return
        try:
            with interrupting(seconds):
                closing = self.on_close()
            if inspect.iscoroutine(closing):
                await self.awaited(closing, seconds)
        except Exception as error:  # noqa: BLE001 - the other hooks must be closed too
            logger.error("hook %s could not be closed: %s", self.name, type(error).__name__)

    async def awaited(self, coroutine: Coroutine[Any, Any, Any], seconds: float) -> Any:
        """The result of one of the hook's coroutines. Raises as `AsyncCall.within` does."""
        call = AsyncCall(coroutine)
        try:
            return await call.within(seconds)
        finally:
            if call.rest is not None:
                logger.warning("hook %s goes on past its deadline", self.name)
                self.late.add(call.rest)
                call.rest.add_done_callback(self.late.discard)


def _check_call(wanted: str, method: Callable[..., Any], *counts: int) -> None:
    """Raise `TypeError`, with the method's own line, if it does not take one of these counts of arguments."""
    try:
        signature = inspect.signature(method)
    except ValueError:  # it is not written in Python
        return
    for count in counts:
        with suppress(TypeError):
            signature.bind(*[None] * count)
            return
    name = wanted.partition("(")[0]
    raise TypeError(f"it is called as {wanted}, and is written as {name}{signature}{_line_of(method)}")


def _line_of(method: Callable[..., Any]) -> str:
    """The file and the line where a method, or a hook's `__call__`, is defined. Empty: not in Python."""
    written: object = method if inspect.isroutine(method) else type(method).__call__
    code = getattr(written, "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


def _max_hold_of(instance: Any) -> int | None:
    given = getattr(instance, "max_hold", None)
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 0):
        raise TypeError(f"max_hold is a number of characters, 0 or more, not {given!r}")
    return given


def _takes_two(method: Callable[..., Any]) -> bool:
    """Whether the bound method takes a second positional argument that has no default."""
    parameters = [*inspect.signature(method).parameters.values()][1:2]
    return bool(parameters) and parameters[0].kind < 2 and parameters[0].default is parameters[0].empty


def load_hook(spec: HookSpec, timeout: float = LOAD_TIMEOUT) -> LoadedHook:
    """Import the class and build its one instance, for `timeout` seconds where `interrupting` works. Raises
    `HookLoadError` with the reason."""
    logger.info("loading hook %s", spec.path)
    with interrupting(timeout):
        return _load(spec)


def _load(spec: HookSpec) -> LoadedHook:
    cls = _find_class(spec.path)
    try:
        init = inspect.getattr_static(cls, "__init__")
        if inspect.isfunction(init):
            check_arguments(init, spec.args)
        instance = cls(**spec.args)
    except (Exception, SystemExit) as error:
        reason = str(error) if isinstance(error, ArgumentError) else describe(error)
        is_call = error.__traceback__ is not None and error.__traceback__.tb_next is None
        place = _line_of(init) if is_call else ""  # the arguments do not fit, so no line of it has run
        raise HookLoadError(f"hook {spec.path!r} could not be built: {reason}{place}") from error
    if not callable(instance):
        hint = (
            "; one that reads prompts alone answers emit(chunk.pending)"
            if hasattr(instance, "on_request")
            else ""
        )
        raise HookLoadError(f"hook {spec.path!r} has no __call__(self, chunk){hint}")
    try:
        return LoadedHook.of(spec.label, instance, is_shadow=spec.mode == "shadow")
    except TypeError as error:
        raise HookLoadError(f"hook {spec.path!r}: {error}") from error
    except Exception as error:
        reason = describe(error)
        raise HookLoadError(f"hook {spec.path!r} has a screen that cannot be made: {reason}") from error


def _find_class(path: str) -> type:
    import hooks

    search_working_folder_last()
    hooks.__path__ = extend_path(hooks.__path__, hooks.__name__)
    try:
        named = GUARDS.find(path)
    except PartError as error:
        raise HookLoadError(f"hook {path!r} cannot be found: {error}") from error
    try:
        return find_class(named or path)
    except ImportPathError as error:
        hint = "" if named or set(path) & set(".:") else did_you_mean(path, GUARDS.names())
        raise HookLoadError(f"hook {path!r} {error}{hint}") from error
