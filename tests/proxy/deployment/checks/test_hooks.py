"""The check of a settings file starts hooks with models that have no weights."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.execution.probes.model_hash import model_hash
from engine.execution.probes.probe_file import Probe
from engine.models.checkpoint import Checkpoint
from engine.protocol import ProbeInfo
from engine.protocol.demo import GENERATIVE_GUARD_DIR, MODEL_DIR, STREAM_GUARD_DIR
from proxy.deployment.checks.settings import check

HIDDEN = 256


def told(**content: Any) -> list[str]:
    return [str(fault) for fault in check({"engine": "echo", **content})]


def hook(path: str, **args: Any) -> dict[str, Any]:
    return {"path": path, "args": args}


@pytest.fixture(autouse=True)
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check reads no tensor whole."""
    take = Checkpoint.take_as_stored

    def shapes_only(self: Checkpoint, name: str) -> torch.Tensor:
        tensor = take(self, name)
        assert tensor.device.type == "meta"
        return tensor

    monkeypatch.setattr(Checkpoint, "take_as_stored", shapes_only)


@pytest.fixture
def copied(tmp_path: Path) -> Any:
    """A folder like the given one, whose `config.json` has one text replaced."""

    def copy(folder: Path, old: str = "", new: str = "") -> str:
        shutil.copytree(folder, tmp_path / "copy")
        config = tmp_path / "copy" / "config.json"
        text = config.read_text()
        assert old in text
        config.write_text(text.replace(old, new))
        return str(tmp_path / "copy")

    return copy


@pytest.mark.parametrize(
    "hooks",
    [
        [hook("judge"), hook("stream_guard")],
        [hook("judge", model=str(GENERATIVE_GUARD_DIR), name_categories=True)],
        [hook("stream_guard", model="Qwen/Qwen3Guard-Stream-0.6B")],  # nothing is downloaded
    ],
)
def test_guards_whose_models_fit_are_right(hooks: list[Any]) -> None:
    assert told(hooks=hooks) == []
    assert told(hooks=hooks, hook_workers=1) == []


def test_a_model_that_is_not_there_is_told() -> None:
    found = told(hooks=[hook("judge", model="./nofolder"), hook("stream_guard", model="gard")])
    start = "hook 'judge' could not be started: ValueError: there is no model './nofolder' in `models:`"
    assert found[0].startswith(f"hooks[0]: {start}")
    assert found[1].startswith("hooks[1]: hook 'stream_guard' could not be started: ")
    assert len(found) == 2


def test_a_worker_knows_no_names_of_the_settings() -> None:
    models = {"main": {"engine": "echo"}, "guard": {"model": str(STREAM_GUARD_DIR), "only_guards": True}}
    content = {"models": models, "hooks": [hook("stream_guard", model="guard")]}
    assert told(**content) == []
    (found,) = told(**content, hook_workers=2)
    assert "(hook_workers: 0), not hook workers" in found


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (hook("stream_guard", model=str(MODEL_DIR)), "does not classify tokens: it has no heads for that"),
        (hook("judge", model=str(STREAM_GUARD_DIR)), "classifies tokens: it cannot generate"),
        (hook("judge", model=str(MODEL_DIR)), "family: neither the model's chat template nor its name"),
        (hook("judge", categories=["Weather"]), "the family qwen3guard has no category Weather"),
        (hook("stream_guard", labels=["x"]), "labels: this model has categories"),
        (hook("stream_guard", model="main"), "the model 'main' answers requests"),
        (hook("judge", model="tapes"), "family: neither the model's chat template nor its name"),
    ],
)
def test_a_model_that_cannot_judge_so_is_told(given: dict[str, Any], says: str) -> None:
    models = {"main": {"model": str(MODEL_DIR)}, "tapes": {"engine": "echo", "only_guards": True}}
    (found,) = told(models=models, policies={"strict": {"hooks": ["pii"], "allowed_hooks": [given]}})
    assert found.startswith("policies.strict.allowed_hooks[0]: ")
    assert says in found


def test_a_model_of_an_unknown_type_is_told(copied: Any) -> None:
    folder = copied(STREAM_GUARD_DIR, '"qwen3"', '"qwen17"')
    (found,) = told(hooks=[hook("stream_guard", model=folder)])
    assert "qwen17" in found


def test_heads_that_the_files_do_not_have_are_told(copied: Any) -> None:
    folder = copied(MODEL_DIR)
    shutil.copy(STREAM_GUARD_DIR / "config.json", folder)
    (found,) = told(hooks=[hook("stream_guard", model=folder)])
    assert f"Weir's own decoder cannot run {folder}: tensor " in found


