"""Hooks by import path: `pkg.module.Class`, `pkg.module:Class` or `path/to/file.py:Class` (contract 1.1).

A guard that ships has a short name as well.
"""

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from pkgutil import extend_path
from types import ModuleType
from typing import Any, Literal

from hooks.alarm import interrupting
from hooks.async_call import AsyncCall
from hooks.builtin import SHORT_NAMES
from hooks.decision import Decision

logger = logging.getLogger("weir.hooks")

LOAD_TIMEOUT = 60.0


class HookLoadError(RuntimeError):
    """A hook cannot be imported, built or called: the server must not start without it (contract 1.4)."""


@dataclass(frozen=True, slots=True)
class HookSpec:
    """One configured hook."""

    path: str
    args: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments for its `__init__`."""
    mode: Literal["enforce", "shadow"] = "enforce"
    """shadow: its verdicts are counted, and nothing it says has an effect (contract 3.10)."""
    name: str | None = None
    """What metrics, logs and requests call it; None: its path."""

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
    """What it is shown prompts with; None: it is shown none."""
    is_request_async: bool = False
    on_decision: Callable[[Decision], object] | None = None
    """What it is told of decisions with; None: it is told of none."""
    on_close: Callable[[], object] | None = None
    """Plain or async."""
    late: set[asyncio.Task[None]] = field(default_factory=set, compare=False, repr=False)
    """What goes on of its calls though their deadlines have passed."""

    @classmethod
    def of(cls, name: str, instance: Any, *, is_shadow: bool = False) -> "LoadedHook":
        """Of a hook's instance, or of a function. Raises `TypeError` for methods that cannot be called so."""
        names = ("on_request", "on_decision", "close")
        on_request, on_decision, on_close = methods = [getattr(instance, one, None) for one in names]
        if any(method is not None and not callable(method) for method in methods):
            raise TypeError(f"{', '.join(names)} are methods")
        if inspect.iscoroutinefunction(on_decision):
            raise TypeError("on_decision is a plain method")
        return cls(
            name,
            instance,
            inspect.iscoroutinefunction(instance if inspect.isroutine(instance) else type(instance).__call__),
            is_shadow,
            on_request,
            inspect.iscoroutinefunction(on_request),
            on_decision,
            on_close,
        )

    def wrapped(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> "LoadedHook":
        """The same, with what is plain of it called through what `wrap` makes of it."""
        hook = self if self.is_async else replace(self, call=wrap(self.call))
        if hook.on_decision is not None:
            hook = replace(hook, on_decision=wrap(hook.on_decision))
        if hook.on_request is None or hook.is_request_async:
            return hook
        return replace(hook, on_request=wrap(hook.on_request))

    async def close(self, seconds: float) -> None:
        """Tell it that there is nothing left to serve. It has so many seconds, where `interrupting` can tell
        or it is async, and whatever it raises is logged."""
        if self.on_close is None:
            return
        try:
            with interrupting(seconds):
                closing = self.on_close()
            if inspect.iscoroutine(closing):
                await self._await(AsyncCall(closing), seconds)
        except Exception as error:  # noqa: BLE001 - the others are to be closed as well
            logger.error("hook %s could not be closed: %s", self.name, type(error).__name__)

    async def _await(self, call: AsyncCall, seconds: float) -> None:
        try:
            await call.within(seconds)
        finally:
            if call.rest is not None:
                self.keep(call.rest)

    def keep(self, rest: asyncio.Task[None]) -> None:
        """Hold on to a late call until it ends."""
        logger.warning("hook %s goes on past its deadline", self.name)
        self.late.add(rest)
        rest.add_done_callback(self.late.discard)


def load_hook(spec: HookSpec, timeout: float = LOAD_TIMEOUT) -> LoadedHook:
    """Import the class and build its one instance, for so many seconds at most where `interrupting` can tell.
    Raises `HookLoadError`, saying what went wrong."""
    logger.info("loading hook %s", spec.path)
    with interrupting(timeout):
        return _load(spec)


def _load(spec: HookSpec) -> LoadedHook:
    cls = _find_class(spec.path)
    try:
        instance = cls(**spec.args)
    except (Exception, SystemExit) as error:
        raise HookLoadError(f"hook {spec.path!r} could not be built: {_describe(error)}") from error
    if not callable(instance):
        raise HookLoadError(f"hook {spec.path!r} has no __call__(self, chunk)")
    try:
        return LoadedHook.of(spec.label, instance, is_shadow=spec.mode == "shadow")
    except TypeError as error:
        raise HookLoadError(f"hook {spec.path!r}: {error}") from error


def _find_class(path: str) -> type:
    module_name, class_name = _split(SHORT_NAMES.get(path, path))
    module = _load_file(path, module_name) if module_name.endswith(".py") else _import(path, module_name)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise HookLoadError(f"hook {path!r}: {module_name} has no class {class_name!r}")
    return found


def _split(path: str) -> tuple[str, str]:
    separator = ":" if ":" in path else "."
    module_name, _, class_name = path.rpartition(separator)
    if not module_name or not class_name.isidentifier():
        raise HookLoadError(
            f"hook {path!r} names no class; write pkg.module.Class, pkg.module:Class or path/to/file.py:Class"
        )
    return module_name, class_name


def _import(path: str, module_name: str) -> ModuleType:
    _search_working_folder_last()
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise HookLoadError(f"hook {path!r} could not be imported: {_describe(error)}") from error


def _search_working_folder_last() -> None:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
        import hooks

        hooks.__path__ = extend_path(hooks.__path__, hooks.__name__)


def _load_file(path: str, file_name: str) -> ModuleType:
    file = Path(file_name).resolve()
    # One module for a file, however often it is named, so that two of its classes share what it defines.
    name = f"weir_hook_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise HookLoadError(f"hook {path!r}: there is no file {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise HookLoadError(f"hook {path!r} could not be imported: {_describe(error)}") from error
    return module


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
