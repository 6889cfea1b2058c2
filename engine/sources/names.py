"""The names that a model can have, and the place of its files."""

import functools
import re
from pathlib import Path

from engine.sources.ollama import OLLAMA, ollama_file

HUB_FILE = "hf://"
MAGIC = b"GGUF"
PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)")
"""The end of the name of one part of a GGUF file that is split."""
SMALL_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py")
WEIGHTS, OLD_WEIGHTS = "*.safetensors", "*.bin"
SECONDS = 5.0
"""How long the hub may take to say which files a model has."""


def check_name(model: str) -> None:
    """Raise `ValueError`, with what to do, for a name that stands for no model. The hub is not asked."""
    if not model.strip():
        raise ValueError("give a model's folder, its GGUF file or its hub name")
    if model.startswith(OLLAMA):
        _check_gguf(ollama_file(model))
    elif model.startswith(HUB_FILE):
        _parts_of_hub_file(model)
    elif (path := Path(model).expanduser()).is_file():
        _check_gguf(path)
    elif path.is_dir():
        if not (path / "config.json").is_file():
            raise ValueError(f"the folder {model} has no model: config.json is missing{_hint(path)}")
    elif model.startswith(("/", ".", "~")) or model.endswith(".gguf"):
        raise ValueError(f"there is no model folder and no GGUF file {model}")


def is_here(model: str) -> bool:
    """Whether the model's files are on this machine, without a look at the hub."""
    return model.startswith(OLLAMA) or Path(model).expanduser().exists()


def is_gguf(model: str) -> bool:
    """Whether the name stands for a GGUF file."""
    return model.startswith((OLLAMA, HUB_FILE)) or Path(model).expanduser().is_file()


def is_hub_name(model: str) -> bool:
    """Whether the name may stand for a model on the hub."""
    return "/" in model.strip("/") and not model.startswith(("/", ".", "~"))


def served_name(model: str) -> str:
    """The name that requests use for the model: a GGUF file's own name without its ending."""
    if model.startswith(OLLAMA):
        return model.removeprefix(OLLAMA)
    return PART.sub("", Path(model).name).removesuffix(".gguf") if is_gguf(model) else model


def located(model: str, *, with_weights: bool = True) -> Path:
    """The model's folder or GGUF file. A model on the hub is downloaded unless the hub's cache has it.

    `with_weights`: False: of a model on the hub, the small files alone. Raises `ValueError`, with what to
    do.
    """
    if model.startswith(OLLAMA):
        return ollama_file(model)
    if model.startswith(HUB_FILE):
        repo, file = _parts_of_hub_file(model)
        path = _downloaded(repo, (PART.sub("-*-of-*", file),)) / file
        if not path.is_file():
            raise ValueError(f"{model}: the hub's {repo} has no file {file}")
        return path
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    check_name(model)
    if path.is_file():
        return path
    if not with_weights:
        return _downloaded(model, SMALL_FILES)
    folder = _downloaded(model, (*SMALL_FILES, WEIGHTS))
    return folder if any(folder.glob(WEIGHTS)) else _downloaded(model, (*SMALL_FILES, OLD_WEIGHTS))


def _check_gguf(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError(f"{path} is not a GGUF file: it does not begin with GGUF")


def _hint(folder: Path) -> str:
    names = sorted(path.name for path in folder.glob("*.gguf"))
    return f" (for the GGUF file in it, give {folder / names[0]})" if names else ""


def _parts_of_hub_file(model: str) -> tuple[str, str]:
    org, _, rest = model.removeprefix(HUB_FILE).partition("/")
    repo, _, file = rest.partition("/")
    if not (org and repo and file.endswith(".gguf")):
        raise ValueError(f"{model} is not of the form hf://org/repo/FILE.gguf")
    return f"{org}/{repo}", file


@functools.lru_cache
def _downloaded(repo: str, patterns: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(repo, allow_patterns=[*patterns], etag_timeout=SECONDS))
    except LocalEntryNotFoundError as error:
        raise ValueError(
            f"{repo} is neither a folder here nor in the hub's cache, and the hub cannot be reached. Download"
            f" it where there is a network (hf download {repo}) and give its folder, or set HTTPS_PROXY"
        ) from error
    except GatedRepoError as error:
        raise ValueError(
            f"the hub gives {repo} only to accounts that accepted its terms: do so there, and set HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise ValueError(
            f"the hub has no model {repo}, or a private one: check the name, or set HF_TOKEN"
        ) from error
