"""`weir shadow report` says what hooks in shadow mode would have done."""

import asyncio
import json
import time
from collections import Counter
from pathlib import Path

import pytest
from pydantic import SecretStr

from proxy.cli.cli import main
from proxy.settings.storage import StoreOptions
from proxy.storage.operator import decisions, hook_hours
from proxy.storage.operator.hook_hours import HookWork
from proxy.storage.operator.store import Store
from tests.proxy.conftest import Client
from tests.proxy.http.admin.conftest import ADMIN
from tests.proxy.http.admin.test_decisions import client, say
from tests.proxy.storage.operator.test_decisions import record

__all__ = ["client"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a shadow hook's work of an hour."""
    url = f"sqlite:///{tmp_path}/weir.sqlite"

    async def fill() -> None:
        store = Store(StoreOptions(store=SecretStr(url)), has_admin_key=True)
        await store.start()
        shadow = {"mode": "shadow", "reason": "EMAIL", "withheld": "a@b.example\x1b[2J"}
        await store.run(decisions.add([record(i, time=time.time(), **shadow) for i in range(3)]))
        work = HookWork("strict", "pii", "shadow", 40, 41, 9000, 0.045, Counter({3: 90, 6: 9, 15: 1}))
        await store.run(hook_hours.add(time.time(), [work]))
        await store.aclose()

    asyncio.run(fill())
    return url


def test_a_report_of_a_store(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["shadow", "report", "--store", url])
    assert capsys.readouterr().out == (
        "pii  (policy strict, in shadow mode)\n"
        "  saw           40 requests, 41 streams, 9000 characters\n"
        "  would have    redact EMAIL: 3 times in 3 requests, 6 characters (7.50% of requests)\n"
        "  for           tenant acme, key alice: 3 times in 3 requests, 6 characters\n"
        "  would hold    100 times: p50 ≤ 0.01 s, p99 ≤ 0.1 s, max over 60 s\n"
        "  costs         5 ms for 1,000 characters\n"
    )


def test_examples_are_shown_if_asked_for(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["shadow", "report", "--store", url, "--examples"])
    told = capsys.readouterr().out
    assert "example       redact 'a@b.example\\x1b[2J' (r2)" in told
    assert "\x1b" not in told


def test_a_report_as_json(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["shadow", "report", "--store", url, "--json", "--hook", "pii", "--since", "24h"])
    (told,) = json.loads(capsys.readouterr().out)
    assert told["seen"]["requests"] == 40
    assert "examples" not in told
    main(["shadow", "report", "--store", url, "--hook", "other"])
    assert capsys.readouterr().out == "No hook ran in shadow mode.\n"


def test_a_store_in_the_home_folder_is_found(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    name = url.rpartition("/")[2]
    main(["shadow", "report", "--store", f"sqlite:///~/{name}", "--json", "--hook", "pii"])
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--store", "sqlite:////nowhere/weir.sqlite"], "there is no store /nowhere/weir.sqlite"),
        (["--store", "mysql://x"], "--store: the URL must begin with"),
        (["--url", "127.0.0.1:1"], "http://127.0.0.1:1/admin/shadow does not answer"),
    ],
)
def test_why_there_is_no_report(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["shadow", "report", *arguments])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(f"weir shadow report: {reason}")


async def test_a_report_of_a_server(
    client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await say(client)
    run = ["shadow", "report", "--url", client.url]
    await asyncio.to_thread(main, [*run, "--admin-key", ADMIN])
    assert "trial  (policy default, in shadow mode)\n  saw           1 requests" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main, run)
    assert "needs the admin key" in capsys.readouterr().err
