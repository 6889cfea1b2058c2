"""The promises of every engine (`tests/engine/upstream/test_contract.py`), on vLLM."""

from typing import Any

import pytest

from tests.engine.upstream.test_contract import *  # noqa: F403
from tests.engine.upstream.test_contract import Backend, request

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("default"),
]
bad = request(prompts=((10**9,),))


@pytest.fixture  # type: ignore[no-redef]
def backend(vllm_engine: Any) -> Backend:
    return Backend(vllm_engine, bad)
