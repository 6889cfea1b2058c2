import pytest

from engine.device.kernels.cpu.native_library import Library
from tests.engine.device.kernels.cpu.builds import BUILDS, library_of


@pytest.fixture(scope="module", params=BUILDS, ids=" ".join)
def library(request: pytest.FixtureRequest) -> Library:
    """Each test runs with every instruction set that this machine has."""
    return library_of(*request.param)
