"""A server with an admin key, and its operator."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from proxy.service.operator.operator_store import OperatorStore
from proxy.service.service import Service
from proxy.storage.operator.store import Store
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import Client, Serve, hello

ADMIN = "a-key-of-the-operator"
OPERATOR = {"Authorization": f"Bearer {ADMIN}"}

Operate = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
async def client(serve: Serve, tmp_path: Path) -> Client:
    store = SecretStr(f"sqlite:///{tmp_path}/weir.sqlite")
    return await serve(ScriptedEngine(hello), admin_key=[SecretStr(ADMIN)], store=store)


def store_of(service: Service) -> Store:
    assert isinstance(service.operator, OperatorStore)
    return service.operator.store


async def ask(
    client: Client, method: str, path: str, body: Any = None, *, base: str | None = None, **headers: str
) -> tuple[int, Any]:
    """The status and the JSON of an answer to the operator."""
    sent = OPERATOR | {name.replace("_", "-"): value for name, value in headers.items()}
    url = (base or client.url) + path
    async with client.http.request(method, url, json=body, headers=sent) as response:
        return response.status, orjson.loads(await response.read())


@pytest.fixture
def operate(client: Client) -> Operate:
    async def call(method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        return await ask(client, method, path, body, **options)

    return call
