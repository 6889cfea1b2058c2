"""An option of a group stands in a file beside those of the settings that have the group."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from engine.protocol.options import EngineChoices, EngineConfig
from hooks.loading.options import PipelineOptions
from proxy.settings.did_you_mean import problems
from proxy.settings.groups import options_of
from proxy.settings.model import ModelSettings
from proxy.settings.policy import PolicySettings
from proxy.settings.serve import ServeSettings


def problems_of(**given: Any) -> list[str]:
    with pytest.raises(ValidationError) as raised:
        ServeSettings(**given)
    return problems(raised.value, ServeSettings)


def groups_of(settings: type[BaseModel]) -> list[str]:
    return [name for name, field in settings.model_fields.items() if field.alias]


@pytest.mark.parametrize("settings", [ServeSettings, ModelSettings, PolicySettings])
def test_an_engine_s_option_and_a_pipeline_s_are_fields_of_one_class(settings: type[BaseModel]) -> None:
    own = EngineConfig.model_fields.keys() | PipelineOptions.model_fields.keys()
    assert not (settings.model_fields.keys() - {"logits_processors", "only_guards", "system_messages"}) & own
    assert options_of(ServeSettings)["max_num_seqs"].settings is EngineConfig


def test_an_engine_gets_its_group_as_it_was_read() -> None:
    settings = ServeSettings(max_num_seqs=3, models={"a": {"max_model_len": 9}, "b": {"max_num_seqs": 4}})
    assert settings.base_model.local == EngineConfig(max_num_seqs=3)
    assert settings.models["a"].local == EngineConfig(max_num_seqs=3, max_model_len=9)
    assert settings.models["b"].local.model_fields_set == {"max_num_seqs"}


@pytest.mark.parametrize("name", [*groups_of(ServeSettings), *groups_of(ModelSettings)])
def test_a_file_names_no_group_of_the_service_or_a_model(name: str) -> None:
    if name not in options_of(ServeSettings):
        (problem,) = problems_of(**{name: {}})
        assert problem.startswith(f"{name}: there is no such option")
    (problem,) = problems_of(models={"m": {name: {}}})
    assert problem.startswith(f"models.m.{name}: there is no such option")


@pytest.mark.parametrize("name", groups_of(PolicySettings))
def test_a_file_names_no_group_of_a_policy(name: str) -> None:
    (problem,) = problems_of(policies={"p": {name: {}}})
    assert problem.startswith(f"policies.p.{name}: there is no such option")


@pytest.mark.parametrize(
    "name", sorted(EngineChoices.model_fields.keys() - {"only_guards", "system_messages"})
)
def test_what_no_deployment_chooses_is_no_option(name: str) -> None:
    assert name not in options_of(ServeSettings)
    assert "there is no such option" in problems_of(models={"m": {name: 1}})[0]


def test_all_faults_are_listed_each_with_its_place_in_the_file() -> None:
    assert problems_of(
        port="many",
        max_num_seqs=0,
        models={"m": {"engine": "echo", "max_model_len": 0}, "n": {"speculative_model": "x"}},
        policies={"p": {"max_rewinds": -1}},
    ) == [
        "max_num_seqs: Input should be greater than or equal to 1",
        "models.m.max_model_len: Input should be greater than or equal to 1",
        "models.m.max_num_seqs: Input should be greater than or equal to 1",
        "models.n.max_num_seqs: Input should be greater than or equal to 1",
        "policies.p.max_rewinds: Input should be greater than or equal to 0",
        "port: Input should be a valid integer, unable to parse string as an integer",
    ]


def test_a_rule_between_options_of_a_group_is_told_beside_other_faults() -> None:
    told, port = problems_of(speculative_model="x", port="many")
    assert told == "speculative_model needs num_speculative_tokens of 1 or more"
    assert port.startswith("port: ")
