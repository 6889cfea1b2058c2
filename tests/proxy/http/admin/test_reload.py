"""A new configuration while the server runs."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from proxy.deployment.build import build
from proxy.deployment.deployment import Deployment
from proxy.http.app import Server
from proxy.settings.serve import load_settings
from proxy.storage.query import StateError
from proxy.wire.errors import APIError
from proxy.workers.reload import FinishReload, PrepareReload, ReloadAnswers
from tests.helpers import until
from tests.proxy.conftest import Client
from tests.proxy.http.admin.conftest import ADMIN, OPERATOR, ask, store_of

CHATS = "/v1/chat/completions"
HOOK = """
import asyncio
from hooks import emit

closed = []


class Marks:
    def __init__(self, mark):
        self.mark = mark

    async def __call__(self, chunk):
        if "wait" in chunk.pending:
            await waits.wait()
        return emit(chunk.pending.replace("x", self.mark))

    def close(self):
        closed.append(self.mark)


waits = asyncio.Event()
"""


class Reloadable:
    """A server that is started from a YAML file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "weir.yaml"

    def write(self, mark: str = "A", more: str = "", hook: str = "marks.py:Marks") -> None:
        self.file.write_text(
            f"""
engine: echo
served_model_name: [m]
port: 0
admin_key: [{ADMIN}]
store: "sqlite:///:memory:"
hooks:
  - path: {self.folder}/{hook}
    args: {{mark: {mark}}}
{more}"""
        )

    async def start(self, stack: AsyncExitStack) -> Client:
        read = partial(load_settings, ["--config", str(self.file)])
        settings = read()
        server = Server(await build(settings), settings)
        server.service.reloads.read = read
        url = await server.start()
        stack.push_async_callback(server.stop)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        return Client(url, server, http)


@pytest.fixture
async def reloadable(tmp_path: Path) -> AsyncIterator[tuple[Reloadable, Client]]:
    (tmp_path / "marks.py").write_text(HOOK)
    async with AsyncExitStack() as stack:
        one = Reloadable(tmp_path)
        one.write()
        yield one, await one.start(stack)


async def said(client: Client, text: str = "x") -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    status, answer, _ = await client.post(CHATS, body)
    assert status == 200, answer
    return str(answer["choices"][0]["message"]["content"])


async def reload(client: Client) -> tuple[int, Any]:
    return await ask(client, "POST", "/admin/reload")


async def test_new_requests_get_the_new_configuration(reloadable: tuple[Reloadable, Client]) -> None:
    one, client = reloadable
    engine = client.server.service.deployment.models["m"].engine
    assert await said(client) == "A"
    one.write("B")
    status, answer = await reload(client)
    assert (status, answer["number"], answer["models"]) == (200, 2, ["m"])
    assert await said(client) == "B"
    assert client.server.service.deployment.models["m"].engine is engine, "its settings are the same"
    (change,) = (await ask(client, "GET", "/admin/changes"))[1]["data"]
    assert (change["action"], change["detail"]["number"]) == ("reload", 2)


