"""The names that a model may have: folders, files, names of the hub and of Ollama."""

import json
import time
from pathlib import Path

import pytest

from engine.local.own_models import find_model
from engine.sources.files import config_of
from engine.sources.names import check_name, is_gguf, located, served_name
from tests.engine.gguf_files import write_gguf

WEIGHTS = "application/vnd.ollama.image.model"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_gguf(tmp_path / "small.gguf", "llama")
    return tmp_path / "small.gguf"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Ollama store."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "store"))
    return tmp_path / "store"


def put(store: Path, place: str, file: Path, *kinds: str) -> Path:
    """Put a model in the store, as `ollama pull` does. `kinds`: media types of layers beside the weights."""
    blob = store / "blobs" / "sha256-0123"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(file.read_bytes())
    layers = [{"mediaType": WEIGHTS, "digest": "sha256:0123"}]
    layers += [{"mediaType": kind, "digest": "sha256:4567"} for kind in kinds]
    manifest = store / "manifests" / place
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blob


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("ollama:small", "registry.ollama.ai/library/small/latest"),
        ("ollama:small:1b", "registry.ollama.ai/library/small/1b"),
        ("ollama:me/small:1b", "registry.ollama.ai/me/small/1b"),
        ("ollama:hf.co/org/small:Q4_0", "hf.co/org/small/Q4_0"),
    ],
)
def test_a_model_of_a_local_ollama_is_read_from_its_store(
    name: str, place: str, store: Path, file: Path
) -> None:
    blob = put(store, place, file, "application/vnd.ollama.image.template")
    check_name(name)
    assert located(name) == blob
    assert is_gguf(name)
    assert config_of(name).model_type == "llama"
    assert served_name(name) == name.removeprefix("ollama:")
    assert find_model(name) == name


def test_a_model_that_ollama_does_not_have_is_refused_with_what_to_do(store: Path) -> None:
    with pytest.raises(ValueError, match=rf"ollama:small: .*{store}.*`ollama pull small`"):
        check_name("ollama:small")
    with pytest.raises(ValueError, match="not of the form"):
        check_name("ollama:../../x")


def test_a_model_with_an_adapter_is_refused(store: Path, file: Path) -> None:
    put(store, "registry.ollama.ai/library/small/latest", file, "application/vnd.ollama.image.adapter")
    with pytest.raises(ValueError, match="without adapters"):
        check_name("ollama:small")


def test_a_manifest_that_is_broken_or_whose_file_is_missing_is_refused(store: Path, file: Path) -> None:
    blob = put(store, "registry.ollama.ai/library/small/latest", file)
    blob.unlink()
    with pytest.raises(ValueError, match="sha256-0123 is missing"):
        check_name("ollama:small")
    (store / "manifests/registry.ollama.ai/library/small/latest").write_text("[]")
    with pytest.raises(ValueError, match="cannot be read"):
        check_name("ollama:small")


def test_a_file_is_a_model_whatever_its_ending_is(file: Path) -> None:
    other = file.rename(file.with_name("model"))
    check_name(str(other))
    assert config_of(str(other)).model_type == "llama"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("./nowhere", "no model folder and no GGUF file ./nowhere"),
        ("nowhere.gguf", "no model folder and no GGUF file nowhere.gguf"),
        ("hf://org/repo", "hf://org/repo/FILE.gguf"),
        ("", "give a model's folder"),
        ("pyproject.toml", "not a GGUF file"),
    ],
)
def test_a_name_that_stands_for_no_model_is_refused_with_what_to_do(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_name(name)


def test_a_folder_with_a_file_alone_says_which_name_to_give(file: Path) -> None:
    with pytest.raises(ValueError, match=rf"config.json is missing .*give {file}"):
        check_name(str(file.parent))


@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("hf://org/repo/Small.Q4_0.gguf", "Small.Q4_0"),
        ("hf://org/repo/small-00001-of-00003.gguf", "small"),
        ("org/model", "org/model"),
    ],
)
def test_requests_name_a_file_without_its_ending(name: str, served: str) -> None:
    assert served_name(name) == served


@pytest.mark.parametrize("name", ["org/model", "hf://org/model/file.gguf"])
def test_the_hub_without_a_network_fails_soon_with_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"the hub cannot be reached.*hf download org/model"):
        located(name)
    assert time.monotonic() - began < 20
