"""Checks the logits processors of a configuration: their classes, and the parameters that it gives them.

No model is known here. What only a model can tell, such as whether it has a token, is checked at the start.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from engine.sampling.logits_processors.load import (
    ParamsError,
    ProcessorLoadError,
    find_processors,
    validate_params,
)
from proxy.deployment.directory import Directory
from proxy.deployment.read import directory_of
from proxy.settings.did_you_mean import Fault, Place
from proxy.settings.model import ModelSettings
from proxy.settings.serve import ServeSettings


def processor_faults(settings: ServeSettings) -> Iterator[Fault]:
    """Imports the classes of the processors."""
    directory = directory_of(settings)
    for model in directory.models.values():
        configs = model.local.logits_processors
        place = ("models", model.name, "logits_processors") if settings.models else ("logits_processors",)
        try:
            classes = {config.name: cls for config, cls in find_processors(configs)}
        except ProcessorLoadError as error:
            yield Fault(place, str(error))
        else:
            for i, one in enumerate(configs):
                if one.mandatory:
                    yield from _of_params((*place, i), classes[one.name], one.params)
            yield from _of_policies(directory, model, classes)


def _of_policies(directory: Directory, model: ModelSettings, classes: Mapping[str, type]) -> Iterator[Fault]:
    """The parameters of the policies that requests for this model may have."""
    chosen = [directory.policy_for(key, one) for key, one in directory.pairs() if one is model]
    for name in dict.fromkeys(choice.name for choice in chosen if choice is not None):
        policy = directory.policies.get(name)
        for i, one in enumerate(policy.settings.logits_processors if policy else ()):
            if one.name in classes:
                place = ("policies", name, "logits_processors", i)
                yield from _of_params(place, classes[one.name], one.params)


def _of_params(place: Place, cls: type, params: Mapping[str, Any]) -> Iterator[Fault]:
    try:
        validate_params(cls, params, None)
    except ParamsError as error:
        yield Fault(place, f"params{error.at}: {error}")
