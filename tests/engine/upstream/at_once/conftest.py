from tests.event_loops import both as pytest_asyncio_loop_factories  # noqa: F401
