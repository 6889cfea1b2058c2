"""Hooks as a program gives them: by name, with arguments, as a class, or built."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hooks.api import Hook
from hooks.loading.loader import HookSpec, LoadedHook, load_hook

OneHook = str | HookSpec | type[Any] | Hook
"""An import path or a short name, the same with arguments, a class that takes none, or an instance."""

Hooks = OneHook | Sequence[OneHook]
"""A hook, or several as a pipeline."""


def load(hooks: Hooks) -> list[LoadedHook]:
    """Raises `HookLoadError`."""
    some = hooks if isinstance(hooks, Sequence) and not isinstance(hooks, str) else [hooks]
    return [load_one(hook) for hook in some]


def load_one(hook: OneHook) -> LoadedHook:
    """Raises `HookLoadError`. An instance is not closed with the others: its owner may still use it."""
    if isinstance(hook, str):
        hook = HookSpec(hook)
    if isinstance(hook, HookSpec):
        return load_hook(hook)
    instance = hook() if isinstance(hook, type) else hook
    loaded = LoadedHook.of(getattr(instance, "__name__", type(instance).__name__), instance)
    return loaded if instance is not hook else replace(loaded, on_close=None)
