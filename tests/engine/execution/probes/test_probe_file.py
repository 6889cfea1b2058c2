"""The files of probes: what they hold, and which are refused."""

import os
from collections.abc import Callable
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import save_file

from engine.execution.probes.probe_file import METADATA, Probe, load_probe
from engine.protocol.probe_info import Calibration, ProbeInfo, ProbeKind
from tests.engine.execution.probes.made import make_probe, save_probe


@pytest.fixture
def model(tiny_model: Callable[[str], Any]) -> Path:
    path: Path = tiny_model("qwen3").path
    return path


@pytest.mark.parametrize("kind", get_args(ProbeKind))
def test_a_file_holds_all(tmp_path: Path, model: Path, kind: ProbeKind) -> None:
    probe = make_probe(model, kind)
    calibration = Calibration(threshold=1.5, span=8, interval=(0.0, 0.01), num_streams=300)
    probe = replace(probe, info=replace(probe.info, calibration=calibration))
    found = load_probe(save_probe(tmp_path, probe))
    assert (found.info, found.layers) == (probe.info, probe.layers)
    assert (found.model, found.model_hash) == (probe.model, probe.model_hash)
    assert found.tensors.keys() == probe.tensors.keys()
    assert all(torch.equal(tensor, probe.tensors[name]) for name, tensor in found.tensors.items())


def test_a_loaded_probe_stays_the_same_when_its_file_is_written_anew(tmp_path: Path, model: Path) -> None:
    probe = make_probe(model, "mlp")
    path = Path(save_probe(tmp_path, probe))
    found = load_probe(path)
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert all(torch.equal(tensor, probe.tensors[name]) for name, tensor in found.tensors.items())


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(save_probe(tmp_path, make_probe(model, "linear")))
    before = path.read_bytes()

    def fill_disk(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:100])
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill_disk)
    with pytest.raises(OSError, match="No space left"):
        make_probe(model, "mlp").save(path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_is_readable_as_any_other_and_a_link_to_it_stays(tmp_path: Path, model: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "link.safetensors"
    other.write_text("")
    link.symlink_to(other)
    mode = other.stat().st_mode
    make_probe(model, "linear").save(link)
    assert link.is_symlink()
    assert other.stat().st_mode == mode
    assert load_probe(other).info.kind == "linear"


@pytest.mark.parametrize("place", [".", "pipe"])
def test_nothing_but_a_file_is_replaced(tmp_path: Path, model: Path, place: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is not a file"):
        make_probe(model, "linear").save(tmp_path / place)


def test_scores_are_named_after_probe_and_label() -> None:
    linear = ProbeInfo(name="harm", kind="linear", labels=("harm",))
    assert linear.score_names == ("harm",)
    assert replace(linear, labels=("a", "b")).score_names == ("harm.a", "harm.b")
    assert replace(linear, kind="attention").score_names == ("harm.weight", "harm")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"layers": ()}, "its layers must be one or more"),
        ({"layers": ("model.norm", "model.norm")}, "all different"),
        ({"info": {"name": "a b"}}, "its name may have letters"),
        ({"info": {"labels": ()}}, "its labels must be one or more"),
        ({"info": {"labels": ("a", "")}}, "none empty"),
        ({"info": {"calibration": Calibration(threshold=float("inf"))}}, "a finite threshold"),
        ({"info": {"calibration": Calibration(threshold=1.0, span=0)}}, "a span of 1 or more"),
        ({"info": {"labels": ("a",)}}, r"its tensor weight is \[2, 96\] and must be \[1, 96\]"),
        (
            {"info": {"kind": "mlp"}},
            "its tensors must be bias, hidden.bias, hidden.weight, mean, scale, weight",
        ),
        ({"tensors": {"bias": torch.tensor([0.0, float("nan")])}}, "bias must have finite numbers"),
        ({"tensors": {"bias": torch.zeros(2, dtype=torch.float16)}}, "of type float32"),
        ({"tensors": {"scale": torch.zeros(96)}}, "its tensor scale must be positive"),
        ({"tensors": {"mean": torch.zeros(2, 48)}}, "its tensor mean"),
    ],
)
def test_a_probe_whose_parts_do_not_fit_is_refused(model: Path, changed: dict[str, Any], reason: str) -> None:
    probe = make_probe(model)
    fields: dict[str, Any] = {name: getattr(probe, name) for name in ("layers", "model", "model_hash")}
    fields |= {"info": replace(probe.info, **changed.pop("info", {}))}
    fields |= {"tensors": {**probe.tensors, **changed.pop("tensors", {})}}
    with pytest.raises(ValueError, match=reason):
        Probe(**fields | changed)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (None, "its metadata is wrong at weir_probe"),
        ({METADATA: "{"}, "wrong at weir_probe"),
        ({METADATA: '{"version": 1}'}, "wrong at name, kind, labels, layers, model, model_hash"),
    ],
)
def test_a_file_that_is_no_probe_is_refused_by_name(
    tmp_path: Path, metadata: dict[str, str] | None, reason: str
) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"mean": torch.zeros(3)}, path, metadata)
    with pytest.raises(ValueError, match=f"a.safetensors is not a probe: .*{reason}"):
        load_probe(path)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"a\.safetensors is not a safetensors file"):
        load_probe(path)
    with pytest.raises(OSError, match=r"b\.safetensors"):
        load_probe(tmp_path / "b.safetensors")
