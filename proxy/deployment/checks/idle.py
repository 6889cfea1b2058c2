"""Settings that are right, and do less than they seem to: hooks that never judge, and forgotten budgets."""

from collections.abc import Iterator

from proxy.deployment.read import directory_of
from proxy.settings.did_you_mean import Fault
from proxy.settings.limits import BUDGETS
from proxy.settings.policy import PolicySettings
from proxy.settings.serve import ServeSettings


def idle_faults(settings: ServeSettings) -> Iterator[Fault]:
    """No fault keeps a server from starting: an operator may reload it with other settings."""
    yield from _forgotten_budgets(settings)
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


def _forgotten_budgets(settings: ServeSettings) -> Iterator[Fault]:
    """The budgets that end with the server, because it has no state that outlives it."""
    if settings.state is not None:
        return
    groups = (
        ("policies", settings.policies, ("limits", "limits_per_key", "limits_per_tenant")),
        ("keys", settings.keys, ("limits", "limits_per_user")),
    )
    for option, group, names in groups:
        for name, one in group.items():
            for limits in names:
                for budget in BUDGETS:
                    if getattr(getattr(one, limits), budget) is not None:
                        text = "is forgotten when the server ends, because it has no state (--state)"
                        yield Fault((option, name, limits, budget), text)


def _judges(policy: PolicySettings, settings: ServeSettings) -> bool:
    named_by_requests = "moderations" in settings.guard_api_names and policy.allowed_hooks
    return bool(policy.hooks or named_by_requests)
