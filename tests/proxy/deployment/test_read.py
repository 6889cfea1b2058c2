"""Models, policies and keys as the settings give them."""

from typing import Any

import pytest
from pydantic import ValidationError

from proxy.deployment.build import build
from proxy.deployment.checks.directory import directory_faults
from proxy.deployment.keys import digest_of
from proxy.deployment.read import directory_of
from proxy.settings.model import UPSTREAM_ENGINES
from proxy.settings.serve import ServeSettings

HASH = f"sha256:{digest_of(b'k')}"
MODELS: dict[str, Any] = {"a": {"engine": "echo", "aliases": ["alias"]}, "b": {"engine": "echo"}}
POLICIES: dict[str, Any] = {"strict": {"hooks": ["pii"]}, "lax": {}}


def settings(**given: Any) -> ServeSettings:
    return ServeSettings(**{"models": MODELS, "policies": POLICIES, "default_policy": "strict", **given})


def test_without_models_and_policies_there_is_one_of_each() -> None:
    found = directory_of(ServeSettings(engine="echo", hooks=["pii"], hook_timeout=3, api_key=["k"]))
    assert list(found.models) == ["echo"]
    assert [spec.path for spec in found.policies["default"].settings.hooks] == ["pii"]
    assert (found.policies["default"].settings.options.hook_timeout, found.default_policy) == (3, "default")
    (key,) = found.keys.values()
    assert (key.name, key.tenant, key.digest) == ("", "default", digest_of(b"k"))


def test_the_options_beside_models_and_policies_are_the_defaults_of_each() -> None:
    found = directory_of(
        settings(
            engine="openai",
            upstream=["http://127.0.0.1:1/v1"],
            upstream_retries=7,
            tokenizer="folder",
            logits_processors=["x=a.B"],
            models={"a": {}, "b": {"upstream_retries": 0}, "c": {"engine": "echo"}},
            hook_timeout=3,
            policies={"one": {}, "two": {"hook_timeout": 4}},
            default_policy="one",
        )
    )
    models = found.models
    assert [one.engine for one in models.values()] == ["openai", "openai", "echo"]
    assert [one.parts.pool.upstream_retries for one in models.values()] == [7, 0, 7]
    assert (models["a"].local.tokenizer, models["c"].local.tokenizer) == ("folder", None)
    assert [policy.settings.options.hook_timeout for policy in found.policies.values()] == [3, 4]


@pytest.mark.parametrize("engine", UPSTREAM_ENGINES)
def test_an_upstream_is_asked_for_the_model_by_its_own_name(engine: str) -> None:
    model = {"engine": engine, "upstream": "http://127.0.0.1:1", "aliases": ["alias"]}
    found = directory_of(settings(models={"a": model, "b": {**model, "upstream_model": "c", "aliases": []}}))
    assert [one.upstream_model for one in found.models.values()] == ["a", "c"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"default_policy": "strickt"},
            "default_policy: there is no policy 'strickt'; did you mean 'strict'?",
        ),
        (
            {"models": {"a": {"engine": "echo", "policy": "laax"}}},
            "models.a.policy: there is no policy 'laax'; did you mean 'lax'?",
        ),
        (
            {"keys": {"k": {"hash": HASH, "models": ["alais"]}}},
            "keys.k.models: there is no model 'alais'; did you mean 'alias'?",
        ),
        (
            {"keys": {"k": {"hash": HASH, "policy": {"aa": "strict"}}}},
            "keys.k.policy: there is no model 'aa'",
        ),
        (
            {"keys": {"k": {"hash": HASH, "policy": {"alias": "lax", "a": "strict"}}}},
            "keys.k.policy: a and alias are one model, with several policies",
        ),
        ({"api_key": ["k"], "keys": {"k": {"hash": HASH}}}, "keys.k.hash: api_key has the same one"),
        ({"keys": {"k": {"hash": HASH, "policy": "no"}}}, "keys.k.policy: there is no policy 'no'"),
        ({"models": {**MODELS, "c": {"engine": "echo", "aliases": ["b"]}}}, "models.c: b is called 'b' too"),
        ({"keys": {"k": {"hash": HASH}, "j": {"hash": HASH}}}, "keys.j.hash: k has the same one"),
        (
            {"default_policy": None, "keys": {"k": {"hash": HASH, "policy": {"a": "lax"}}}},
            "keys.k: for the model 'b' no policy is named by the key, the model or default_policy",
        ),
        (
            {"default_policy": None},
            "models: for the model 'a' no policy is named by the key, the model or default_policy",
        ),
        (
            {"policies": {"strict": {"logits_processors": ["x"]}}},
            "models: the model 'a' has no logits for the logits processors of 'strict'",
        ),
        (
            {"models": {"a": {}}, "policies": {"strict": {"logits_processors": ["x"]}}},
            "policies.strict.logits_processors: there is no logits processor 'x'",
        ),
        (
            {
                "models": {"a": {"logits_processors": [{"name": "x", "path": "x.X", "mandatory": True}]}},
                "policies": {"strict": {"logits_processors": ["x"]}},
            },
            "policies.strict.logits_processors: 'x' is mandatory for the model 'a': it would run twice",
        ),
    ],
)
async def test_what_is_wrong_between_settings_is_told_and_keeps_the_server_from_starting(
    given: dict[str, Any], told: str
) -> None:
    wrong = settings(**given)
    assert any(str(fault).startswith(told) for fault in directory_faults(wrong)), directory_faults(wrong)
    with pytest.raises(ValueError, match="the settings are wrong"):
        await build(wrong)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"hooks": ["pii"]}, "hooks: with policies"),
        ({"served_model_name": ["x"]}, "served_model_name: each of several models"),
        ({"models": {"a": {"engine": "openai"}}}, "needs an upstream"),
        ({"keys": {"k": {"hash": "hunter2"}}}, "weir config key makes one"),
        ({"models": {"a": {"engin": "echo"}}}, "Extra inputs are not permitted"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(**given)
    assert told in str(refused.value)


def test_one_policy_needs_no_default() -> None:
    assert directory_of(settings(policies={"only": {}}, default_policy=None)).default_policy == "only"


def test_an_earlier_value_that_another_key_has_is_a_fault() -> None:
    earlier = {"hash": HASH, "until": "2200-01-01T00:00:00Z"}
    other = f"sha256:{digest_of(b'other')}"
    faults = directory_faults(
        settings(keys={"ann": {"hash": HASH}, "bob": {"hash": other, "previous": earlier}})
    )
    assert [str(fault) for fault in faults] == ["keys.bob.previous: ann has the same one"]
