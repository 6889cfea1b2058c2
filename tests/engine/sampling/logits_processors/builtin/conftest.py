"""Makes processors that ship."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.sampling.logits_processors import Context
from tests.engine.sampling.logits_processors.builtin.rows import registered_as


@pytest.fixture
def built(context: Context) -> Callable[..., Any]:
    """`built("bad_words", {"bad_words": [...]}, **args)` makes a processor as for a sequence."""

    def make(name: str, params: dict[str, Any] | None = None, **args: Any) -> Any:
        registered = registered_as(name, context, **args)
        return registered.build(params=registered.validate(params or {}))

    return make
