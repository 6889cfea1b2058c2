"""Builds a deployment from settings: imports hooks, makes engines, starts nothing."""

from engine.prompt_threads import PromptThreads
from hooks.pipeline.options import PipelineOptions
from hooks.pipeline.pipeline import GuardFactory, Pipeline
from hooks.workers.pool import WorkerPool
from proxy.config import ServeSettings
from proxy.engines import make_engine, names_of
from proxy.policies.deployment import Deployment
from proxy.policies.keys import Key, digest_of
from proxy.telemetry.logs import log_formatter

PROMPT_THREADS = 1
"""Threads on which hooks read long prompts, and as many for short ones. They hold the interpreter's lock most
of the time, so that more threads would make no prompt faster."""


def build(settings: ServeSettings) -> Deployment:
    """Raises `HookLoadError`, `ImportError` for libraries that are not installed, and `ValueError` for
    settings that an engine cannot run with."""
    pipeline = _make_pipeline(settings)
    engine = make_engine(settings, can_withhold=bool(settings.hook_specs or settings.allowed_hooks))
    names = names_of(settings, settings.served_model_name)
    return Deployment.of_one(engine, pipeline, settings, names, keys=keys_of(settings))


def keys_of(settings: ServeSettings) -> list[Key]:
    """The keys of clients."""
    return [Key(digest=digest_of(key.get_secret_value().encode())) for key in settings.api_key]


def _make_pipeline(settings: ServeSettings) -> GuardFactory:
    hooks = settings.hook_specs, settings.allowed_hooks, settings.options(PipelineOptions)
    if settings.hook_workers:
        return WorkerPool(settings.hook_workers, *hooks, log_formatter=log_formatter())
    return Pipeline.load(*hooks, prompt_threads=PromptThreads(PROMPT_THREADS))
