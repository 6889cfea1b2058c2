"""The rule that gives a request its model and its policy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import RequestError
from proxy.deployment.deployment import Deployment
from proxy.deployment.directory import Directory, PolicyEntry
from proxy.deployment.explain import explain
from proxy.deployment.keys import Key
from proxy.settings.model import ModelSettings
from proxy.settings.policy import PolicySettings
from proxy.wire.errors import APIError
from tests.helpers import ScriptedEngine, pipeline_of

ECHO = ModelSettings(engine="echo")
POLICIES = [PolicyEntry(name, PolicySettings()) for name in ("strict", "lax", "medium")]


def directory(*keys: Key, of_model: str | None = None, default: str | None = "medium") -> Directory:
    models = [ECHO.named(("a", "alias"), policy=of_model), ECHO.named(("b",))]
    return Directory(models, POLICIES, keys, default)


@pytest.mark.parametrize(
    ("policy", "of_model", "expected", "reason"),
    [
        ({"a": "strict"}, "lax", "strict", "the key's policy for this model"),
        ({"alias": "strict"}, "lax", "strict", "the key's policy for this model"),
        ({"b": "strict"}, "lax", "lax", "the model's policy"),
        ("strict", "lax", "strict", "the key's policy"),
        (None, "lax", "lax", "the model's policy"),
        (None, None, "medium", "the default policy"),
    ],
)
def test_a_policy_is_the_key_s_for_the_model_or_the_key_s_or_the_model_s_or_the_default_one(
    policy: str | dict[str, str] | None, of_model: str | None, expected: str, reason: str
) -> None:
    for asked in ("a", "alias", None):
        choice = directory(of_model=of_model).choose(Key(policy=policy), asked)
        assert (choice.model.name, choice.policy.name, choice.reason) == ("a", expected, reason)


def test_without_any_policy_the_key_cannot_use_the_model() -> None:
    with pytest.raises(APIError) as refused:
        directory(default=None).choose(Key(policy={"b": "strict"}), "a")
    assert refused.value.status == 403


@pytest.mark.parametrize("asked", ["a", "alias", "unknown", ""])
def test_a_model_that_a_key_may_not_use_is_as_unknown_as_one_that_there_is_not(asked: str) -> None:
    with pytest.raises(RequestError) as refused:
        directory().choose(Key(models=("b",)), asked)
    assert (refused.value.status, refused.value.code) == (404, "model_not_found")
    assert "alias" not in str(refused.value).replace(repr(asked), "")


def test_without_a_model_in_the_request_the_key_gets_its_first() -> None:
    assert directory().choose(Key(models=("b",)), None).model.name == "b"
    with pytest.raises(RequestError):
        directory().choose(Key(models=()), None)


NAMES = st.sampled_from(["a", "b", "c", "x", "y", "z"])
POLICY = st.sampled_from([policy.name for policy in POLICIES])
MODELS = st.lists(st.tuples(NAMES, st.none() | POLICY), min_size=1, max_size=4, unique_by=lambda one: one[0])
KEYS = st.builds(
    Key,
    policy=st.none() | POLICY | st.dictionaries(NAMES, POLICY, max_size=3),
    models=st.none() | st.lists(NAMES, max_size=3).map(tuple),
)


@given(MODELS, KEYS, st.none() | POLICY, st.none() | NAMES)
def test_the_policy_that_runs_is_the_one_that_is_explained(
    models: list[tuple[str, str | None]], key: Key, default: str | None, asked: str | None
) -> None:
    """Every second model is an alias's owner: `A` for `a`."""
    entries = [ECHO.named((name.upper(), name), policy=policy) for name, policy in models]
    found = Directory(entries, POLICIES, [key], default)
    pipelines = {policy.name: pipeline_of() for policy in POLICIES}
    engines = {entry.name: ScriptedEngine(lambda _: []) for entry in entries}
    deployment = Deployment(found, engines, pipelines)
    try:
        explained = explain(found, key, asked)
    except (RequestError, APIError) as refusal:
        with pytest.raises(type(refusal)):
            deployment.route(key, asked)
        return
    route = deployment.route(key, asked)
    assert route.policy.pipeline is pipelines[explained["policy"]]
    assert route.model.engine is engines[explained["model"]]
    assert asked is None or asked in route.model.listed
    wanted = key.policy if isinstance(key.policy, dict) else {}
    own = wanted.get(route.model.name) or wanted.get(route.model.names[1])
    whole = key.policy if isinstance(key.policy, str) else None
    assert explained["policy"] == (own or whole or dict(models)[route.model.names[1]] or default)
