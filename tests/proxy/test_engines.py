"""The settings choose the engine."""

import pytest

from engine.backends.local import LocalEngine
from hooks.loading.loader import HookSpec
from proxy.config import ServeSettings
from proxy.engines import make_engine

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
def test_the_cache_shares_answers_only_if_no_hook_can_run(settings: ServeSettings, shares: bool) -> None:
    """Contract 6.4."""
    engine, _ = make_engine(settings)
    assert isinstance(engine, LocalEngine)
    assert engine.config.share_outputs is shares
