"""The guards of a request, as its receipt and its answer name them."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from hooks.api.decision import Mode
from proxy import __version__
from proxy.deployment.deployment import Policy
from proxy.storage.receipts.form import canonical
from proxy.storage.receipts.keys import SigningKey

_SAFE = "/:.-_@+"
"""Characters that a header shows as they are, beside letters and digits."""


class AppliedGuards(NamedTuple):
    guards: Sequence[tuple[str, Mode]]
    policy: str
    revision: str

    @property
    def header(self) -> str:
        """For the client, who does not notice hooks in shadow mode (contract 3.15)."""
        names = ", ".join(quote(name, _SAFE) for name, mode in self.guards if mode == "enforce") or "none"
        return f"{names}; policy={quote(self.policy, _SAFE)}; revision={self.revision}"


def applied_guards(policy: Policy, named: Sequence[str], key: SigningKey) -> AppliedGuards:
    """`named`: the hooks that the request adds."""
    pipeline = policy.pipeline
    modes, allowed = pipeline.modes, pipeline.allowed
    guards = [(name, mode) for name, mode in modes.items() if name not in allowed]
    settings = policy.settings.model_dump(mode="json", fallback=str)
    revised = {"weir": __version__, "policy": policy.name, "modes": dict(modes), "settings": settings}
    added = [(name, modes[name]) for name in named if name in modes]
    return AppliedGuards([*guards, *added], policy.name, key.revision(canonical(revised)))
