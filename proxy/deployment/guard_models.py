"""The models of one deployment: those that requests name, and those that only its hooks use."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from engine.local.own_models import find_model
from engine.protocol import Engine, EngineError, EngineStats
from engine.protocol.did_you_mean import did_you_mean
from engine.protocol.guard_models import TokenClassifier
from engine.protocol.parts import how_to_install
from proxy.deployment.directory import Directory
from proxy.deployment.engines import make_classifier, make_engine
from proxy.settings.model import ModelSettings

logger = logging.getLogger("weir.proxy")


class Model(Protocol):
    """The common part of models that generate and of models that classify."""

    async def start(self) -> None: ...
    def stats(self) -> EngineStats: ...
    def check_health(self) -> None: ...
    async def aclose(self) -> None: ...


def fault_of(model: Model) -> EngineError | None:
    """The reason why the model cannot be used now."""
    try:
        model.check_health()
    except EngineError as error:
        return error
    return None


class Classifier(TokenClassifier, Model, Protocol): ...


M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class _Used(Generic[M]):
    settings: ModelSettings
    model: M


class DeployedModels:
    """Implements `GuardModels` for the deployment's hooks. Each model is started once, a guard model when a
    hook asks for it. A newer deployment takes over the guard models of an older one that have the same
    settings."""

    def __init__(
        self,
        directory: Directory,
        served: Mapping[str, Engine],
        *,
        make_generator: Callable[[ModelSettings], Engine] = make_engine,
        make_classifier: Callable[[ModelSettings], Classifier] = make_classifier,
    ) -> None:
        """`served`: the engines of the models that requests name, not yet started. A model of the directory
        that is not among them is loaded like a guard model, if a hook asks for it. The other two make guard
        models, not yet started."""
        self._directory = directory
        self._served = served
        self._make_generator = make_generator
        self._make_classifier = make_classifier
        self._generators: dict[str, _Used[Engine]] = {}
        self._classifiers: dict[str, _Used[Classifier]] = {}
        self._older: DeployedModels | None = None
        self._started: set[int] = set()
        """The ids of models that run."""
        self._starting = asyncio.Lock()

    @property
    def guards(self) -> list[tuple[str, Model]]:
        """The models that only hooks use, by the names that hooks use."""
        generators: list[tuple[str, Model]] = [(name, one.model) for name, one in self._generators.items()]
        return [*generators, *((name, one.model) for name, one in self._classifiers.items())]

    @property
    def all(self) -> list[tuple[str, Model]]:
        return [*self._served.items(), *self.guards]

    @contextmanager
    def replacing(self, older: "DeployedModels | None") -> Iterator[None]:
        """Inside, the models of the current deployment are known to run, and its guard models are taken where
        the settings are the same."""
        self._older = older
        self._started |= {id(model) for _, model in older.all} if older else set()
        try:
            yield
        finally:
            self._older = None
            # A model of the older deployment alone will be freed, and a later one may have its id.
            self._started &= {id(model) for _, model in self.all}

    async def start(self, models: Iterable[Model]) -> None:
        """Start those that do not run yet."""
        for model in models:
            async with self._starting:
                await self._start(model)

    async def _start(self, model: Model) -> None:
        if id(model) not in self._started:
            await model.start()
            self._started.add(id(model))

    async def generator(self, name: str) -> Engine:
        if name in self._served:
            await self.start([self._served[name]])
            return self._served[name]
        older = self._older._generators if self._older else {}
        return await self._use(name, self._generators, older, self._make_generator)

    async def classifier(self, name: str) -> TokenClassifier:
        if name in self._served:
            raise ValueError(f"the model {name!r} answers requests: it cannot classify tokens")
        older = self._older._classifiers if self._older else {}
        return await self._use(name, self._classifiers, older, self._make_classifier)

    async def _use(
        self,
        name: str,
        own: dict[str, _Used[M]],
        older: Mapping[str, _Used[M]],
        make: Callable[[ModelSettings], M],
    ) -> M:
        """The model, started. `own` and `older`: the models of its kind, here and of the one to replace."""
        settings = self._settings(name)
        async with self._starting:
            found = own.get(name) or older.get(name)
            if found is None or found.settings != settings:
                logger.info("loading the model %s for guards", name)
                try:
                    found = _Used(settings, await self._started_model(make, settings))
                except ImportError as error:
                    reason = f"the model {name!r} needs {error.name}: {how_to_install('engine')}"
                    raise ValueError(reason) from error
                except (ValueError, OSError, EngineError) as error:
                    raise ValueError(f"the model {name!r} cannot be loaded") from error
            own[name] = found
        return found.model

    async def _started_model(self, make: Callable[[ModelSettings], M], settings: ModelSettings) -> M:
        model = make(settings)
        try:
            await self._start(model)
        except BaseException:
            await model.aclose()
            raise
        return model

    async def aclose(self) -> None:
        """Close all models."""
        await asyncio.gather(*(model.aclose() for _, model in self.all))

    def _settings(self, name: str) -> ModelSettings:
        """Raises `ValueError` for a name that stands for no model."""
        named = {**self._directory.models, **self._directory.guard_models}
        if name in named:
            return named[name].model_copy(update={"only_guards": True})
        if (path := find_model(name)) is None:
            hint = did_you_mean(name, [*named])
            raise ValueError(f"there is no model {name!r} in `models:`, and no such folder{hint}")
        return ModelSettings(model=path, only_guards=True)
