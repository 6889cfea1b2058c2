"""The revision of a policy: what changes it, and where it is told."""

import logging
import re

import pytest

from hooks import Chunk, Verdict, emit, terminate
from proxy.deployment.deployment import Policy
from proxy.deployment.directory import PolicyEntry
from proxy.service.applied_guards import Applied
from proxy.settings.policy import PolicySettings
from tests.helpers import ScriptedEngine, make_deltas, pipeline_of
from tests.proxy.conftest import Client, Serve

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
CHATS = "/v1/chat/completions"


def policy(**settings: object) -> Policy:
    return Policy(PolicyEntry("strict", PolicySettings.model_validate(settings)), pipeline_of())


def phrases(*words: str) -> dict[str, object]:
    return {"hooks": [{"path": "phrases", "args": {"phrases": words}}]}


def test_the_same_settings_have_the_same_revision_under_the_same_key() -> None:
    first, second, other = (Applied(lambda key=key: key) for key in (b"k", b"k", b"l"))
    of = [one.revision(policy(**phrases("blue"))) for one in (first, second, other)]
    assert of[0] == of[1] != of[2]
    assert first.revision(policy(**phrases("bluf"))) != of[0]
    assert first.revision(policy(**phrases("blue"), hook_workers=1)) != of[0]


def stops(chunk: Chunk) -> Verdict:
    return terminate("found") if "zebra" in chunk.text_diff else emit(chunk.pending)


async def answered(client: Client) -> str | None:
    async with client.http.post(client.url + CHATS, json=CHAT) as response:
        await response.read()
        return response.headers.get("X-Weir-Guards")


async def test_a_decision_the_log_and_the_header_name_one_revision(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine = ScriptedEngine(lambda _: make_deltas(["zebra"]))
    client = await serve(engine, stops, decision_log=True, guards_header=True)
    header = re.fullmatch("hook0; policy=default; revision=([0-9a-f]{16})", await answered(client) or "")
    assert header is not None
    lines = {one.name: vars(one).get("fields", {}) for one in caplog.records}
    assert lines["weir.decisions"]["revision"] == lines["weir.access"]["revision"] == header[1]


async def test_answers_name_no_guards_unless_asked(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda _: make_deltas(["a"])), stops)
    assert await answered(client) is None
