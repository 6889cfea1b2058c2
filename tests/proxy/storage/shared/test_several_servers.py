"""Servers that share a state and a store: budgets hold for all of them, and usage is told of all."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.service.operator.operator_store import OperatorStore
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Client, Serve
from tests.proxy.http.admin.conftest import ADMIN, ask
from tests.proxy.service.test_budgets import Clock
from tests.proxy.service.test_quotas import CHATS, ten_tokens

NUM_SERVERS = 3
BUDGETS = [("tokens_per_day", 100, 10), ("requests_per_month", 8, 8)]
"""A limit, and how many requests of ten tokens it lets in, one after another."""


@pytest.fixture(params=["files", "servers"])
async def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The URLs of an empty state, and of a store that others may have used."""
    if request.param == "files":
        return f"sqlite:///{tmp_path}/state.sqlite", f"sqlite:///{tmp_path}/weir.sqlite"
    redis, postgresql = (request.getfixturevalue(f"{name}_place") for name in ("redis", "postgresql"))
    await redis.wipe()
    return redis.url, postgresql.url


@pytest.mark.parametrize(("limit", "most", "num_let_in"), BUDGETS)
async def test_budgets_and_usage_add_up_over_servers_and_restarts(
    serve: Serve, urls: tuple[str, str], limit: str, most: int, num_let_in: int
) -> None:
    name = f"alice-{limit}"

    async def start() -> Client:
        state, store = map(SecretStr, urls)
        engine = ScriptedEngine(ten_tokens)
        return await serve(engine, admin_key=[SecretStr(ADMIN)], state=state, store=store, clock=Clock())

    async def statuses(client: Client, key: dict[str, str], num: int) -> list[int]:
        return [(await client.post(CHATS, CHAT, headers=key))[0] for _ in range(num)]

    async def usage(client: Client) -> list[dict[str, Any]]:
        for other in servers:
            await operator_of(other).decisions.flush()  # in at most ten seconds, it does so by itself
        (row,) = (await ask(client, "GET", f"/admin/usage?by=key&key={name}"))[1]["data"]
        return [row[count] for count in ("requests", "prompt_tokens", "completion_tokens")]

    servers = [await start() for _ in range(NUM_SERVERS)]
    _, made = await ask(servers[0], "POST", "/admin/keys", {"name": name, "limits": {limit: most}})
    key = {"Authorization": f"Bearer {made['key']}"}
    for client in servers[1:]:
        await operator_of(client).keys.refresh()
    for client in servers:
        assert await statuses(client, key, 2) == [200, 200]
    assert await usage(servers[2]) == [6, 24, 36]
    await servers.pop().server.stop()
    servers.append(await start())
    found = [one for client in servers for one in await statuses(client, key, 2)]
    assert found.count(200) == num_let_in - 6
    assert found.count(429) == 6 - found.count(200)
    expected = [num_let_in, 4 * num_let_in, 6 * num_let_in]
    assert [await usage(client) for client in servers] == [expected] * NUM_SERVERS


def operator_of(client: Client) -> OperatorStore:
    operator = client.server.service.operator
    assert isinstance(operator, OperatorStore)
    return operator
