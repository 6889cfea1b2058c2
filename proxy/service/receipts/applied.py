"""The guards of a request, as its receipt and its answer name them."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from proxy import __version__
from proxy.deployment.deployment import Policy
from proxy.storage.receipts.form import canonical
from proxy.storage.receipts.keys import SigningKey

_SAFE = "/:.-_@+"
"""Characters that a header shows as they are, beside letters and digits."""


class AppliedGuards(NamedTuple):
    guards: Sequence[dict[str, str]]
    """The name and the mode of each, in order."""
    policy: str
    revision: str
    header: str
    """For the client, who does not notice hooks in shadow mode (contract 3.15)."""


def applied_guards(policy: Policy, named: Sequence[str], key: SigningKey) -> AppliedGuards:
    """`named`: the hooks that the request adds."""
    pipeline = policy.pipeline
    modes, allowed = pipeline.modes, pipeline.allowed
    names = [*(name for name in modes if name not in allowed), *(name for name in named if name in modes)]
    settings = policy.settings.model_dump(mode="json", fallback=str)
    revised = {"weir": __version__, "policy": policy.name, "modes": dict(modes), "settings": settings}
    revision = key.revision(canonical(revised))
    shown = ", ".join(quote(name, _SAFE) for name in names if modes[name] == "enforce") or "none"
    header = f"{shown}; policy={quote(policy.name, _SAFE)}; revision={revision}"
    guards = [{"name": name, "mode": modes[name]} for name in names]
    return AppliedGuards(guards, policy.name, revision, header)
