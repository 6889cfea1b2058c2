"""`/admin/decisions` and `/admin/shadow`."""

import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from hooks import Chunk, Verdict, emit, hold, redact
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from proxy.service.operator import decision_writer
from proxy.service.operator.operator_store import OperatorStore
from proxy.service.usage import UsageCounts
from proxy.settings.serve import ServeSettings
from proxy.storage.records import Asker
from proxy.telemetry.feed import DecisionFeed
from tests.helpers import Script, ScriptedEngine, make_deltas
from tests.proxy.conftest import CHAT, Client, Serve
from tests.proxy.http.admin.conftest import ADMIN, ask


def redacts(chunk: Chunk) -> Verdict:
    """Holds the last word, and redacts `zebra7`."""
    text = chunk.pending
    if (at := text.find("zebra7")) >= 0:
        return redact([(at, at + 6, "[x]", "animal")])
    return emit(text) if chunk.is_final else hold(len(text) - text.rfind(" ") - 1)


def pipeline() -> Pipeline:
    shadow = LoadedHook.of("trial", Script(redacts), is_shadow=True)
    return Pipeline([shadow, LoadedHook.of("pii", Script(redacts))])


@pytest.fixture
async def client(serve: Serve, tmp_path: Path, request: pytest.FixtureRequest) -> Client:
    settings: dict[str, Any] = {
        "admin_key": [SecretStr(ADMIN)],
        "store": SecretStr(f"sqlite:///{tmp_path}/weir.sqlite"),
        **getattr(request, "param", {}),
    }
    engine = ScriptedEngine(lambda _: make_deltas(["well ", "a zeb", "ra7 ran"]))
    return await serve(engine, pipeline=pipeline(), **settings)


async def say(client: Client) -> str:
    status, body, headers = await client.post("/v1/chat/completions", CHAT)
    assert (status, body["choices"][0]["message"]["content"]) == (200, "well a [x] ran")
    return str(headers["X-Request-Id"])


async def test_the_operator_reads_what_hooks_decided(client: Client) -> None:
    first, second = await say(client), await say(client)
    status, found = await ask(client, "GET", "/admin/decisions")
    assert status == 200
    assert [(one["request_id"], one["hook"], one["mode"]) for one in found["data"]] == [
        (second, "pii", "enforce"),
        (second, "trial", "shadow"),
        (first, "pii", "enforce"),
        (first, "trial", "shadow"),
    ]
    (told, *_) = found["data"]
    assert (told["tenant"], told["policy"], told["reason"], told["num_withheld"]) == (
        *("default", "default", "animal", 6),
    )
    assert "withheld" not in told
    assert "zebra7" not in str(found)


async def test_decisions_are_found_by_fields_page_by_page(client: Client) -> None:
    for _ in range(3):
        await say(client)
    _, page = await ask(client, "GET", "/admin/decisions?hook=pii&limit=2")
    assert [one["hook"] for one in page["data"]] == ["pii", "pii"]
    _, page = await ask(client, "GET", f"/admin/decisions?hook=pii&limit=2&cursor={page['next_cursor']}")
    assert (len(page["data"]), page["next_cursor"]) == (1, None)
    _, page = await ask(client, "GET", "/admin/decisions?until=1000")
    assert page["data"] == []


@pytest.mark.parametrize(
    ("since", "is_found"),
    [
        ("2001-01-01", True),
        ("2001-01-01T00:00:00Z", True),
        ("2001-01-01T00:00:00+02:00", True),
        ("978307200.5", True),
        ("9.7e8", True),
        ("2200-01-01T00:00:00Z", False),
    ],
)
async def test_times_are_seconds_or_iso(client: Client, since: str, is_found: bool) -> None:
    await say(client)
    for path in ("decisions", "shadow"):
        status, page = await ask(client, "GET", f"/admin/{path}?since={since}")
        assert (status, bool(page["data"])) == (200, is_found)


async def test_an_action_that_there_is_not_is_refused_with_the_one_that_was_meant(client: Client) -> None:
    status, body = await ask(client, "GET", "/admin/decisions?action=redakt")
    assert (status, body["error"]["param"]) == (400, "action")
    assert body["error"]["message"] == "action: there is no action 'redakt'; did you mean 'redact'?"
    status, body = await ask(client, "GET", "/admin/decisions?mode=x")
    assert (status, body["error"]["message"]) == (
        400,
        "mode: there is no mode 'x'; there are enforce, shadow",
    )


