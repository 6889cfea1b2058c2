from tests.engine.device.conftest import runner  # noqa: F401
