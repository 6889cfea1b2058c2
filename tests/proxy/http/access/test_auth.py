"""API keys."""

from pathlib import Path

import orjson

from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Serve, hello, send

CHATS = "/v1/chat/completions"


async def test_the_key_is_checked_on_every_path_except_health_and_ready(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), api_key=["k1", "k2"])
    for path in ("/v1/models", "/version", "/openapi.json", "/nothing"):
        assert (await client.get(path))[0] == 401
    assert (await send(client, CHATS, orjson.dumps(CHAT)))[0] == 401
    for wrong in ("Bearer k3", "Bearer ", "Basic k1", "k1", "Bearer k\u00e91"):
        assert (await send(client, CHATS, orjson.dumps(CHAT), Authorization=wrong))[0] == 401
    for path in ("/health", "/ready"):
        assert (await client.get(path))[0] == 200
    for key in ("k1", "k2"):
        status, _, _ = await client.post(CHATS, CHAT, headers={"Authorization": f"Bearer {key}"})
        assert status == 200


async def test_a_key_of_the_file_is_accepted(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("k1\nk2\n")
    client = await serve(ScriptedEngine(hello), api_key=["k3"], api_key_file=tmp_path / "keys")
    for key, status in (("k1", 200), ("k2", 200), ("k3", 200), ("k1\nk2", 401), ("", 401)):
        headers = {"Authorization": f"Bearer {key}".replace("\n", " ")}
        assert (await client.post(CHATS, CHAT, headers=headers))[0] == status
