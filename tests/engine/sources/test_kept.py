"""What transformers makes of a model's files is kept, and made again when anything of it has changed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.protocol.demo import MODEL_DIR
from engine.sources import kept as kept_module
from engine.sources import transformers_files
from engine.sources.files import config_of, tokenizer_of
from engine.sources.kept import MOST_FILES, kept
from tests.engine.gguf_files import Kind, write_gguf

LOADS = """
import sys
from engine.sources.files import config_of
from engine.text.tokenizer import LocalTokenizer

config = config_of(sys.argv[1])
ids = LocalTokenizer.load(sys.argv[1]).encode("hello")
print(config.model_type, ids, *sorted({"torch", "transformers"} & set(sys.modules)))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept_module, "cache_folder", lambda: tmp_path)
    return tmp_path / "models"


@pytest.mark.parametrize("kind", ["folder", "GGUF file"])
def test_a_later_process_needs_neither_transformers_nor_torch(kind: str, tmp_path: Path) -> None:
    model = MODEL_DIR
    if kind == "GGUF file":
        model = tmp_path / "m.gguf"
        write_gguf(model, "llama", Kind.Q4_0)
    command = [sys.executable, "-c", LOADS, str(model)]
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    first, second = (subprocess.check_output(command, env=env, text=True).split() for _ in range(2))
    assert [*second, "torch", "transformers"] == first


def test_a_change_of_any_file_is_seen(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(MODEL_DIR, model, ignore=shutil.ignore_patterns("*.safetensors"))
    before, longest = tokenizer_of(str(model)), config_of(str(model)).max_position_embeddings
    (model / "chat_template.jinja").write_text("another")
    config = (model / "config.json").read_text()
    key = f'"max_position_embeddings": {longest}'
    assert key in config
    (model / "config.json").write_text(config.replace(key, f'"max_position_embeddings": {longest // 2}'))
    assert tokenizer_of(str(model)).chat_template == "another" != before.chat_template
    assert config_of(str(model)).max_position_embeddings == longest // 2


def test_a_file_that_was_changed_or_cut_is_made_again(folder: Path) -> None:
    assert kept("kind", [b"input"], lambda: b"made") == b"made"
    (file,) = folder.iterdir()
    for damaged in (b"", file.read_bytes()[:-1], file.read_bytes() + b"!"):
        file.write_bytes(damaged)
        assert kept("kind", [b"input"], lambda: b"again") == b"again"
        assert kept("kind", [b"input"], unasked) == b"again"


@pytest.mark.parametrize("inputs", [[b"inp", b"ut"], [b"inputs"], [b"input", b""]])
def test_other_inputs_are_another_answer(folder: Path, inputs: list[bytes]) -> None:
    kept("kind", [b"input"], lambda: b"made")
    assert kept("kind", inputs, lambda: b"another") == b"another"


def test_another_version_of_transformers_is_asked_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept("kind", [b"input"], lambda: b"made")
    monkeypatch.setattr(kept_module, "version", lambda name: f"another {name}")
    assert kept("kind", [b"input"], lambda: b"another") == b"another"


@pytest.mark.parametrize("place", ["no home", "no folder"])
def test_where_nothing_can_be_written_each_start_asks(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")

    def no_home() -> Path:
        raise OSError("no home")

    monkeypatch.setattr(
        kept_module, "cache_folder", no_home if place == "no home" else lambda: tmp_path / "file"
    )
    answers = iter([b"first", b"second"])
    assert [kept("kind", [b"input"], lambda: next(answers)) for _ in range(2)] == [b"first", b"second"]


def test_the_oldest_are_dropped(folder: Path) -> None:
    for number in range(MOST_FILES + 3):
        kept("kind", [b"%d" % number], lambda: b"made")
        for file in folder.iterdir():  # older than what comes
            os.utime(file, ns=(0, file.stat().st_mtime_ns - 10**9))
    assert len([*folder.iterdir()]) == MOST_FILES
    assert kept("kind", [b"0"], lambda: b"again") == b"again"
    assert kept("kind", [b"%d" % (MOST_FILES + 2)], unasked) == b"made"


@pytest.mark.parametrize("load", [config_of, tokenizer_of])
def test_what_a_models_own_code_makes_is_not_kept(folder: Path, load: Callable[..., object]) -> None:
    load(str(MODEL_DIR), trust_remote_code=True)
    assert not folder.exists()


def unasked() -> bytes:
    raise AssertionError("it is kept")


def test_a_model_of_another_family_has_the_configuration_of_transformers(
    tmp_path: Path, folder: Path
) -> None:
    from transformers import GPT2Config

    GPT2Config(n_embd=48, n_layer=2, n_head=4).save_pretrained(tmp_path / "model")
    for _ in range(2):
        assert isinstance(config_of(str(tmp_path / "model")), GPT2Config)
    assert transformers_files.fields_of(GPT2Config()) is None
