"""The guard models that a process loads for its hooks by itself, where no server gives them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from engine.protocol import DeadEngineError, Engine
from engine.protocol.demo import GUARDS
from engine.protocol.guard_models import TokenClassifier
from engine.protocol.parts import load
from engine.sources.names import is_gguf, is_hub_name

if TYPE_CHECKING:
    from engine.local.engine import LocalEngine
    from engine.protocol.options import EngineConfig


class _Model(Protocol):
    async def start(self) -> None: ...
    def check_health(self) -> None: ...
    async def aclose(self) -> None: ...


class _Classifier(TokenClassifier, _Model, Protocol): ...


M = TypeVar("M", bound=_Model)
CLASSIFIER = "engine.local.classification:LocalClassifier"
"""Models that classify tokens. This code is imported where a hook asks for such a model."""


class OwnModels:
    """Implements `GuardModels` for folders and hub names. Imports nothing before a hook asks for a model."""

    def __init__(self) -> None:
        self._generators: dict[str, LocalEngine] = {}
        self._classifiers: dict[str, _Classifier] = {}
        self._loading = asyncio.Lock()

    async def generator(self, name: str) -> Engine:
        path = found_model(name)
        from engine.local.engine import LocalEngine

        return await self._loaded(self._generators, path, LocalEngine)

    async def classifier(self, name: str) -> TokenClassifier:
        path = found_model(name)
        make = load(CLASSIFIER, "the code of models that classify tokens")
        return await self._loaded(self._classifiers, path, make)

    async def _loaded(self, models: dict[str, M], path: str, make: "Callable[[EngineConfig], M]") -> M:
        from engine.protocol.options import EngineConfig

        async with self._loading:
            if path not in models:
                model = make(EngineConfig(model=path, only_guards=True, share_outputs=False))
                try:
                    await model.start()
                except BaseException:
                    await model.aclose()
                    raise
                models[path] = model
            return models[path]

    @property
    def _all(self) -> list[_Model]:
        return [*self._generators.values(), *self._classifiers.values()]

    @property
    def are_alive(self) -> bool:
        """Whether none of the models has failed for good, so that only a new process can serve it."""
        for model in self._all:
            try:
                model.check_health()
            except DeadEngineError:
                return False
        return True

    async def aclose(self) -> None:
        """Close all models."""
        if models := self._all:  # without one, no event loop is needed
            await asyncio.gather(*(model.aclose() for model in models))


def find_model(name: str) -> str | None:
    """The model's folder, its GGUF file, or its name elsewhere. None: the name is nothing of these, and no
    guard model that ships has it."""
    path = GUARDS.get(name, Path(name).expanduser())
    if path.exists():
        return str(path.resolve())
    return name if is_gguf(name) or is_hub_name(name) else None


def found_model(name: str) -> str:
    """`find_model` for a process that has no `models:`. Raises `ValueError` if the model is not found."""
    path = find_model(name)
    if path is None:
        raise ValueError(
            f"model folder {name!r} not found. Only hooks in the server's own process (hook_workers: 0), not"
            " hook workers, know the names in its `models:`"
        )
    return path