def test_an_upstream_judge_is_not_asked() -> None:
    upstream = {"engine": "openai", "upstream": "http://127.0.0.1:1/v1", "upstream_model": "Llama-Guard-3-8B"}
    models = {"main": {"engine": "echo"}, "guard": {**upstream, "only_guards": True}}
    assert told(models=models, hooks=[hook("judge", model="guard", family="llama_guard")]) == []
    (found,) = told(models=models, hooks=[hook("judge", model="guard", family="wildguard")])
    assert "has no chat template, so it cannot run upstream" in found


def test_hooks_are_not_started_while_models_are_wrong() -> None:
    models = {"main": {"engine": "echo"}, "guard": {"model": "./nofolder", "only_guards": True}}
    (found,) = told(models=models, hooks=[hook("judge", model="guard")])
    assert found.startswith("models.guard.model: there is no model folder and no GGUF file ./nofolder")


ASKS = """
from hooks import emit

class Asks:
    async def start(self, models):
        engine = await models.generator("weir-demo-guard")
        engine.check_health()
        {rest}

    def __call__(self, chunk):
        return emit(chunk.pending)
"""


@pytest.mark.parametrize(
    ("rest", "says"),
    [("async for delta in engine.generate(None): pass", None), ("raise ValueError('no')", "no")],
)
def test_what_only_a_loaded_model_can_tell_is_no_fault(rest: str, says: str | None, tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(ASKS.format(rest=rest))
    found = told(hooks=[f"{tmp_path}/asks.py:Asks"])
    assert len(found) == (says is not None)
    assert says is None or says in found[0]


def probe(folder: Path, layer: str = "model.norm", hidden: int | None = None, **fields: Any) -> str:
    inputs = HIDDEN if hidden is None else hidden
    tensors = {"mean": torch.zeros(inputs), "scale": torch.ones(inputs)}
    tensors |= {"weight": torch.zeros(1, inputs), "bias": torch.zeros(1)}
    of_model = fields.pop("model_hash", model_hash(str(MODEL_DIR)))
    info = ProbeInfo(name="made", kind="linear", labels=("found",))
    path = folder / "made.safetensors"
    Probe(info, (layer,), "some model", of_model, tensors).save(path)
    return str(path)


def test_a_probe_of_the_model_is_right(tmp_path: Path) -> None:
    assert told(engine="local", probes=["weir-demo-probe"], hooks=["probe"]) == []
    assert told(engine="local", probes=[probe(tmp_path)], hooks=[hook("probe", threshold=1.0)]) == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model_hash": "0" * 64}, "was trained on another model (some model)"),
        ({"layer": "model.layers.99"}, "it has no layer model.layers.99"),
        ({"hidden": 7}, "probe made has 7 inputs, and not 1 layers of"),
    ],
)
def test_a_probe_of_another_model_is_told(fields: dict[str, Any], says: str, tmp_path: Path) -> None:
    (found,) = told(engine="local", probes=[probe(tmp_path, **fields)])
    assert found.startswith("probes: ")
    assert says in found


@pytest.mark.parametrize("model", [str(MODEL_DIR), "Qwen/Qwen3-8B"])
def test_a_file_that_is_no_probe_is_told(model: str, tmp_path: Path) -> None:
    (tmp_path / "text.safetensors").write_text("no tensors")
    for file, says in (
        ("nowhere.safetensors", "nowhere"),
        (f"{tmp_path}/text.safetensors", "is not a safetensors file"),
    ):
        (found,) = told(models={"a": {"engine": "local", "model": model, "probes": [file]}})
        assert found.startswith("models.a.probes: ")
        assert says in found


def test_a_hook_whose_model_lacks_its_probe_is_told(tmp_path: Path) -> None:
    """A hook that only requests name is not: the request is refused."""
    models: dict[str, Any] = {
        "with": {"engine": "local", "probes": [probe(tmp_path)], "policy": "strict"},
        "without": {"engine": "echo", "policy": "strict"},
        "lax": {"engine": "echo", "policy": "lax"},
    }
    strict = {"hooks": ["probe"], "allowed_hooks": ["probe"]}
    content = {"models": models, "policies": {"strict": strict, "lax": {}}}
    assert told(**content) == [
        "policies.strict.hooks[0]: with the model 'with': threshold: probe made is not calibrated, so a"
        " threshold must be given",
        "policies.strict.hooks[0]: with the model 'without': the model has no probes: --probe FILE gives a"
        " model of the engine 'local' some",
    ]
