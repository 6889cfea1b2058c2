"""A guard on the activations of the model that the service runs itself."""

import json
from typing import Any

import pytest
import torch

from engine.execution.probes.model_hash import model_hash
from engine.execution.probes.probe_file import Probe
from engine.local.engine import LocalEngine
from engine.protocol import ProbeInfo
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig
from engine.upstream.echo import EchoEngine
from hooks import Chunk, emit
from hooks.loading.loader import HookSpec
from hooks.pipeline.pipeline import Pipeline
from hooks.workers.pool import WorkerPool
from proxy.settings.serve import load_settings
from tests.helpers import Script
from tests.proxy.conftest import Serve

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hello"}],
    "temperature": 0,
    "max_tokens": 16,
    "ignore_eos": True,
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A probe of the demo model, with random weights."""
    hidden = json.loads((MODEL_DIR / "config.json").read_text())["hidden_size"]
    tensors = {
        "mean": torch.zeros(hidden),
        "scale": torch.ones(hidden),
        "weight": torch.randn(1, hidden, generator=torch.Generator().manual_seed(0)),
        "bias": torch.zeros(1),
    }
    info = ProbeInfo(name="made", kind="linear", labels=("found",))
    path = tmp_path_factory.mktemp("probes") / "made.safetensors"
    Probe(info, ("model.norm",), "demo", model_hash(str(MODEL_DIR)), tensors).save(path)
    return str(path)


def engine(*probes: str) -> LocalEngine:
    return LocalEngine(EngineConfig(num_threads=1, probes=probes))


def spec(threshold: float) -> HookSpec:
    return HookSpec("probe", {"threshold": threshold})


async def test_an_answer_ends_at_the_token_whose_score_is_too_high(serve: Serve, file: str) -> None:
    chunks: list[tuple[str, float]] = []

    def watch(chunk: Chunk) -> Any:
        chunks.extend(
            (t.text, t.scores[0])
            for t in chunk.tokens_diff
            if t.scores and chunk.request_id != "weir-self-test"
        )
        return emit(chunk.pending)

    client = await serve(engine(file), Script(watch))
    _, whole, _ = await client.post("/v1/chat/completions", BODY)
    text = whole["choices"][0]["message"]["content"]
    assert "".join(text for text, _ in chunks) == text
    assert len(chunks) == 16
    threshold = max(score for _, score in chunks[4:])
    until = next(i for i, (_, score) in enumerate(chunks) if score >= threshold - 1e-3)
    wanted = "".join(text for text, _ in chunks[:until])
    guarded = [await Pipeline.load([spec(threshold - 1e-3)]), WorkerPool(1, [spec(threshold - 1e-3)])]
    for pipeline in guarded:
        client = await serve(engine(file), pipeline=pipeline)
        _, body, _ = await client.post("/v1/chat/completions", BODY)
        choice = body["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (wanted, "content_filter")
        assert choice["stop_reason"] == "found"
        events = (await client.stream("/v1/chat/completions", BODY)).events
        deltas = [data["choices"][0]["delta"] for _, data in events if data != "[DONE]"]
        assert "".join(delta.get("content") or "" for delta in deltas) == wanted


@pytest.mark.parametrize("is_in_worker", [False, True])
async def test_a_guard_without_its_probe_keeps_the_server_from_starting(
    serve: Serve, is_in_worker: bool
) -> None:  # contract 1.10
    for one in (engine(), EchoEngine()):
        pipeline = WorkerPool(1, [spec(1.0)]) if is_in_worker else await Pipeline.load([spec(1.0)])
        with pytest.raises(ValueError, match="hook 'probe' with the model 'm': the model has no probes"):
            await serve(one, pipeline=pipeline)


async def test_a_request_for_beams_is_refused(serve: Serve, file: str) -> None:
    client = await serve(engine(file))
    body = {"model": "m", "prompt": "Hello", "n": 2, "max_tokens": 2, "use_beam_search": True}
    status, error, _ = await client.post("/v1/completions", body)
    assert (status, error["error"]["param"]) == (400, "use_beam_search")


def test_only_the_in_process_engine_takes_probes(capsys: pytest.CaptureFixture[str], file: str) -> None:
    assert load_settings(["--probe", file]).base_model.local.probes == (file,)
    with pytest.raises(SystemExit, match="engine 'echo' does not show its activations"):
        load_settings(["--engine", "echo", "--probe", file])
