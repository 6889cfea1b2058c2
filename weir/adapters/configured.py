"""The guards and the model of a configuration, for a server that passes no arguments to them.

The configuration is that of `weir serve`: a YAML file that the environment variable `WEIR_CONFIG` names, and
the other variables `WEIR_...`. Its default policy has the hooks and their options, and its model the logits
processors. Settings of Weir's HTTP have no meaning in another server.
"""

from collections.abc import Sequence

from engine.protocol.options import EngineConfig
from hooks.loading.loader import HookLoadError, LoadedHook
from proxy.deployment.engines import engine_config
from proxy.deployment.read import chosen_policy, directory_of
from proxy.settings.policy import PolicySettings
from proxy.settings.serve import ServeSettings, load_settings
from weir.guards import Guards


def configured_policy() -> PolicySettings:
    """Raises `ValueError` for a configuration that `weir serve` refuses."""
    return chosen_policy(_settings("echo"))


def configured_model() -> EngineConfig:
    """The only model of the configuration. Raises `ValueError` as `configured_policy` does."""
    (model, *others) = directory_of(_settings("local")).models.values()
    if others:
        raise ValueError("models: a configuration for another server has one")
    return engine_config(model)


def _settings(engine: str) -> ServeSettings:
    try:
        return load_settings(["--engine", engine])
    except SystemExit as error:
        raise ValueError(str(error)) from None


def plain_guards(server: str) -> Guards:
    """The guards of the configuration, for a server that calls them with text alone, in its event loop.

    `server`: its name, for messages. Raises `HookLoadError` and `ValueError`: also for a hook that awaits,
    reads prompts or reads a probe's scores, because it could not run (contract 1.4), and for no hooks.
    """
    policy = configured_policy()
    guards = Guards(policy.hooks, options=policy.options)
    if reason := _unfit(guards.hooks):
        guards.close()
        raise HookLoadError(f"{reason}, which {server} has no place for: run weir serve in front of it")
    return guards


def _unfit(hooks: Sequence[LoadedHook]) -> str | None:
    for hook in hooks:
        if hook.is_async or hook.on_start is not None:
            return f"the hook {hook.name} awaits something"
        if hook.on_request is not None:
            return f"the hook {hook.name} reads prompts"
        if hook.needs_probe is not None:
            return f"the hook {hook.name} reads a probe's scores"
    return None
