"""A store, in each database that it may be in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from proxy.settings.storage import StoreOptions
from proxy.storage.operator.store import Store
from tests.proxy.storage.shared.conftest import Place, postgresql_place

__all__ = ["postgresql_place"]


@pytest.fixture(params=["file", "memory", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    options = StoreOptions()
    if request.param == "file":
        options = StoreOptions(store=SecretStr(f"sqlite:///{tmp_path}/weir.sqlite"))
    elif request.param == "postgresql":
        place: Place = request.getfixturevalue("postgresql_place")
        options = StoreOptions(store=SecretStr(place.url))
    store = Store(options, has_admin_key=False)
    await store.start()
    yield store
    await store.aclose()
