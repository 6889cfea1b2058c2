"""Several models, policies and keys in one server, on real sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.deployment.build import build
from proxy.deployment.keys import digest_of
from proxy.http.app import Server
from proxy.settings.serve import ServeSettings, load_settings
from tests.helpers import until

GUARD = """
from hooks import emit

class Says:
    \"\"\"Ends each answer with its word, so that an answer shows which guards saw it.\"\"\"
    def __init__(self, word):
        self.word = word

    def __call__(self, chunk):
        return emit(chunk.pending + self.word if chunk.is_final else chunk.pending)
"""


def key(name: str, **rules: Any) -> dict[str, Any]:
    return {"hash": f"sha256:{digest_of(name.encode())}", **rules}


def policies(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "says.py").write_text(GUARD)
    path = f"{tmp_path}/says.py:Says"
    return {
        name: {"hooks": [{"path": path, "args": {"word": f" [{name}]"}, "name": name}]}
        for name in ("strict", "lax")
    } | {"short": {"limits": {"max_tokens": 5}}}


@asynccontextmanager
async def serving(settings: ServeSettings) -> AsyncIterator[tuple[Server, Any]]:
    server = Server(await build(settings), settings)
    url = await server.start()
    try:
        async with aiohttp.ClientSession(url) as http:
            yield server, http
    finally:
        await server.stop()


async def ask(http: aiohttp.ClientSession, name: str, model: str | None, **more: Any) -> tuple[int, Any]:
    body = {"messages": [{"role": "user", "content": "Hi"}], "model": model, **more}
    headers = {"Authorization": f"Bearer {name}"}
    async with http.post("/v1/chat/completions", json=body, headers=headers) as response:
        answer = await response.json()
        if response.status != 200:
            return response.status, answer["error"]["message"]
        return 200, answer["choices"][0]["message"]["content"]


async def listed(http: aiohttp.ClientSession, name: str) -> list[str]:
    async with http.get("/v1/models", headers={"Authorization": f"Bearer {name}"}) as response:
        return [model["id"] for model in (await response.json())["data"]]


async def test_each_key_gets_its_models_under_its_policies(tmp_path: Path) -> None:
    settings = ServeSettings(
        port=0,
        shutdown_timeout=0,
        models={"a": {"engine": "echo", "aliases": ["alias"], "policy": "lax"}, "b": {"engine": "echo"}},
        policies=policies(tmp_path),
        default_policy="strict",
        keys={
            "alice": key("alice"),
            "bob": key("bob", models=["b"], policy="lax"),
            "carol": key("carol", policy={"a": "strict", "b": "short"}),
        },
    )
    async with serving(settings) as (_, http):
        assert await ask(http, "alice", "a") == (200, "Hi [lax]")
        assert await ask(http, "alice", "alias") == (200, "Hi [lax]")
        assert await ask(http, "alice", "b") == (200, "Hi [strict]")
        assert await ask(http, "bob", None) == (200, "Hi [lax]")
        assert await ask(http, "carol", "alias") == (200, "Hi [strict]")
        assert await ask(http, "carol", "b") == (200, "Hi")
        assert (await ask(http, "bob", "a"))[0] == 404
        assert (await ask(http, "mallory", "a"))[0] == 401
        assert await listed(http, "alice") == ["a", "alias", "b"]
        assert await listed(http, "bob") == ["b"]
        # A request cannot name the hook of another policy.
        assert (await ask(http, "carol", "b", hooks=["strict"]))[0] == 400


@pytest.mark.parametrize("stream", [False, True])
async def test_a_default_never_exceeds_the_policys_limit(tmp_path: Path, stream: bool) -> None:
    settings = ServeSettings(
        port=0,
        shutdown_timeout=0,
        models={"a": {"engine": "echo"}},
        policies=policies(tmp_path),
        keys={"bob": key("bob", policy="short")},
    )
    headers = {"Authorization": "Bearer bob"}
    body = {"model": "a", "prompt": "one two three four five six seven", "stream": stream}
    async with serving(settings) as (_, http):
        async with http.post("/v1/completions", json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            said = await response.text()
        assert "five" in said
        assert "six" not in said
        async with http.post("/v1/completions", json=body | {"max_tokens": 6}, headers=headers) as response:
            error = (await response.json())["error"]
            assert (response.status, error["param"]) == (400, "max_tokens")


async def test_a_limit_of_tokens_bounds_what_a_request_may_ask_for(tmp_path: Path) -> None:
    limits = {"max_tokens": 3}
    settings = ServeSettings(
        port=0,
        shutdown_timeout=0,
        models={"a": {"engine": "echo"}},
        policies=policies(tmp_path),
        keys={"alice": key("alice", policy="short", limits=limits), "bob": key("bob", policy="short")},
    )
    async with serving(settings) as (_, http):
        assert await ask(http, "alice", "a", max_tokens=4) == (400, "max_tokens must be at most 3 here.")
        assert await ask(http, "bob", "a", max_tokens=6) == (400, "max_tokens must be at most 5 here.")
        assert await ask(http, "bob", "a", max_tokens=5) == (200, "Hi")
        told = "max_completion_tokens must be at most 5 here."
        assert await ask(http, "bob", "a", max_completion_tokens=6) == (400, told)
        assert await ask(http, "bob", "a", max_completion_tokens=6, max_tokens=5) == (200, "Hi")
        body = {"input": "Hi", "model": "a", "max_output_tokens": 6}
        headers = {"Authorization": "Bearer bob"}
        async with http.post("/v1/responses", json=body, headers=headers) as response:
            assert (await response.json())["error"]["param"] == "max_output_tokens"


async def test_a_model_that_is_down_is_named_while_others_serve() -> None:
    models = {"up": {"engine": "echo"}, "down": {"engine": "echo"}}
    async with serving(ServeSettings(port=0, shutdown_timeout=0, models=models)) as (server, http):
        await server.service.deployment.models["down"].engine.aclose()
        async with http.get("/ready") as response:
            ready = await response.json()
        assert (response.status, ready["status"], list(ready["unhealthy"])) == (200, "ready", ["down"])
        async with http.get("/health") as response:
            assert response.status == 200
        await server.service.deployment.models["up"].engine.aclose()
        async with http.get("/ready") as response:
            assert response.status == 503


@pytest.fixture
def changed(tmp_path: Path) -> ServeSettings:
    return ServeSettings(
        port=0,
        shutdown_timeout=0,
        models={"a": {"engine": "echo"}, "b": {"engine": "echo"}},
        policies=policies(tmp_path),
        default_policy="strict",
    )


async def test_a_newer_deployment_shares_the_engines_that_did_not_change_and_the_rest_is_closed_when_idle(
    changed: ServeSettings,
) -> None:
    async with serving(changed) as (server, http):
        older = server.service.deployment
        models = {"a": {"engine": "echo", "aliases": ["c"], "policy": "short"}}
        changed = ServeSettings(
            **{name: getattr(changed, name) for name in ("port", "policies")},
            models=models,
            default_policy="lax",
        )
        newer = await build(changed, older)
        assert newer.number == 2
        assert newer.models["a"].engine is older.models["a"].engine
        await newer.start_hooks(older)
        await newer.start_engines([older])
        with server.service.deployment.running() as running:
            server.service.deployments.deploy(newer)
            assert server.service.deployments.all == [newer, older]
            assert running is older
            older.models["b"].engine.check_health()
            assert await ask(http, "", "c") == (200, "Hi")
        await until(lambda: server.service.deployments.all == [newer])
        newer.models["a"].engine.check_health()
        with pytest.raises(Exception, match="shutting down"):
            older.models["b"].engine.check_health()


async def test_a_key_and_its_policy_are_of_one_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def configured(**keys: Any) -> ServeSettings:
        return ServeSettings(
            port=0,
            shutdown_timeout=0,
            models={"a": {"engine": "echo"}},
            policies=policies(tmp_path),
            default_policy="strict",
            keys=keys,
        )

    changes = [configured(alice=key("alice", policy="strict")), configured(bob=key("bob"))]

    async def enter(caller: str) -> bool:
        newer = await build(changes.pop(0), server.service.deployment)
        await newer.start_hooks()
        server.service.deployments.deploy(newer)
        return True

    async with serving(configured(alice=key("alice", policy="lax"))) as (server, http):
        monkeypatch.setattr(server.service.limits, "enter", enter)
        monkeypatch.setattr(server.service.limits, "leave", lambda caller: None)
        assert await ask(http, "alice", "a") == (200, "Hi [lax]")  # the one that it arrived under
        assert await ask(http, "alice", "a") == (200, "Hi [strict]")
        assert (await ask(http, "alice", "a"))[0] == 401


def test_models_policies_and_keys_stand_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "weir.yaml").write_text(
        "models: {a: {engine: echo}}\npolicies: {p: {hooks: [pii]}}\nkeys: {k: {hash: nothing}}\n"
    )
    with pytest.raises(SystemExit, match=r"keys\.k\.hash: this must be sha256:"):
        load_settings(["--config", f"{tmp_path}/weir.yaml"])


@pytest.mark.parametrize(
    ("limited", "expected"),
    [("limits", ["ann", "bob", "cid"]), ("limits_per_tenant", ["bob"]), ("limits_per_key", [])],
)
async def test_a_policys_limit_is_shared_by_all_by_a_tenant_or_by_nobody(
    limited: str, expected: list[str]
) -> None:
    """`ann` and `bob` are of one tenant, and `cid` is of another."""
    settings = ServeSettings(
        port=0,
        shutdown_timeout=0,
        models={"a": {"engine": "echo"}},
        policies={"short": {limited: {"requests_per_minute": 1}}},
        keys={
            "ann": key("ann", tenant="acme"),
            "bob": key("bob", tenant="acme"),
            "cid": key("cid", tenant="bits"),
        },
    )
    whose = {
        "limits": "this policy, which all its callers share",
        "limits_per_tenant": "this tenant, whose keys share it",
        "limits_per_key": "this key under its policy",
    }
    async with serving(settings) as (_, http):
        assert (await ask(http, "ann", "a"))[0] == 200
        status, message = await ask(http, "ann", "a")
        assert (status, whose[limited] in message) == (429, True)
        refused = [name for name in ("ann", "bob", "cid") if (await ask(http, name, "a"))[0] == 429]
        assert set(refused) == {"ann", *expected}


@pytest.mark.parametrize("limited", ["limits_per_key", "limits_per_tenant"])
async def test_names_with_colons_share_no_limit(limited: str) -> None:
    rules = {limited: {"requests_per_minute": 1}}
    settings = ServeSettings(
        port=0,
        shutdown_timeout=0,
        models={"a": {"engine": "echo"}},
        policies={"p": rules, "p:q": rules},
        keys={
            "q:ann": key("one", tenant="q:acme", policy="p"),
            "ann": key("other", tenant="acme", policy="p:q"),
        },
    )
    async with serving(settings) as (_, http):
        statuses = [(await ask(http, name, "a"))[0] for name in ("one", "other", "one", "other")]
    assert statuses == [200, 200, 429, 429]


async def test_a_key_of_the_file_expires_and_has_an_earlier_value() -> None:
    earlier = {"hash": f"sha256:{digest_of(b'ann-1')}", "until": "2200-01-01T00:00:00Z"}
    ended = {"hash": f"sha256:{digest_of(b'bob-1')}", "until": "2001-01-01T00:00:00Z"}
    settings = ServeSettings(
        port=0,
        shutdown_timeout=0,
        models={"a": {"engine": "echo"}},
        keys={
            "ann": key("ann", previous=earlier),
            "bob": key("bob", previous=ended),
            "cid": key(
                "cid", expires="2001-01-01T00:00:00Z", previous={**earlier, "hash": key("cid-1")["hash"]}
            ),
        },
    )
    async with serving(settings) as (_, http):
        statuses = {
            name: (await ask(http, name, "a"))[0] for name in ("ann", "ann-1", "bob", "bob-1", "cid", "cid-1")
        }
    assert statuses == {"ann": 200, "ann-1": 200, "bob": 200, "bob-1": 401, "cid": 401, "cid-1": 401}
