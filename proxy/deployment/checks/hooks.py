"""Checks the hooks of a configuration: builds, starts and closes each of them, as a server would."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from engine.protocol.guard_models import GuardModels
from engine.protocol.options import parts
from hooks.api.probe_needs import ProbeNeeds
from hooks.loading.loader import HookLoadError, LoadedHook, load_hook
from hooks.loading.options import PipelineOptions
from proxy.deployment.checks.probes import probes_of
from proxy.deployment.checks.unloaded_models import UnloadedError, UnloadedModels
from proxy.deployment.directory import Directory
from proxy.deployment.read import DEFAULT
from proxy.settings.did_you_mean import Fault, Place
from proxy.settings.model import ModelSettings
from proxy.settings.policy import Hooks

_HOOKS: TypeAdapter[Any] = TypeAdapter(Hooks)


def hook_faults(content: Mapping[str, Any], directory: Directory | None) -> Iterator[Fault]:
    """`content`: of the settings file. `directory`: its models and policies; None: something is wrong with
    them, and the hooks are not started."""
    uses = {} if directory is None else _uses(directory)
    for place, given in _given(content):
        policy = place[1] if place[0] == "policies" else DEFAULT
        yield from _of_hook(place, given, uses.get(str(policy)))


def _given(content: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
    policies = content.get("policies")
    groups: list[tuple[Place, Any]] = [((), content)]
    if isinstance(policies, Mapping):
        groups += [(("policies", name), policy) for name, policy in policies.items()]
    for place, group in groups:
        for option in ("hooks", "allowed_hooks"):
            given = group.get(option) if isinstance(group, Mapping) else None
            for i, one in enumerate(parts(given) if isinstance(given, str | dict | list) else ()):
                yield (*place, option, i), one


@dataclass(frozen=True, slots=True)
class _Use:
    """The surroundings of a policy's hooks."""

    models: GuardModels
    served: list[ModelSettings]
    """The models whose requests may get the policy."""


def _uses(directory: Directory) -> dict[str, _Use]:
    """By policy."""
    models = [UnloadedModels(directory, in_worker=in_worker) for in_worker in (False, True)]
    chosen = [(directory.policy_for(key, model), model) for key, model in directory.pairs()]
    uses = {}
    for name, policy in directory.policies.items():
        served = {model.name: model for choice, model in chosen if choice and choice.name == name}
        uses[name] = _Use(models[policy.settings.hook_workers > 0], [*served.values()])
    return uses


def _of_hook(place: Place, given: Any, use: _Use | None) -> Iterator[Fault]:
    try:
        (spec,) = _HOOKS.validate_python([given])
    except ValidationError:  # the settings say it
        return
    try:
        hook = load_hook(spec)
        asyncio.run(_tried(hook, use))
    except HookLoadError as error:
        if not _is_untold(error):
            yield Fault(place, str(error))
    else:
        is_named_by_requests = place[-2] == "allowed_hooks"
        if use is not None and hook.needs_probe is not None and not is_named_by_requests:
            yield from _of_probe(place, hook.needs_probe, use.served)


async def _tried(hook: LoadedHook, use: _Use | None) -> None:
    try:
        if use is not None:
            await hook.start(use.models)
    finally:
        await hook.close(PipelineOptions().hook_timeout)


def _is_untold(error: BaseException | None) -> bool:
    """Whether the error comes from what only a loaded model can tell."""
    while error is not None and not isinstance(error, UnloadedError):
        error = error.__cause__ or error.__context__
    return error is not None


def _of_probe(place: Place, needs: ProbeNeeds, served: Iterable[ModelSettings]) -> Iterator[Fault]:
    for model in served:
        try:
            needs.choose(probes_of(model))
        except (ImportError, NotImplementedError, OSError):  # the check of the model reports it
            continue
        except ValueError as error:
            yield Fault(place, f"with the model {model.name!r}: {error}")