async def test_a_refusal_by_a_limit_is_a_decision(client: Client) -> None:
    rules = {"name": "alice", "tenant": "acme", "limits": {"requests_per_minute": 1}}
    _, made = await ask(client, "POST", "/admin/keys", rules)
    headers = {"Authorization": f"Bearer {made['key']}"}
    answers = [await client.post("/v1/chat/completions", CHAT, headers=headers) for _ in range(4)]
    assert [status for status, *_ in answers] == [200, 429, 429, 429]
    _, page = await ask(client, "GET", "/admin/decisions?action=limit")
    (told,) = page["data"]  # further ones of the same second say nothing new
    expected = {
        "tenant": "acme",
        "key": "alice",
        "hook": "",
        "mode": "enforce",
        "reason": "keys.limits.requests_per_minute",
        "endpoint": "chat",
        "request_id": answers[1][2]["X-Request-Id"],
    }
    assert {name: told[name] for name in expected} == expected


@pytest.mark.parametrize(
    "query",
    ["hoook=pii", "since=monday", "since=2026-13-01", "since=-1", "cursor=x", "limit=0", "limit=1001"],
)
async def test_a_wrong_query_is_refused_by_name(client: Client, query: str) -> None:
    status, body = await ask(client, "GET", f"/admin/decisions?{query}")
    assert (status, body["error"]["param"]) == (400, query.partition("=")[0])


@pytest.mark.parametrize("path", ["/admin/decisions", "/admin/shadow"])
async def test_nobody_but_the_operator_reads_them(client: Client, path: str) -> None:
    status, _ = await client.get(path)
    assert status == 401


KEEPS = pytest.mark.parametrize("client", [{"keep_withheld_text": True}], indirect=True)


@KEEPS
async def test_withheld_text_is_read_where_it_is_kept(client: Client) -> None:
    await say(client)
    _, found = await ask(client, "GET", "/admin/decisions")
    assert {one["withheld"] for one in found["data"]} == {"zebra7"}
    (told,) = (await ask(client, "GET", "/admin/shadow"))[1]["data"]
    assert [one["withheld"] for one in told["examples"]] == ["zebra7"]


async def test_a_shadow_hooks_report_says_what_it_would_have_done(client: Client) -> None:
    for _ in range(2):
        await say(client)
    _, found = await ask(client, "GET", "/admin/shadow")
    (told,) = found["data"]
    assert (told["policy"], told["hook"]) == ("default", "trial")
    assert told["seen"] == {"requests": 2, "streams": 2, "characters": 34}
    counts = {"decisions": 2, "requests": 2, "characters": 12}
    assert told["would_have"] == [{"action": "redact", "reason": "animal", **counts}]
    assert told["for"] == [{"tenant": "default", "key": "anonymous", **counts}]
    assert told["held_seconds"]["holds"] == 2
    assert told["held_seconds"]["max"] <= 5.0
    assert told["seconds_per_1000_characters"] > 0
    assert "examples" not in told
    assert (await ask(client, "GET", "/admin/shadow?hook=pii"))[1]["data"] == []


async def test_decisions_outlive_the_server(serve: Serve, tmp_path: Path, client: Client) -> None:
    await say(client)
    await client.server.stop()
    again = await serve(
        ScriptedEngine(lambda _: []),
        admin_key=[SecretStr(ADMIN)],
        store=SecretStr(f"sqlite:///{tmp_path}/weir.sqlite"),
    )
    _, found = await ask(again, "GET", "/admin/decisions")
    assert len(found["data"]) == 2
    _, shadow = await ask(again, "GET", "/admin/shadow")
    assert shadow["data"][0]["seen"]["requests"] == 1


async def seen(client: Client) -> list[str]:
    """The guards whose decisions a newcomer finds."""
    status, body = await client.get("/admin/decisions")
    found = orjson.loads(body)
    assert (status, found["kept"]) == (200, False)  # they end with the server
    return [one["hook"] for one in found["data"]]


async def test_a_newcomers_server_keeps_the_latest_decisions_from_the_first_look_on(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_writer, "MAX_IN_MEMORY", 3)
    engine = ScriptedEngine(lambda _: make_deltas(["well ", "a zeb", "ra7 ran"]))
    client = await serve(engine, pipeline=pipeline())
    await say(client)
    assert await seen(client) == []  # nobody looked on, so no decision was made
    await say(client)
    assert await seen(client) == ["pii", "trial"]
    await say(client)
    assert await seen(client) == ["pii", "trial", "pii"]
    _, body = await client.get("/admin/shadow")
    (report,) = orjson.loads(body)["data"]
    assert (report["hook"], report["seen"]["requests"]) == ("trial", 2)


@pytest.mark.parametrize(("workers", "is_heard"), [(1, True), (2, False)])
async def test_one_of_several_processes_keeps_none_in_memory(workers: int, is_heard: bool) -> None:
    feed = DecisionFeed()
    operator = OperatorStore(
        ServeSettings(engine="echo", workers=workers), feed, lambda: (), UsageCounts(time.time, "process")
    )
    await operator.start()
    operator.keep_latest_decisions()
    await asyncio.sleep(0)
    assert (feed.listener(Asker("t", "k", "p", "r", "m")) is not None) == is_heard
    await operator.write_decisions()
    await operator.aclose()
