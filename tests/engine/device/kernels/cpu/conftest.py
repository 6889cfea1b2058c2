import pytest

from engine.device.kernels.cpu.native_library import Library
from tests.engine.device.kernels.cpu.builds import BUILDS, library_of


@pytest.fixture(scope="module", params=BUILDS)
def library(request: pytest.FixtureRequest) -> Library:
    """Several of the instruction sets that this machine has; with the slow tests, all of them."""
    return library_of(*request.param)
