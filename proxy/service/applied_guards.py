"""The guards and the policy of a request, as decisions, the log, receipts and answers name them."""

import hmac
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import quote
from weakref import WeakKeyDictionary

from proxy import __version__
from proxy.deployment.deployment import Deployment, Policy

_SAFE = "/:.-_@+"
"""Characters that a header shows as they are, beside letters and digits."""


class AppliedGuards(NamedTuple):
    guards: Sequence[dict[str, str]]
    """The name and the mode of each, in order."""
    policy: str
    revision: str
    header: str
    """For the client, who does not notice hooks in shadow mode (contract 3.15)."""


class Applied:
    """Names the guards and the revision of each policy of one server.

    A revision is a name of a policy's settings that only they have: with the same key, the same settings have
    the same one. Without the key, nobody can find out by guesses which settings they are.
    """

    def __init__(self, secret: Callable[[], bytes]) -> None:
        """`secret`: the key of the revisions. It is asked for once a request is served."""
        self._secret = secret
        self._revisions: WeakKeyDictionary[Policy, str] = WeakKeyDictionary()
        self._guards: WeakKeyDictionary[Policy, AppliedGuards] = WeakKeyDictionary()
        """The guards of each policy, for requests that name no hooks."""

    def revision(self, policy: Policy) -> str:
        found = self._revisions.get(policy)
        if found is None:
            settings = policy.settings.model_dump(mode="json", fallback=str)
            modes = dict(policy.pipeline.modes)
            revised = {"weir": __version__, "policy": policy.name, "modes": modes, "settings": settings}
            data = json.dumps(revised, sort_keys=True).encode()
            found = self._revisions[policy] = hmac.digest(self._secret(), data, "sha256").hex()[:16]
        return found

    def revisions(self, deployment: Deployment) -> dict[str, str]:
        """The revision of each policy, by the policy's name."""
        return {name: self.revision(policy) for name, policy in deployment.policies.items()}

    def guards(self, policy: Policy, named: Sequence[str]) -> AppliedGuards:
        """`named`: the hooks that the request adds. Clients choose them, so what they choose is not kept."""
        if named:
            return self._applied(policy, named)
        if (found := self._guards.get(policy)) is None:
            found = self._guards[policy] = self._applied(policy, ())
        return found

    def _applied(self, policy: Policy, named: Sequence[str]) -> AppliedGuards:
        modes, allowed = policy.pipeline.modes, policy.pipeline.allowed
        names = [*(name for name in modes if name not in allowed), *(name for name in named if name in modes)]
        shown = ", ".join(quote(name, _SAFE) for name in names if modes[name] == "enforce") or "none"
        revision = self.revision(policy)
        header = f"{shown}; policy={quote(policy.name, _SAFE)}; revision={revision}"
        guards = [{"name": name, "mode": modes[name]} for name in names]
        return AppliedGuards(guards, policy.name, revision, header)
