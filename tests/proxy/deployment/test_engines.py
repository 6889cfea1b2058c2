"""The settings choose the engine."""

import re
from typing import Any

import pytest

from engine.local.engine import LocalEngine
from engine.protocol.demo import GENERATIVE_GUARD_DIR, STREAM_GUARD_DIR
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.pool.engine import PoolEngine
from engine.upstream.pool.routing import LeastOutstanding, PrefixAffinity
from hooks.loading.loader import HookSpec
from proxy.deployment.build import build
from proxy.deployment.engines import make_classifier, make_engine
from proxy.settings.model import ModelSettings
from proxy.settings.serve import ServeSettings
from tests.helpers import pooled

HOOK = "examples/upper_case.py:UpperCase"


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        (ServeSettings(), True),
        (ServeSettings(hooks=[HookSpec(HOOK)]), False),
        (ServeSettings(allowed_hooks=[HookSpec(HOOK)]), False),
        (ServeSettings(post_processor_hook=HOOK), False),
    ],
    ids=["none", "hooks", "allowed", "post-processor"],
)
async def test_the_cache_shares_answers_only_if_no_hook_can_run(
    settings: ServeSettings, shares: bool
) -> None:
    """Contract 6.4."""
    (model,) = (await build(settings)).models.values()
    assert isinstance(model.engine, LocalEngine)
    assert model.engine.config.share_outputs is shares


@pytest.mark.parametrize("option", ["model", "speculative_model"])
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("./nowhere", "there is no model folder and no GGUF file ./nowhere"),
        ("", "give a model's folder, its GGUF file or its hub name"),
        ("examples", "the folder examples has no model: config.json is missing"),
    ],
)
def test_a_folder_without_a_model_is_told_by_its_option(option: str, model: str, reason: str) -> None:
    given: dict[str, Any] = {"num_speculative_tokens": 2, "speculative_model": None, option: model}
    settings = ModelSettings(**given)
    with pytest.raises(ValueError, match=f"^--{option.replace('_', '-')}: {re.escape(reason)}$"):
        make_engine(settings)


def pool_of(upstream: Any, **settings: Any) -> PoolEngine:
    engine = make_engine(pooled(upstream=upstream, **settings))
    assert isinstance(engine, PoolEngine)
    return engine


def test_one_upstream_is_a_pool_of_one() -> None:
    assert list(pool_of("http://me:hunter2@host:8001/v1").replicas) == ["host:8001"]


def test_upstreams_have_names_weights_keys_and_models_of_their_own() -> None:
    pool = pool_of(
        [
            {"url": "http://a", "name": "big", "weight": 3, "api_key": "own", "model": "theirs"},
            {"url": "http://b", "max_connections": 4},
        ],
        upstream_api_key="common",
        upstream_max_connections=9,
    )
    big, other = pool.replicas.values()
    assert (big.name, other.name) == ("big", "b")
    assert (big.weight, other.weight) == (3.0, 1.0)
    assert (big.max_connections, other.max_connections) == (9, 4)
    engines = [replica.engine for replica in (big, other)]
    assert [e._headers["Authorization"] for e in engines if isinstance(e, OpenAIEngine)] == [
        "Bearer own",
        "Bearer common",
    ]
    assert [e.model for e in engines if isinstance(e, OpenAIEngine)] == ["theirs", None]


def test_two_upstreams_of_one_name_are_refused_without_their_password() -> None:
    with pytest.raises(ValueError, match="two upstreams are called host: give each a name") as caught:
        pool_of(["http://me:hunter2@host/one", "http://host/two"])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("name", "routing"), [("affinity", PrefixAffinity), ("least", LeastOutstanding)])
def test_the_settings_choose_the_routing(name: str, routing: type) -> None:
    assert type(pool_of("http://a", routing=name)._routing) is routing


def test_zero_turns_timeouts_and_checks_off() -> None:
    pool = pool_of(["http://a", "http://b"], upstream_first_token_timeout=0, upstream_health_interval=0)
    assert (pool._first_token_timeout, pool._health._interval) == (None, None)


def test_a_model_for_guards_may_be_one_that_ships() -> None:
    classifier = make_classifier(ModelSettings(model="weir-demo-stream-guard", only_guards=True))
    assert classifier.config.model == str(STREAM_GUARD_DIR)
    generator = make_engine(ModelSettings(model="weir-demo-guard", only_guards=True))
    assert isinstance(generator, LocalEngine)
    assert generator.config.model == str(GENERATIVE_GUARD_DIR)
