"""One line of the log for each decision."""

import logging
from typing import Any

import pytest

from hooks import Chunk, emit, redact
from hooks.loading.loader import HookSpec
from hooks.loading.options import PipelineOptions
from hooks.pipeline.pipeline import Pipeline
from hooks.workers.pool import WorkerPool
from tests.helpers import Script, ScriptedEngine, make_deltas
from tests.proxy.conftest import CHAT, Serve


def redacts(chunk: Chunk) -> Any:
    return redact([(0, 5, "*", "animal")]) if chunk.pending == "zebra" else emit(chunk.pending)


@pytest.mark.parametrize("keeps_text", [False, True])
async def test_a_decision_is_a_line_without_its_text(
    serve: Serve, caplog: pytest.LogCaptureFixture, keeps_text: bool
) -> None:
    caplog.set_level(logging.INFO)
    client = await serve(
        ScriptedEngine(lambda _: make_deltas(["a ", "zebra"])),
        Script(redacts),
        decision_log=True,
        keep_withheld_text=keeps_text,
    )
    _, body, _ = await client.post("/v1/chat/completions", CHAT)
    (line,) = (vars(one)["fields"] for one in caplog.records if one.name == "weir.decisions")
    assert line["answer_id"] == body["id"]
    told = ("hook", "action", "reason", "num_withheld", "policy", "model", "key", "tenant")
    assert [line[name] for name in told] == [
        *("hook0", "redact", "animal", 5, "default", "m", "anonymous", "default")
    ]
    assert "zebra" not in str(line)


async def test_decisions_are_not_logged_unless_asked(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client = await serve(ScriptedEngine(lambda _: make_deltas(["zebra"])), Script(redacts))
    await client.post("/v1/chat/completions", CHAT)
    assert not [one for one in caplog.records if one.name == "weir.decisions"]


@pytest.mark.parametrize("workers", [0, 1])
async def test_a_decision_of_a_moderation_reaches_the_operator_once(
    serve: Serve, caplog: pytest.LogCaptureFixture, workers: int
) -> None:  # contract 8.14
    caplog.set_level(logging.INFO)
    hooks = [HookSpec("phrases", args={"phrases": ["zebra"]}, name="phrases")]
    given: Any = (hooks, [], PipelineOptions())
    pipeline: Any = WorkerPool(workers, *given) if workers else await Pipeline.load(*given)
    engine = ScriptedEngine(lambda _: ())
    client = await serve(engine, pipeline=pipeline, moderations=True, decision_log=True)
    _, body, _ = await client.post("/v1/moderations", {"input": ["a zebra", "a horse"]})
    assert [one["flagged"] for one in body["results"]] == [True, False]
    lines = [vars(one)["fields"] for one in caplog.records if one.name == "weir.decisions"]
    told = ("answer_id", "endpoint", "hook", "channel", "num_withheld")
    assert [tuple(line[name] for name in told) for line in lines] == [
        (body["id"], "moderations", "phrases", "content", 5)
    ]
    assert client.server.service.decisions.num_requests == {"default": 1}
