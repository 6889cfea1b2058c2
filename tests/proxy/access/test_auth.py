"""API keys."""

import orjson

from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Serve, hello, send

CHATS = "/v1/chat/completions"


async def test_the_key_is_checked_on_every_path_except_health_and_ready(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), api_key=["k1", "k2"])
    for path in ("/v1/models", "/metrics", "/version", "/openapi.json", "/nothing"):
        assert (await client.get(path))[0] == 401
    assert (await send(client, CHATS, orjson.dumps(CHAT)))[0] == 401
    for wrong in ("Bearer k3", "Bearer ", "Basic k1", "k1", "Bearer k\u00e91"):
        assert (await send(client, CHATS, orjson.dumps(CHAT), Authorization=wrong))[0] == 401
    for path in ("/health", "/ready"):
        assert (await client.get(path))[0] == 200
    for key in ("k1", "k2"):
        status, _, _ = await client.post(CHATS, CHAT, headers={"Authorization": f"Bearer {key}"})
        assert status == 200
