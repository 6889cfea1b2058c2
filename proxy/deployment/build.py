"""Builds a deployment from settings: imports hooks, makes engines, starts nothing."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from engine.protocol import Engine
from engine.turns.prompt_threads import PromptThreads
from hooks.pipeline.open_guard import GuardFactory
from hooks.pipeline.pipeline import Pipeline
from proxy.deployment.checks.directory import check_directory
from proxy.deployment.deployment import Deployment
from proxy.deployment.directory import PolicyEntry
from proxy.deployment.engine_choice import log_engine
from proxy.deployment.engines import make_engine
from proxy.deployment.read import directory_of
from proxy.settings.model import NAMING, ModelSettings
from proxy.settings.serve import ServeSettings
from proxy.telemetry.logs import log_formatter

PROMPT_THREADS = 1
"""Threads on which hooks read long prompts, and as many for short ones. They hold the interpreter's lock most
of the time, so that more threads would make no prompt faster."""


async def build(
    settings: ServeSettings, older: Deployment | None = None, *, engine_process: Path | None = None
) -> Deployment:
    """`older`: the one to replace. Models keep their engines if their settings are the same. Hooks are built
    anew: their code may have changed. `engine_process`: see `make_engine`; an older deployment's stays.

    Raises `HookLoadError`, `ImportError` for libraries that are not installed, and `ValueError` for settings
    that name what there is not, or that an engine cannot run with. The hooks that were built are then closed.
    """
    check_directory(settings)
    directory = directory_of(settings)
    make = partial(make_engine, engine_process=older.engine_process if older else engine_process)
    policies = directory.policies.values()
    can_withhold = any(one.settings.hooks or one.settings.allowed_hooks for one in policies)
    pipelines: dict[str, GuardFactory] = {}
    async with AsyncExitStack() as built:
        for policy in policies:
            pipelines[policy.name] = pipeline = await _pipeline(policy)
            built.push_async_callback(pipeline.aclose)
        engines = {
            model.name: _engine(make, model, can_withhold, older) for model in directory.models.values()
        }
        built.pop_all()
    number = 1 if older is None else older.number + 1
    return Deployment(
        directory,
        engines,
        pipelines,
        can_withhold=can_withhold,
        number=number,
        engine_process=make.keywords["engine_process"],
    )


def _engine(
    make: Callable[..., Engine], model: ModelSettings, can_withhold: bool, older: Deployment | None
) -> Engine:
    same = older and older.models.get(model.name)
    if same and same.can_withhold == can_withhold and _alike(same.settings, model):
        return same.engine
    log_engine(model)
    return make(model, can_withhold=can_withhold)


async def _pipeline(policy: PolicyEntry) -> GuardFactory:
    settings = policy.settings
    hooks = settings.hooks, settings.allowed_hooks, settings.options
    if settings.hook_workers:
        from hooks.workers.pool import WorkerPool

        return WorkerPool(settings.hook_workers, *hooks, log_formatter=log_formatter())
    return await Pipeline.load(*hooks, prompt_threads=PromptThreads(PROMPT_THREADS))


def _alike(one: ModelSettings, other: ModelSettings) -> bool:
    """Whether two models have the same engine."""
    return all(
        getattr(one, name) == getattr(other, name) for name in ModelSettings.model_fields.keys() - NAMING
    )
