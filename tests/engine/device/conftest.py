from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.execution.model_runner import ModelRunner
from tests.engine.device.steps import pools
from tests.helpers import slow

FAMILIES = [slow("llama"), "qwen3", "mistral"]


@pytest.fixture(params=FAMILIES)
def runner(request: pytest.FixtureRequest, tiny_core: Callable[..., Any]) -> ModelRunner:
    """A runner of a tiny decoder, with random numbers in every block of its cache."""
    runner: ModelRunner = tiny_core(request.param, model_impl="weir", cpu_kernels="torch").core.runner
    for pool in pools(runner):
        pool.normal_(generator=torch.manual_seed(2))
    return runner
