"""Which engine the settings ask for."""

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
def test_answers_are_shared_by_the_cache_where_no_hook_can_run(settings: ServeSettings, shares: bool) -> None:
    """Contract 6.4."""
    engine, _ = make_engine(settings)
    assert isinstance(engine, LocalEngine)
    assert engine.config.share_outputs is shares
