"""Settings that are right, and with which nothing is ever judged."""

from collections.abc import Iterator

from proxy.deployment.read import directory_of
from proxy.settings.did_you_mean import Fault
from proxy.settings.policy import PolicySettings
from proxy.settings.serve import ServeSettings


def idle_faults(settings: ServeSettings) -> Iterator[Fault]:
    """No fault keeps a server from starting: an operator may reload it with other settings."""
    directory = directory_of(settings)
    if not settings.guard_api_names:
        if all(model.engine == "none" for model in directory.models.values()):
            text = "engine 'none' answers no request, and nobody can have the hooks judge a text"
            yield Fault(
                ("models" if settings.models else "engine",), f"{text} without guard_api (--guard-api)"
            )
    elif not any(_judges(policy.settings, settings) for policy in directory.policies.values()):
        place = "guard_api" if settings.guard_api else "moderations"
        yield Fault((place,), "no hook judges the texts (--hook), so each question about one is an error")


def _judges(policy: PolicySettings, settings: ServeSettings) -> bool:
    named_by_requests = "moderations" in settings.guard_api_names and policy.allowed_hooks
    return bool(policy.hooks or named_by_requests)
