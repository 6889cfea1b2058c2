"""Wrong settings are told with their place and the name that was meant."""

from dataclasses import fields
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from engine.protocol.parts import ENGINES
from engine.upstream.address import UpstreamConfig
from hooks.loading.loader import HookSpec
from proxy.settings import elsewhere
from proxy.settings.did_you_mean import problems
from proxy.settings.groups import options_of
from proxy.settings.limits import Limits as RealLimits
from proxy.settings.model import ModelSettings
from proxy.settings.policy import KeySettings, PolicySettings
from proxy.settings.serve import ServeSettings


class Limits(BaseModel, extra="forbid"):
    max_tokens: int | None = None


class Outer(BaseModel, extra="forbid"):
    policies: dict[str, Limits] | None = None


def problems_of(settings: type[BaseModel], **given: Any) -> list[str]:
    with pytest.raises(ValidationError) as raised:
        settings(**given)
    return problems(raised.value, settings)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"hook_timeot": 3}, "hook_timeot: there is no such option; did you mean 'hook_timeout'?"),
        ({"engine": "opnai"}, f"or {ENGINES.names()[-1]!r}; did you mean 'openai'?"),
        ({"tls_key": "k"}, "tls_key: there is no such option; did you mean 'ssl_keyfile'?"),
        ({"guardrails": ["x"]}, "guardrails: there is no such option; did you mean 'hooks'?"),
        ({"api_base": "x"}, "api_base: there is no such option; did you mean 'upstream'?"),
        (
            {"upstream": [{"url": "http://a", "api_base": "x"}]},
            "api_base: there is no such option; did you mean 'url'?",
        ),
        (
            {"policies": {"p": {"guardrails": []}}},
            "guardrails: there is no such option; did you mean 'hooks'?",
        ),
        ({"model_list": []}, "model_list: there is no such option; did you mean 'models'?"),
        ({"master_key": "x"}, "master_key: there is no such option; did you mean 'admin_key'?"),
        ({"general_settings": {}}, "no groups here: the options are at the top of the file"),
        (
            {"rpm": 3},
            "rpm: there is no such option; a key and a policy have it as requests_per_minute under limits",
        ),
        (
            {"policies": {"p": {"limits": {"tpm": 3}}}},
            "p.limits.tpm: there is no such option; did you mean 'tokens_per_minute'?",
        ),
        (
            {"policies": {"p": {"limits": {"max_parallel_requests": 3}}}},
            "limits.max_parallel_requests: there is no such option; did you mean 'concurrent_requests'?",
        ),
        (
            {"keys": {"alice": {"hash": f"sha256:{'0' * 64}", "key": "hunter2"}}},
            "there is no such option; did you mean 'hash'? `weir config key` prints a new key and its hash",
        ),
        ({"zebra": 3}, "zebra: there is no such option"),
        (
            {"upstream": [{"url": "http://a/v1", "nmae": "x"}]},
            "upstream.0.nmae: there is no such option; did you mean 'name'?",
        ),
        (
            {"hooks": [{"path": "x", "agrs": {}}]},
            "hooks.0.agrs: there is no such option; did you mean 'args'?",
        ),
        ({"hooks": [{"path": "x", "mode": "shdow"}]}, "or 'shadow'; did you mean 'shadow'?"),
        ({"engine": "replay"}, "engine 'replay' needs recordings: --recordings DIR"),
    ],
    ids=str,
)
def test_a_problem_names_its_place_and_what_was_meant(given: dict[str, Any], says: str) -> None:
    (problem,) = problems_of(ServeSettings, **given)
    assert problem.endswith(says)


def test_options_in_mappings_are_known_too() -> None:
    (problem,) = problems_of(Outer, policies={"strict": {"max_tokns": 3}})
    assert problem == "policies.strict.max_tokns: there is no such option; did you mean 'max_tokens'?"


def test_all_problems_are_told_and_no_value() -> None:
    found = problems_of(ServeSettings, port="sk-secret", hook_timeout="sk-secret", api_keys="sk-secret")
    assert len(found) == 3
    assert "sk-secret" not in "".join(found)


def test_the_names_of_other_servers_lead_to_options_that_exist() -> None:
    groups: list[Any] = [ServeSettings, ModelSettings, PolicySettings, KeySettings, RealLimits]
    known = {name for group in groups for name in options_of(group)}
    known |= {field.name for group in (UpstreamConfig, HookSpec) for field in fields(group)}
    for name, options in elsewhere._OPTIONS.items():
        assert set(options) <= known, name
    top = set(options_of(ServeSettings))
    assert not top & (elsewhere._OPTIONS.keys() | elsewhere._WORDS.keys())
