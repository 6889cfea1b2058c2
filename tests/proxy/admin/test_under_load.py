"""Tenants, models and policies in one process under load, with a broken and a right reload in the middle."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.protocol import Delta, Usage
from engine.recording import Recording, TimedDelta
from proxy.policies.keys import digest_of
from tests.helpers import ScriptedEngine, make_request
from tests.proxy.admin.conftest import ADMIN, ask
from tests.proxy.admin.test_reload import CHATS, HOOK, Reloadable
from tests.proxy.conftest import Client, Serve

POLICIES = "strict", "lax", "audited", "plain"
ROUTES = {
    ("alice", "here"): "strict",
    ("alice", "pool"): "strict",
    ("alice", "taped"): "lax",
    ("bob", "here"): "audited",
    ("bob", "pool"): "plain",
    ("bob", "taped"): "audited",
}
"""The policy of each key and model."""


def configure(folder: Path, upstreams: list[str], generation: int) -> None:
    """A policy's hook writes the policy's name and the generation into each answer."""

    def key(name: str, tenant: str) -> dict[str, Any]:
        policy = {model: policy for (of, model), policy in ROUTES.items() if of == name}
        return {"hash": f"sha256:{digest_of(name.encode())}", "tenant": tenant, "policy": policy}

    def hooks(policy: str) -> dict[str, Any]:
        return {"hooks": [{"path": f"{folder}/marks.py:Marks", "args": {"mark": f"{policy}-{generation}"}}]}

    settings = {
        "port": 0,
        "admin_key": [ADMIN],
        "store": "sqlite:///:memory:",
        "models": {
            "here": {"engine": "echo"},
            "pool": {"engine": "openai", "upstream": upstreams, "upstream_model": "m"},
            "taped": {"engine": "replay", "recordings": str(folder / "tapes")},
        },
        "policies": {policy: hooks(policy) for policy in POLICIES},
        "keys": {"alice": key("alice", "acme"), "bob": key("bob", "bits")},
    }
    (folder / "weir.yaml").write_text(yaml.safe_dump(settings))


async def load(client: Client, number: int, generation: list[int], answers: list[Any]) -> None:
    """Send requests in turns. Each keeps the configurations that it may have been answered under."""
    for i in range(number):
        (key, model), policy = list(ROUTES.items())[i % len(ROUTES)]
        first = generation[0]
        body = {"model": model, "messages": [{"role": "user", "content": "x"}]}
        status, answer, _ = await client.post(CHATS, body, headers={"Authorization": f"Bearer {key}"})
        answers.append((status, answer, policy, range(first, generation[1] + 1)))


@pytest.mark.parametrize("number", [180, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_no_request_is_lost_and_none_gets_another_policy(
    serve: Serve, tmp_path: Path, number: int
) -> None:
    (tmp_path / "marks.py").write_text(HOOK)
    (tmp_path / "tapes").mkdir()
    deltas = Delta(text="x"), Delta(finish_reason="stop", usage=Usage(1, 1))
    Recording(
        make_request(messages=({"role": "user", "content": "x"},)),
        tuple(TimedDelta(0.0, delta) for delta in deltas),
    ).dump(tmp_path / "tapes" / "one.jsonl")
    upstreams = [f"{(await serve(ScriptedEngine(lambda _: deltas))).url}/v1" for _ in range(2)]
    configure(tmp_path, upstreams, 1)
    async with AsyncExitStack() as stack:
        client = await Reloadable(tmp_path).start(stack)
        decisions: Counter[str] = Counter()
        client.server.service.decisions.subscribe(lambda record: decisions.update([record.policy]))
        answers: list[Any] = []
        generation = [1, 1]  # the oldest and the newest that a request may get now
        senders = [
            asyncio.get_running_loop().create_task(load(client, number // 20, generation, answers))
            for _ in range(20)
        ]
        while len(answers) < number // 3:
            await asyncio.sleep(0.001)
        configuration = (tmp_path / "weir.yaml").read_text()
        (tmp_path / "weir.yaml").write_text(configuration.replace("Marks", "Nothing"))
        assert (await ask(client, "POST", "/admin/reload"))[0] == 400
        configure(tmp_path, upstreams, 2)
        generation[1] = 2
        assert (await ask(client, "POST", "/admin/reload"))[0] == 200
        generation[0] = 2
        await asyncio.gather(*senders)
    assert len(answers) == number // 20 * 20
    seen: Counter[str] = Counter()
    for status, answer, policy, generations in answers:
        assert status == 200, (answer, policy)
        content = answer["choices"][0]["message"]["content"]
        assert content in [f"{policy}-{one}" for one in generations]
        seen[content] += 1
    assert {name.partition("-")[2] for name in seen} == {"1", "2"}
    assert {name.partition("-")[0] for name in seen} == set(POLICIES)
    expected = Counter(policy for _, _, policy, _ in answers)
    assert decisions == expected, "each answer has one decision"
