"""A server whose shared state does not answer."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from pydantic import SecretStr, ValidationError

from proxy.storage.query import StateError
from tests.proxy.conftest import CHAT, Serve
from tests.proxy.response_helpers import ASK, PATH, check_events, saying
from tests.proxy.storage.shared.conftest import free_port, listening

CHATS = "/v1/chat/completions"


@pytest.fixture
def redis() -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """A server of its own."""
    pytest.importorskip("redis")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    with listening([program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""], port) as process:
        yield process, f"redis://127.0.0.1:{port}"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_what_needs_the_state_is_refused_and_the_rest_goes_on(
    serve: Serve, redis: Any, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    process, url = redis
    client = await serve(saying("a"), state=SecretStr(url))
    state: Any = client.server.service.state
    stored = check_events(await client.stream(PATH, ASK))
    assert stored["store"] is True
    assert (await client.get(f"{PATH}/{stored['id']}"))[0] == 200
    os.kill(process.pid, number)
    state._timeout = 0.2
    again = {**ASK, "previous_response_id": stored["id"]}
    for status, body, headers in [
        await client.post(PATH, again),
        await client.post(PATH, {**ASK, "input": [{"type": "item_reference", "id": "msg_1"}]}),
    ]:
        assert (status, headers["Retry-After"]) == (503, "1")
        assert body["error"]["message"] == "What this request needs cannot be reached now."
    status, raw = await client.get(f"{PATH}/{stored['id']}")
    assert (status, orjson.loads(raw)["error"]["type"]) == (503, "server_error")
    assert (await client.post(CHATS, CHAT))[0] == 200
    assert (await client.stream(CHATS, CHAT)).content() == "a"
    status, body, _ = await client.post(PATH, ASK)
    assert (status, body["store"]) == (200, False)
    assert check_events(await client.stream(PATH, ASK))["store"] is False
    limited = [one for one in caplog.records if "for this process alone" in one.message]
    assert len(limited) == 1, "once a minute"
    if number == signal.SIGSTOP:
        process.send_signal(signal.SIGCONT)
        state._timeout = 600.0
        while (await client.get(f"{PATH}/{stored['id']}"))[0] != 200:
            await asyncio.sleep(0.01)
        assert (await client.post(PATH, again))[1]["store"] is True


@pytest.mark.parametrize("scheme", ["redis", "postgresql"])
async def test_a_server_whose_state_cannot_be_reached_does_not_start(serve: Serve, scheme: str) -> None:
    """The reason has no password."""
    pytest.importorskip({"redis": "redis", "postgresql": "asyncpg"}[scheme])
    url = f"{scheme}://somebody:hunter2@127.0.0.1:{free_port()}/0"
    with pytest.raises(StateError) as raised:
        await serve(saying("a"), state=SecretStr(url))
    assert "does not answer" in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("somebody:hunter2/x@127.0.0.1/0", ValidationError),
        ("somebody@127.0.0.1:hunter2/0", ValidationError),
        ("somebody:hunter2@127.0.0.1/0?sslmode=hunter2", StateError),
    ],
)
async def test_the_reason_that_a_url_cannot_be_used_has_no_password(
    serve: Serve, address: str, error: type[Exception]
) -> None:
    """A slash in a password makes it a port."""
    pytest.importorskip("asyncpg")
    with pytest.raises(error) as raised:
        await serve(saying("a"), state=SecretStr(f"postgresql://{address}"))
    assert "hunter2" not in f"{raised.value!r} {raised.value.__cause__!r}"
