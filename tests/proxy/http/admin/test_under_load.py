"""Tenants, models and policies in one process under load, with a broken and a right reload in the middle."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
import yaml

from engine.protocol import Delta, Usage
from engine.streams.recording import Recording, TimedDelta
from proxy.deployment.keys import digest_of
from tests.helpers import ScriptedEngine, make_request
from tests.proxy.conftest import Client, Serve, read_events
from tests.proxy.http.admin.conftest import ADMIN, ask
from tests.proxy.http.admin.test_reload import CHATS, Reloadable

TENANTS = {"alice": "acme", "bob": "bits"}
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
NUM_SENDERS = 20
MESSAGES = [{"role": "user", "content": "x"}]
HOOK = """
from hooks import emit


class Marks:
    '''Writes a mark before the first text of an answer, or at its end if it has none.'''

    def __init__(self, mark):
        self.mark = mark

    async def __call__(self, chunk):
        if "is_marked" in chunk.state or not (chunk.pending or chunk.is_final):
            return emit(chunk.pending)
        chunk.state["is_marked"] = True
        return emit(f"«{self.mark}»{chunk.pending}")
"""


class Sent(NamedTuple):
    """A request and its answer."""

    key: str
    model: str
    generations: range
    """The configurations that the request may have been answered under."""
    status: int
    request_id: str
    content: str

    @property
    def policy(self) -> str:
        """The right one."""
        return ROUTES[self.key, self.model]


def configure(folder: Path, upstreams: list[str], generation: int) -> None:
    """A policy's hook writes the policy's name and the generation into each answer."""

    def key(name: str) -> dict[str, Any]:
        policy = {model: policy for (of, model), policy in ROUTES.items() if of == name}
        return {"hash": f"sha256:{digest_of(name.encode())}", "tenant": TENANTS[name], "policy": policy}

    def hooks(policy: str) -> dict[str, Any]:
        return {"hooks": [{"path": f"{folder}/marks.py:Marks", "args": {"mark": f"{policy}-{generation}"}}]}

    settings = {
        "port": 0,
        "admin_key": [ADMIN],
        "store": f"sqlite:///{folder}/weir.sqlite",
        "models": {
            "here": {"engine": "local", "num_threads": 1},
            "pool": {"engine": "openai", "upstream": upstreams, "upstream_model": "m"},
            "taped": {"engine": "replay", "recordings": str(folder / "tapes")},
        },
        "policies": {policy: hooks(policy) for policy in POLICIES},
        "keys": {name: key(name) for name in TENANTS},
    }
    (folder / "weir.yaml").write_text(yaml.safe_dump(settings))


@dataclass
class Load:
    """Requests, sent while the configuration is replaced. The last third waits until it is."""

    number: int
    turns: Iterator[int] = field(init=False)
    oldest: int = 1
    newest: int = 1
    """The configurations that a request may get now."""
    reloaded: asyncio.Event = field(default_factory=asyncio.Event)
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turns = iter(range(self.number))

    async def run(self, client: Client) -> None:
        async with asyncio.TaskGroup() as senders:
            for _ in range(NUM_SENDERS):
                senders.create_task(self._send(client))

    async def _send(self, client: Client) -> None:
        for i in self.turns:
            if i >= self.number * 2 // 3:
                await self.reloaded.wait()
            self.sent.append(await self._answered(client, i))

    async def _answered(self, client: Client, i: int) -> Sent:
        """Keys and models take turns; so do streams and whole answers, and lengths."""
        key, model = list(ROUTES)[i % len(ROUTES)]
        body = {"model": model, "messages": MESSAGES, "max_tokens": 1 + i % 4, "stream": i // 6 % 2 == 0}
        headers = {"Authorization": f"Bearer {key}"}
        oldest = self.oldest
        async with client.http.post(client.url + CHATS, json=body, headers=headers) as response:
            raw = await response.read()
        found = answer_of(raw) if response.status == 200 else ("", raw.decode())
        return Sent(key, model, range(oldest, self.newest + 1), response.status, *found)


def answer_of(raw: bytes) -> tuple[str, str]:
    """The id and the content of an answer, streamed or whole."""
    if not raw.startswith(b"data:"):
        answer = orjson.loads(raw)
        return answer["id"], answer["choices"][0]["message"]["content"]
    chunks = [data for name, data in read_events(raw)[0] if name is None and data != "[DONE]"]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return chunks[0]["id"], "".join(choice["delta"].get("content") or "" for choice in choices)


async def stored_decisions(client: Client) -> AsyncIterator[dict[str, Any]]:
    path = more = "/admin/decisions?limit=1000"
    while more:
        status, page = await ask(client, "GET", more)
        assert status == 200, page
        for record in page["data"]:
            yield record
        more = "" if page["next_cursor"] is None else f"{path}&cursor={page['next_cursor']}"


@pytest.mark.parametrize(
    "number", [180, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
async def test_no_request_is_lost_and_none_gets_another_policy(
    serve: Serve, tmp_path: Path, number: int
) -> None:
    (tmp_path / "marks.py").write_text(HOOK)
    (tmp_path / "tapes").mkdir()
    nothing = (Delta(finish_reason="stop", usage=Usage(1, 0)),)
    deltas = Delta(text="x"), Delta(finish_reason="stop", usage=Usage(1, 1))
    Recording(make_request(messages=tuple(MESSAGES)), tuple(TimedDelta(0.0, delta) for delta in deltas)).dump(
        tmp_path / "tapes" / "one.jsonl"
    )
    upstreams = [
        f"{(await serve(ScriptedEngine(lambda _, said=said: said))).url}/v1" for said in (nothing, deltas)
    ]
    configure(tmp_path, upstreams, 1)
    load = Load(number)
    async with AsyncExitStack() as stack:
        client = await Reloadable(tmp_path).start(stack)
        engine = client.server.service.deployment.models["here"].engine
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run(client))
            while len(load.sent) < number // 3:
                await asyncio.sleep(0.001)
            configuration = (tmp_path / "weir.yaml").read_text()
            (tmp_path / "weir.yaml").write_text(configuration.replace("Marks", "Nothing"))
            assert (await ask(client, "POST", "/admin/reload"))[0] == 400
            configure(tmp_path, upstreams, 2)
            load.newest = 2
            assert (await ask(client, "POST", "/admin/reload"))[0] == 200
            load.oldest = 2
            load.reloaded.set()
        assert client.server.service.deployment.models["here"].engine is engine, "the model goes on"
        stored = [record async for record in stored_decisions(client)]
    assert len(load.sent) == number
    seen: Counter[str] = Counter()
    for one in load.sent:
        assert one.status == 200, one
        marks = re.findall("«(.*?)»", one.content)
        assert len(marks) == 1, one
        (mark,) = marks
        assert one.content.startswith(f"«{mark}»"), one
        assert mark in [f"{one.policy}-{generation}" for generation in one.generations], one
        seen[mark] += 1
    assert set(seen) == {f"{policy}-{generation}" for policy in POLICIES for generation in (1, 2)}
    decided = [record for record in stored if record["action"] != "hold"]
    told = [(one["request_id"], one["tenant"], one["key"], one["policy"], one["model"]) for one in decided]
    right = [(one.request_id, TENANTS[one.key], one.key, one.policy, one.model) for one in load.sent]
    assert Counter(told) == Counter(right), "each answer has one decision in the store"
