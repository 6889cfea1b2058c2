"""A start puts garbage collections off, and a ready server has them."""

import gc
from collections.abc import Iterator

import pytest

from proxy.cli.cli import main
from proxy.settings.serve import ServeSettings
from proxy.workers.run import running


@pytest.fixture(autouse=True)
def _collections() -> Iterator[None]:
    yield
    gc.enable()
    gc.unfreeze()


async def test_a_ready_server_collects_garbage_and_leaves_out_what_lives_to_the_end() -> None:
    gc.disable()
    gc.unfreeze()  # the tests' own start has frozen objects, too
    async with running(ServeSettings(engine="echo", port=0)):
        assert gc.isenabled()
        assert gc.get_freeze_count() > 10_000
        assert len(gc.get_objects()) < gc.get_freeze_count()


def test_a_start_that_fails_leaves_collections_on() -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--no-such-option"])
    assert gc.isenabled()
