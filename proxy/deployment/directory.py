"""Who may use which model, under which policy: data, and the one rule that chooses.

A `Deployment` has the same models and policies built. `weir config` needs no more than this.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.protocol import RequestError
from engine.protocol.did_you_mean import did_you_mean
from proxy.deployment.keys import ANONYMOUS, Key
from proxy.settings.model import ModelSettings
from proxy.settings.policy import PolicySettings
from proxy.wire.errors import APIError

_MAX_COMPARED = 200
"""An upstream may list a hundred thousand names, and to compare one takes a tenth of a millisecond."""


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """The rules for requests that get this policy."""

    name: str
    settings: PolicySettings


class PolicyChoice(NamedTuple):
    """A policy's name, and the setting that names it."""

    name: str
    reason: str


class Choice(NamedTuple):
    """The model and the policy of a request, and the reason for this policy."""

    model: ModelSettings
    policy: PolicyEntry
    reason: str


class Directory:
    """All models, policies and keys of one configuration."""

    def __init__(
        self,
        models: Iterable[ModelSettings],
        policies: Iterable[PolicyEntry],
        keys: Iterable[Key] = (),
        default_policy: str | None = None,
    ) -> None:
        """`keys`: of clients; none: anybody may ask. `default_policy`: of a request whose key and model name
        none. Only a model that is alone may have no names."""
        by_name = {model.name: model for model in models}
        self.models = {name: model for name, model in by_name.items() if not model.only_guards}
        """Those that requests can name."""
        self.guard_models = {name: model for name, model in by_name.items() if model.only_guards}
        self.policies = {policy.name: policy for policy in policies}
        self.keys: Mapping[str, Key] = {key.digest: key for key in keys}
        """By digest: a key has two for a while after its rotation."""
        self.default_policy = default_policy
        self._by_any_name = {name: model for model in self.models.values() for name in model.given_names}
        self.has_names = bool(self._by_any_name)
        """Whether requests can call models by given names alone."""

    def models_of(self, key: Key) -> list[ModelSettings]:
        """The models that the key may use, in the order configured."""
        return [model for model in self.models.values() if key.may_use(model.names)]

    def pairs(self) -> Iterator[tuple[Key, ModelSettings]]:
        """Each configured key with each model that it may use. Without keys: whoever asks."""
        for key in self.keys.values() or (ANONYMOUS,):
            for model in self.models_of(key):
                yield key, model

    def model_for(self, key: Key, asked: str | None) -> ModelSettings:
        """The model that the key asks for (None: its first). Raises `RequestError` 404 for a model that is
        not served, or not to this key."""
        model = next(iter(self.models_of(key)), None) if asked is None else self.find(asked)
        if model is None or not key.may_use(model.names):
            raise no_model(asked or "", [name for one in self.models_of(key) for name in one.given_names])
        return model

    def find(self, name: str) -> ModelSettings | None:
        """The served model that requests call so. None: there is none."""
        return self._by_any_name.get(name) or self._nameless

    @property
    def _nameless(self) -> ModelSettings | None:
        return None if self._by_any_name else next(iter(self.models.values()), None)

    def policy_for(self, key: Key, model: ModelSettings) -> PolicyChoice | None:
        """The key's policy for this model, else the key's, else the model's, else the default one. None:
        there is none, and the key cannot use the model. Nothing in a request changes the choice."""
        if (name := key.policy_for(model.names)) is not None:
            return PolicyChoice(name, "the key's policy" + (" for this model" if name != key.policy else ""))
        if model.policy is not None:
            return PolicyChoice(model.policy, "the model's policy")
        if self.default_policy is not None:
            return PolicyChoice(self.default_policy, "the default policy")
        return None

    def choose(self, key: Key, asked: str | None) -> Choice:
        """The choice for a request with this key for this model. Raises as `model_for` does, and
        `APIError` 403 if no policy is for the two."""
        model = self.model_for(key, asked)
        found = self.policy_for(key, model)
        policy = None if found is None else self.policies.get(found.name)
        if found is None or policy is None:
            # For a configured key this is an error at the start. The operator makes keys later.
            raise APIError(403, "No policy is configured for this key and model.", "permission_error")
        return Choice(model, policy, found.reason)


def no_model(name: str, known: list[str]) -> RequestError:
    """`known`: the names that the caller may know. The first ones are compared with `name`."""
    hint = did_you_mean(name, known[:_MAX_COMPARED]) or "."
    message = f"The model '{name}' is not served here{hint}"
    return RequestError(message, param="model", code="model_not_found", status=404)
