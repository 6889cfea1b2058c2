"""`/admin/recordings`."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from engine.streams.recorder import RecordingEngine
from engine.upstream.echo import EchoEngine
from tests.helpers import until
from tests.proxy.conftest import CHAT, Client, Serve
from tests.proxy.http.admin.conftest import ADMIN, OPERATOR, ask


@pytest.fixture
async def client(serve: Serve, tmp_path: Path, request: pytest.FixtureRequest) -> Client:
    folder = tmp_path / "tapes"
    settings: dict[str, Any] = {
        "admin_key": [SecretStr(ADMIN)],
        "store": SecretStr(f"sqlite:///{tmp_path}/weir.sqlite"),
        "record": folder,
        **getattr(request, "param", {}),
    }
    client = await serve(RecordingEngine(EchoEngine(), folder, max_bytes=10**6), **settings)
    for _ in range(2):
        await client.post("/v1/chat/completions", CHAT)
    await until(lambda: len(list(folder.glob("*.jsonl"))) == 2)
    return client


async def ids(client: Client, query: str = "") -> list[str]:
    status, body = await ask(client, "GET", f"/admin/recordings{query}")
    assert status == 200
    return [one["id"] for one in body["data"]]


READS = pytest.mark.parametrize("client", [{"read_recordings": True}], indirect=True)


@READS
async def test_recordings_are_listed_read_and_removed(client: Client, tmp_path: Path) -> None:
    newest, oldest = await ids(client)
    assert newest > oldest
    async with client.http.get(f"{client.url}/admin/recordings/{newest}", headers=OPERATOR) as response:
        assert response.content_type == "application/x-ndjson"
        assert await response.read() == (tmp_path / "tapes" / f"{newest}.jsonl").read_bytes()
    status, body = await ask(client, "DELETE", f"/admin/recordings/{newest}")
    assert (status, body["deleted"]) == (200, True)
    assert await ids(client) == [oldest]
    _, body = await ask(client, "GET", "/admin/changes")
    assert (body["data"][0]["action"], body["data"][0]["object"]) == ("delete_recording", newest)
    assert (await ask(client, "DELETE", f"/admin/recordings/{newest}"))[0] == 404


async def test_the_list_has_pages(client: Client, tmp_path: Path) -> None:
    (tmp_path / "tapes" / "99999999T000000000000-x.jsonl").write_bytes(b"no recording")
    newest, oldest = await ids(client)
    _, page = await ask(client, "GET", "/admin/recordings?limit=1")
    assert (page["data"][0]["id"], page["next_cursor"]) == (newest, newest)
    assert await ids(client, f"?limit=1&cursor={newest}") == [oldest]
    assert await ids(client, "?until=1000") == []
    assert page["data"][0]["bytes"] > 0


async def test_recordings_are_read_only_where_a_setting_allows_it(client: Client) -> None:
    newest, _ = await ids(client)
    status, body = await ask(client, "GET", f"/admin/recordings/{newest}")
    assert status == 403
    assert "--read-recordings" in body["error"]["message"]


@READS
@pytest.mark.parametrize("name", ["%2e%2e%2fweir.sqlite", "..%2Ftapes%2Fx", "20000101T000000000000-x", "x"])
async def test_no_other_file_is_read(client: Client, name: str) -> None:
    assert (await ask(client, "GET", f"/admin/recordings/{name}"))[0] == 404


@READS
async def test_nobody_but_the_operator_reads_them(client: Client) -> None:
    newest, _ = await ids(client)
    for path in ("/admin/recordings", f"/admin/recordings/{newest}"):
        assert (await client.get(path))[0] == 401


async def test_a_newcomer_reads_no_recording(serve: Serve, tmp_path: Path) -> None:
    engine = RecordingEngine(EchoEngine(), tmp_path, max_bytes=10**6)
    client = await serve(engine, record=tmp_path, read_recordings=True)
    await client.post("/v1/chat/completions", CHAT)
    await until(lambda: bool(list(tmp_path.glob("*.jsonl"))))
    status, body = await client.get("/admin/recordings")
    assert status == 200
    (one,) = orjson.loads(body)["data"]
    assert (await client.get(f"/admin/recordings/{one['id']}"))[0] == 403
