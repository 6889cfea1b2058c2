"""Real models, which `make test-real` fetches (tools/models.py)."""

from pathlib import Path

import pytest

from benchmarks.perplexity import unpack
from tests.weir import ROOT


def _fetched(name: str) -> Path:
    path = ROOT / "build/models" / f"{name}.gguf"
    if not path.is_file():
        pytest.skip(f"{path} is not there: make test-real fetches it")
    return path


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, in Q4_1 and Q8_0."""
    return _fetched("smollm2")


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """Gemma 3 270M, a base model, in Q8_0, Q5_0, Q4_K and Q6_K."""
    return _fetched("gemma3-270m")


@pytest.fixture(scope="session", params=["smollm2", "gemma3"])
def unpacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of each model with its weights in bfloat16."""
    file: Path = request.getfixturevalue(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    unpack(str(file), folder)
    return folder
