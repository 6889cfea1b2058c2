"""`/admin/usage` and `weir usage` tell requests, tokens and money by day and by who asked."""

import asyncio
import csv
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.cli.cli import main
from proxy.service.usage import UsageCounts
from proxy.storage.operator import usage
from proxy.storage.records import Account, DayUsage, day_of
from proxy.storage.reports import Report
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Client, Serve
from tests.proxy.http.admin.conftest import ADMIN, OPERATOR, ask, store_of
from tests.proxy.service.test_quotas import ten_tokens

CHATS, USAGE = "/v1/chat/completions", "/admin/usage"
NOW = time.time()
DAY, TOMORROW = day_of(NOW), day_of(NOW + 86400)


async def used(serve: Serve, folder: Path, **settings: Any) -> Client:
    """A server on which `alice` sent two requests, of 4 tokens of prompts and 6 of outputs each."""
    client = await serve(
        ScriptedEngine(ten_tokens),
        admin_key=[SecretStr(ADMIN)],
        store=SecretStr(f"sqlite:///{folder}/weir.sqlite"),
        clock=lambda: NOW,
        **settings,
    )
    made = (await ask(client, "POST", "/admin/keys", {"name": "alice", "tenant": "acme"}))[1]["key"]
    key = {"Authorization": f"Bearer {made}"}
    for stream in (False, True):
        async with client.http.post(
            client.url + CHATS, json={**CHAT, "stream": stream}, headers=key
        ) as answer:
            await answer.read()
    await client.post("/tokenize", {"model": "m", "prompt": "Hi"}, headers=key)  # spends nothing
    return client


async def test_usage_is_told_by_day_tenant_key_policy_and_model(serve: Serve, tmp_path: Path) -> None:
    client = await used(serve, tmp_path)
    status, answer = await ask(client, "GET", USAGE)
    row = {"day": DAY, "tenant": "acme", "key": "alice", "policy": "default", "model": "m"}
    sums = {"requests": 2, "prompt_tokens": 8, "completion_tokens": 12, "estimated_tokens": 0}
    assert (status, answer) == (200, {"object": "list", "data": [row | sums], "kept": True})
    for query, rows in (
        ("?by=tenant", [{"tenant": "acme"} | sums]),
        (f"?by=model,day&key=alice&since={DAY}T23:00:00Z&until={NOW}", [{"model": "m", "day": DAY} | sums]),
        ("?key=bob", []),
        (f"?since={TOMORROW}", []),
    ):
        assert (await ask(client, "GET", USAGE + query))[1]["data"] == rows, query
    for query, param in (("?by=user", "by"), ("?format=xml", "format"), ("?user=ann", "user")):
        status, answer = await ask(client, "GET", USAGE + query)
        assert (status, answer["error"]["param"]) == (400, param)
    assert (await client.get(USAGE))[0] == 401


@pytest.mark.parametrize(
    ("query", "accept"), [("?by=key&format=csv", "*/*"), ("?by=key", "text/csv;q=0.9, */*;q=0.1")]
)
async def test_usage_as_csv_with_money(serve: Serve, tmp_path: Path, query: str, accept: str) -> None:
    client = await used(serve, tmp_path, prices={"m": {"input": 250_000, "output": 1_000_000}})
    async with client.http.get(
        client.url + USAGE + query, headers={**OPERATOR, "Accept": accept}
    ) as response:
        assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
        (row,) = csv.DictReader(io.StringIO(await response.text(), newline=""))
    assert row == {
        "key": "alice",
        "requests": "2",
        "prompt_tokens": "8",
        "completion_tokens": "12",
        "estimated_tokens": "0",
        "cost": "14.0",
        "unpriced_tokens": "0",
    }


async def test_tokens_of_a_model_without_a_price_are_told_apart(serve: Serve, tmp_path: Path) -> None:
    client = await used(serve, tmp_path, prices={"other": {"input": 1}})
    (row,) = (await ask(client, "GET", USAGE + "?by=tenant"))[1]["data"]
    assert (row["cost"], row["unpriced_tokens"]) == (0.0, 20)


async def test_a_restart_forgets_none_and_old_days_are_removed(serve: Serve, tmp_path: Path) -> None:
    await (await used(serve, tmp_path)).server.stop()
    store = SecretStr(f"sqlite:///{tmp_path}/weir.sqlite")
    client = await serve(ScriptedEngine(ten_tokens), admin_key=[SecretStr(ADMIN)], store=store)
    counts = UsageCounts(lambda: NOW, "another process")
    counts.begin(Account("acme", "alice", "default", "m")).add(1, 2, is_estimated=True)
    run = store_of(client.server.service).run
    for report, used_meanwhile in counts.reports():
        await run(usage.add(NOW, report, used_meanwhile))
    for days, rows in ((0, [[3, 9, 14, 3]]), (1, [])):
        await run(usage.prune(NOW + 86400.0 * (usage.MAX_DAYS + days)))
        found = await run(usage.report(usage.BY, {}))
        assert [[row[name] for name in usage.COUNTS] for row in found] == rows


def test_a_report_that_may_not_have_arrived_is_made_again_before_the_next() -> None:
    counts, account = UsageCounts(lambda: NOW, "p"), Account("acme", "alice", "default", "m")
    first = counts.begin(account)
    begun = DayUsage(DAY, account, 1, 0, 0, 0)
    assert next(counts.reports()) == (Report("usage p", 1), [begun])
    first.add(4, 6, is_estimated=False)
    ended = DayUsage(DAY, account, 0, 4, 6, 0)
    reports = [(Report("usage p", 1), [begun]), (Report("usage p", 2), [ended])]
    assert list(counts.reports()) == reports
    assert list(counts.reports()) == []


TABLE = """\
tenant  key    requests  prompt_tokens  completion_tokens  estimated_tokens
acme    alice         2              8                 12                 0
"""


async def test_weir_usage_prints_a_table_csv_or_json(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = await used(serve, tmp_path)
    server = ["--url", client.url, "--admin-key", ADMIN]
    by = ["--by", "tenant,key"]
    await asyncio.to_thread(main, ["usage", *server, *by])
    assert capsys.readouterr().out == TABLE
    store = ["--store", f"sqlite:///{tmp_path}/weir.sqlite"]
    await asyncio.to_thread(main, ["usage", *store, *by])
    assert capsys.readouterr().out == TABLE
    await asyncio.to_thread(main, ["usage", *store, *by, "--csv", "--key", "alice"])
    assert list(csv.reader(capsys.readouterr().out.splitlines())) == [
        line.split() for line in TABLE.splitlines()
    ]
    await asyncio.to_thread(main, ["usage", *server, *by, "--json"])
    assert json.loads(capsys.readouterr().out)[0]["prompt_tokens"] == 8
    await asyncio.to_thread(main, ["usage", *store, "--tenant", "other"])
    assert capsys.readouterr().out == "No request was counted.\n"
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main, ["usage", *store, "--by", "user"])
    assert "'user' is none of day, tenant, key, policy, model" in capsys.readouterr().err