async def test_the_revision_of_each_policy_is_told_with_its_settings_and_with_each_reload(
    reloadable: tuple[Reloadable, Client], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    one, client = reloadable
    revisions = []
    for mark in "AB":
        one.write(mark)
        await reload(client)
        assert await said(client) == mark
        (policy,) = (await ask(client, "GET", "/admin/policies"))[1]["data"]
        assert policy["hooks"][0]["args"] == {"mark": mark}
        answered = [vars(record)["fields"] for record in caplog.records if record.name == "weir.access"]
        ran = [fields["revision"] for fields in answered if "revision" in fields][-1]
        assert policy["revision"] == ran
        revisions.append({"default": ran})
    changes = (await ask(client, "GET", "/admin/changes"))[1]["data"]
    assert [change["detail"]["revisions"] for change in reversed(changes)] == revisions
    assert revisions[0] != revisions[1]


async def test_a_change_that_was_made_is_answered_so_while_the_store_does_not_answer(
    reloadable: tuple[Reloadable, Client], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def silent(*_: Any, **__: Any) -> Any:
        raise StateError("SQLite does not answer")

    one, client = reloadable
    one.write("B")
    monkeypatch.setattr(store_of(client.server.service), "run", silent)
    assert (await reload(client))[0] == 200
    assert await said(client) == "B"
    assert "SQLite does not answer: reload configuration is in no list of changes" in caplog.text


async def test_changed_code_of_a_hook_is_read_anew(reloadable: tuple[Reloadable, Client]) -> None:
    one, client = reloadable
    (one.folder / "marks.py").write_text(HOOK.replace("self.mark)", "self.mark.lower())"))
    assert (await reload(client))[0] == 200
    assert await said(client) == "a"


@pytest.mark.parametrize(
    ("more", "hook", "reason"),
    [
        ("hook_timeout: soon", "marks.py:Marks", "hook_timeout"),
        ("no_such_option: 1", "marks.py:Marks", "no_such_option"),
        ("", "nowhere.py:Marks", "no file"),
        ("", "marks.py:Nothing", "no class"),
        ("", "raises.py:Marks", "failed its self-test"),
        ("models: {a: {engine: replay}}", "marks.py:Marks", "recordings"),
        ("client_timeout: 3", "marks.py:Marks", "these options need a restart: client_timeout"),
        ("]", "marks.py:Marks", "is not YAML"),
    ],
)
async def test_a_wrong_configuration_leaves_the_old_one(
    reloadable: tuple[Reloadable, Client], more: str, hook: str, reason: str
) -> None:
    one, client = reloadable
    (one.folder / "raises.py").write_text(HOOK.replace("return emit", "return 1 // 0 or emit"))
    one.write("B", more, hook)
    status, answer = await reload(client)
    assert (status, answer["error"]["code"]) == (400, "reload_failed")
    assert reason in answer["error"]["message"]
    assert await said(client) == "A"
    assert client.server.service.deployments.all == [client.server.service.deployment]
    one.write("C")
    assert (await reload(client))[0] == 200
    assert await said(client) == "C"


async def test_a_configuration_that_has_lost_its_keys_does_not_open_the_server(
    reloadable: tuple[Reloadable, Client],
) -> None:
    one, client = reloadable
    one.write(more="api_key: [k]")
    assert (await reload(client))[0] == 200
    one.write()
    status, answer = await reload(client)
    assert (status, "anybody could use" in answer["error"]["message"]) == (400, True)
    assert (await client.post(CHATS, {"model": "m", "messages": []}))[0] == 401


async def test_a_running_request_ends_on_the_old_configuration(reloadable: tuple[Reloadable, Client]) -> None:
    one, client = reloadable
    service = client.server.service
    hook = service.deployment.policies["default"].pipeline.hooks[0].call  # type: ignore[attr-defined]
    module = __import__("sys").modules[type(hook).__module__]
    slow = asyncio.get_running_loop().create_task(said(client, "wait x"))
    while not service.requests.oldest(1).oldest:
        await asyncio.sleep(0.001)
    one.write("B")
    assert (await reload(client))[0] == 200
    assert await said(client) == "B"
    assert len(service.deployments.all) == 2
    assert module.closed == []
    module.waits.set()
    assert (await slow).endswith("A")
    while len(service.deployments.all) == 2 or not module.closed:
        await asyncio.sleep(0.001)
    assert module.closed == ["A"]


async def test_a_worker_that_prepares_too_late_drops_what_it_has_prepared(
    reloadable: tuple[Reloadable, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor has given up and says so before the worker answers."""
    one, client = reloadable
    can_start = asyncio.Event()
    start = Deployment.start_hooks

    async def start_late(deployment: Deployment, older: Deployment) -> None:
        await can_start.wait()
        await start(deployment, older)

    monkeypatch.setattr(Deployment, "start_hooks", start_late)
    one.write("B")
    reloads = client.server.service.reloads
    assert reloads.read is not None
    questions = PrepareReload(reloads.read()), FinishReload(takes=False)
    answering = ReloadAnswers(reloads, nullcontext).answers
    answers = asyncio.gather(*(answering[type(question)](question) for question in questions))
    await asyncio.sleep(0)
    can_start.set()
    assert await answers == ["", ""]
    reloads.take()
    assert await said(client) == "A"


async def test_only_one_reload_runs_at_a_time(reloadable: tuple[Reloadable, Client]) -> None:
    _, client = reloadable
    codes = [code for code, _ in await asyncio.gather(reload(client), reload(client))]
    assert sorted(codes) == [200, 409]


@pytest.mark.parametrize("by_signal", [False, True])
async def test_signals_during_a_reload_lead_to_one_more(
    by_signal: bool, reloadable: tuple[Reloadable, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`by_signal`: so was the first reload asked for."""
    monkeypatch.setattr("proxy.service.reload.RETRY", 0.01)
    one, client = reloadable
    reloads, current = client.server.service.reloads, client.server.service.deployment
    has_begun, can_end = asyncio.Event(), asyncio.Event()
    start = Deployment.start_hooks

    async def start_late(deployment: Deployment, older: Deployment) -> None:
        has_begun.set()
        await can_end.wait()
        await start(deployment, older)

    monkeypatch.setattr(Deployment, "start_hooks", start_late)
    one.write("B")
    async with asyncio.TaskGroup() as group:
        group.create_task(reloads.reload_by_signal() if by_signal else reloads.reload("operator"))
        await has_begun.wait()
        one.write("C")
        for _ in range(3):
            reloads.signal()
        await asyncio.sleep(0)
        assert client.server.service.deployment is current
        can_end.set()
    await until(lambda: not reloads._signalled)
    assert await said(client) == "C"
    changes = (await ask(client, "GET", "/admin/changes"))[1]["data"]
    assert [change["operator"] for change in changes] == ["signal", "signal" if by_signal else "operator"]


async def test_counters_never_go_back(reloadable: tuple[Reloadable, Client]) -> None:
    one, client = reloadable
    counts = []
    for mark in "BCD":
        await said(client)
        text = (await client.get("/metrics", headers=OPERATOR))[1].decode()
        verdicts = [line for line in text.splitlines() if line.startswith("weir_hook_verdicts_total")]
        counts.append(sum(float(line.split()[-1]) for line in verdicts))
        one.write(mark)
        await reload(client)
        while len(client.server.service.deployments.all) > 1:
            await asyncio.sleep(0.001)
    assert counts == [counts[0], 2 * counts[0], 3 * counts[0]]


async def test_the_operator_sees_what_is_configured(reloadable: tuple[Reloadable, Client]) -> None:
    _, client = reloadable
    (model,) = (await ask(client, "GET", "/admin/models"))[1]["data"]
    assert (model["name"], model["engine"], model["is_healthy"]) == ("m", "echo", True)
    policies = (await ask(client, "GET", "/admin/policies"))[1]
    assert (policies["data"][0]["name"], policies["default"]) == ("default", "default")
    assert policies["data"][0]["hooks"][0]["args"] == {"mark": "A"}
    await ask(client, "POST", "/admin/keys", {"name": "alice", "tenant": "acme"})
    status, told = await ask(client, "GET", "/admin/explain?key=alice&model=m")
    assert (status, told["tenant"], told["policy"]) == (200, "acme", "default")
    assert told["reason"] == "the default policy"
    assert (await ask(client, "GET", "/admin/explain?key=bob"))[0] == 404


async def test_the_clients_key_in_the_request_is_explained(client: Client) -> None:
    def asking(secret: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {secret}", "X_Weir_Admin_Key": ADMIN}

    status, told = await ask(client, "GET", "/admin/explain")
    assert (status, told["key"]) == (200, "anonymous")
    for name in ("alice", "bob"):
        secret = (await ask(client, "POST", "/admin/keys", {"name": name}))[1]["key"]
        status, told = await ask(client, "GET", "/admin/explain", **asking(secret))
        assert (status, told["key"]) == (200, name)
    for secret in ("of-nobody", ADMIN):
        status, told = await ask(client, "GET", "/admin/explain", **asking(secret))
        assert (status, told["error"]["param"]) == (404, "key")


async def test_a_reload_reads_certificates_anew(tmp_path: Path) -> None:
    (tmp_path / "marks.py").write_text(HOOK)
    one, authority = Reloadable(tmp_path), trustme.CA()
    file = tmp_path / "both.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    one.write(more=f"ssl_certfile: {file}")
    context = ssl.create_default_context()
    authority.configure_trust(context)

    async def serial_number(client: Client) -> str:
        host, port = client.url.removeprefix("https://").split(":")
        _, writer = await asyncio.open_connection(host, port, ssl=context)
        found: str = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
        writer.transport.abort()
        return found

    async with AsyncExitStack() as stack:
        client = await one.start(stack)
        old = await serial_number(client)
        file.write_text("")
        with pytest.raises(APIError, match="ssl_certfile"):
            await client.server.service.reloads.reload("test")
        assert await serial_number(client) == old
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
        await client.server.service.reloads.reload("test")
        assert await serial_number(client) != old
