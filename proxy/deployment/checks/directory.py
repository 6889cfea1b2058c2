"""The faults between settings that are each right: unknown names, names of two things, and keys and models
without a policy."""

from collections.abc import Iterable, Iterator, Mapping

from engine.protocol.did_you_mean import did_you_mean
from engine.sampling.logits_processors.names import names_of_processors
from proxy.deployment.directory import Directory
from proxy.deployment.keys import ANONYMOUS, Key, digest_of
from proxy.deployment.read import directory_of
from proxy.settings.did_you_mean import Fault, Place
from proxy.settings.model import WITH_LOGITS, ModelSettings
from proxy.settings.serve import ServeSettings


def check_directory(settings: ServeSettings) -> None:
    """Raise `ValueError`, with all faults."""
    if found := directory_faults(settings):
        raise ValueError("the settings are wrong" + "".join(f"\n  {fault}" for fault in found))


def directory_faults(settings: ServeSettings) -> list[Fault]:
    directory = directory_of(settings)
    found = [
        *_empty_names(settings),
        *_wrong_names(settings, directory),
        *_same_names(settings),
        *_nothing_served(directory),
        *_missing_policies(directory),
        *_wrong_processors(directory),
    ]
    return list(dict.fromkeys(found))


def _empty_names(settings: ServeSettings) -> Iterator[Fault]:
    groups: list[tuple[Place, Iterable[str]]] = [
        (("models",), settings.models),
        (("policies",), settings.policies),
        (("keys",), settings.keys),
        (("served_model_name",), settings.served_model_name),
        *((("models", name, "aliases"), model.aliases) for name, model in settings.models.items()),
        *((("keys", name, "tenant"), [key.tenant]) for name, key in settings.keys.items()),
    ]
    for place, names in groups:
        if not all(name.strip() for name in names):
            yield Fault(place, "a name is empty")


def _wrong_names(settings: ServeSettings, directory: Directory) -> Iterator[Fault]:
    models = [name for model in directory.models.values() for name in model.names]
    policies = directory.policies
    if settings.default_policy is not None:
        yield from _unknown(("default_policy",), "policy", [settings.default_policy], policies)
    for name, model in settings.models.items():
        named = [] if model.policy is None else [model.policy]
        yield from _unknown(("models", name, "policy"), "policy", named, policies)
    for name, key in settings.keys.items():
        yield from _unknown(("keys", name, "models"), "model", key.models or [], models)
        place = ("keys", name, "policy")
        if isinstance(key.policy, Mapping):
            yield from _unknown(place, "model", key.policy, models)
            yield from _named_twice(place, key.policy, directory)
            yield from _unknown(place, "policy", key.policy.values(), policies)
        elif key.policy is not None:
            yield from _unknown(place, "policy", [key.policy], policies)


def _unknown(place: Place, kind: str, names: Iterable[str], known: Iterable[str]) -> Iterator[Fault]:
    known = list(known)
    for name in names:
        if name not in known:
            yield Fault(place, f"there is no {kind} {name!r}{did_you_mean(name, known)}")


def _named_twice(place: Place, policies: Mapping[str, str], directory: Directory) -> Iterator[Fault]:
    """The policies of one key, by any of a model's names."""
    for model in directory.models.values():
        named = [name for name in model.names if name in policies]
        if len({policies[name] for name in named}) > 1:
            yield Fault(place, f"{' and '.join(named)} are one model, with several policies")


def _same_names(settings: ServeSettings) -> Iterator[Fault]:
    owners: dict[str, str] = {}
    for model in settings.models:
        for name in (model, *settings.models[model].aliases):
            if owners.setdefault(name, model) != model:
                yield Fault(("models", model), f"{owners[name]} is called {name!r} too")
    digests = {digest_of(key.get_secret_value().encode()): "api_key" for key in settings.api_key}
    for key, one in settings.keys.items():
        if digests.setdefault(one.digest, key) != key:
            yield Fault(("keys", key, "hash"), f"{digests[one.digest]} has the same one")
    for key, one in settings.keys.items():
        if one.previous is not None and one.previous.digest in digests:
            yield Fault(("keys", key, "previous"), f"{digests[one.previous.digest]} has the same one")


def _nothing_served(directory: Directory) -> Iterator[Fault]:
    if not directory.models:
        yield Fault(("models",), "every model is for guards alone, and requests can name none")


def _missing_policies(directory: Directory) -> Iterator[Fault]:
    for place, key, model in _pairs(directory):
        if directory.policy_for(key, model) is None:
            reason = "no policy is named by the key, the model or default_policy"
            yield Fault(place, f"for the model {model.name!r} {reason}")


def _wrong_processors(directory: Directory) -> Iterator[Fault]:
    for place, key, model in _pairs(directory):
        found = directory.policy_for(key, model)
        policy = None if found is None else directory.policies.get(found.name)
        names = [one.name for one in policy.settings.logits_processors] if policy else []
        if not policy or not names:
            continue
        if model.engine not in WITH_LOGITS:
            reason = f"the model {model.name!r} has no logits for the logits processors of {policy.name!r}"
            yield Fault(place, reason)
        else:
            known = names_of_processors(model.local.logits_processors)
            own = ("policies", policy.name, "logits_processors")
            yield from _unknown(own, "logits processor", names, known)
            for one in model.local.logits_processors:
                if one.mandatory and one.name in names:
                    yield Fault(
                        own, f"{one.name!r} is mandatory for the model {model.name!r}: it would run twice"
                    )


def _pairs(directory: Directory) -> Iterator[tuple[Place, Key, ModelSettings]]:
    """`directory.pairs`, with the key's place."""
    for key, model in directory.pairs():
        named: Place = ("keys", key.name) if key.name else ("api_key",)
        yield ("models",) if key is ANONYMOUS else named, key, model
