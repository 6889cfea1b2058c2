"""The rule that gives a request its policy: by its key and its model, and by nothing in the request."""

from collections.abc import Mapping
from typing import NamedTuple

from proxy.policies.keys import Key


class PolicyChoice(NamedTuple):
    """A policy's name, and the setting that names it."""

    policy: str
    reason: str


def choose_policy(key: Key, model: str, of_model: str | None, default: str | None) -> PolicyChoice | None:
    """The key's policy for this model, else the key's, else the model's, else the default one. None: there is
    none, and nobody may use this model with this key.

    `model`: its name; `of_model`: the policy that the model's settings name.
    """
    if isinstance(key.policy, Mapping):
        if model in key.policy:
            return PolicyChoice(key.policy[model], "the key's policy for this model")
    elif key.policy is not None:
        return PolicyChoice(key.policy, "the key's policy")
    if of_model is not None:
        return PolicyChoice(of_model, "the model's policy")
    return None if default is None else PolicyChoice(default, "the default policy")
