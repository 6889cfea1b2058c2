"""The models of a configuration without their weights, for the hooks that a check starts.

A hook that starts asks for its model, and tries the model's layout, labels and options. The model's files
have all of them. What only a loaded model, a download or another machine can tell is an `UnloadedError`: no
fault of the settings.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engine.local.own_models import found_model
from engine.protocol import Deltas, EngineError, EngineStats, GenerationRequest, ModelInfo, Tokenizer
from engine.protocol.fields.support import FieldSupport
from engine.protocol.guard_models import TokenStream
from engine.protocol.options import EngineConfig
from engine.protocol.parts import load
from engine.sources.names import is_here
from proxy.deployment.directory import Directory
from proxy.deployment.engine_choice import engine_of
from proxy.deployment.engines import classifier_config, engine_config, make_engine
from proxy.deployment.guard_models import DeployedModels
from proxy.settings.model import ModelSettings

if TYPE_CHECKING:
    from engine.execution.outline import Outline
    from engine.text.tokenizer import LocalTokenizer


class UnloadedError(EngineError):
    """A check cannot tell this."""


class UnloadedModels(DeployedModels):
    """Implements `GuardModels`. `in_worker`: for hooks in processes of their own, which know no names of
    `models:`."""

    def __init__(self, directory: Directory, *, in_worker: bool = False) -> None:
        served = {name: UnloadedEngine(model) for name, model in directory.models.items()}
        super().__init__(
            directory,
            {} if in_worker else served,
            make_generator=UnloadedEngine,
            make_classifier=UnloadedClassifier,
        )
        self._in_worker = in_worker

    def _settings(self, name: str) -> ModelSettings:
        if self._in_worker:
            return ModelSettings(model=found_model(name), only_guards=True)
        return super()._settings(name)


class _Unloaded:
    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings

    async def start(self) -> None:
        """Read the model's files. Raises `ValueError` and `OSError` as loading would, and `UnloadedError`."""
        await asyncio.to_thread(self._read)

    def _read(self) -> None:
        raise NotImplementedError

    def stats(self) -> EngineStats:
        return EngineStats()

    def check_health(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class UnloadedEngine(_Unloaded):
    """Implements `Engine`. It can be asked for everything but answers."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__(settings)
        self.info = ModelInfo()
        self.fields = FieldSupport()
        self.tokenizer: Tokenizer | None = None

    def _read(self) -> None:
        settings = self._settings
        engine = engine_of(settings)
        if engine != "local":
            _check_here(settings.local.tokenizer)
            if engine == "vllm":
                raise UnloadedError("vLLM reads its models itself.")
            made = make_engine(settings.model_copy(update={"record": None}))
            self.info, self.fields, self.tokenizer = made.info, made.fields, made.tokenizer
            return
        outline, tokenizer = _files_of(engine_config(settings))
        from engine.core.input_processor import fields_of
        from engine.models.heads import check_generates

        check_generates(settings.local.model, outline.labels)
        self.tokenizer, self.fields = tokenizer, fields_of(tokenizer)
        self.info = ModelInfo(
            outline.max_model_len, outline.vocab_size, parses_tool_calls=False, can_rewind=True
        )

    def generate(self, request: GenerationRequest) -> Deltas:
        raise UnloadedError("The model is not loaded.")

    def check_room(self, caller: str) -> None:
        pass


class UnloadedClassifier(_Unloaded):
    """Implements `TokenClassifier`. It can be asked for everything but logits."""

    labels: Mapping[str, tuple[str, ...]]
    max_model_len: int
    tokenizer: Tokenizer

    def _read(self) -> None:
        config = classifier_config(self._settings)
        outline, self.tokenizer = _files_of(config)
        from engine.models.heads import labels_of

        load("engine.local.classification:check_options", "the code of models that classify tokens")(config)
        self.labels = labels_of(config.model, outline.labels)
        self.max_model_len = outline.max_model_len

    def open(self, *, caller: str = "", ids: Sequence[int] = ()) -> TokenStream:
        raise UnloadedError("The model is not loaded.")


def _files_of(config: EngineConfig) -> "tuple[Outline, LocalTokenizer]":
    _check_here(config.model)
    _check_here(config.tokenizer)
    from engine.execution.outline import Outline
    from engine.text.tokenizer import LocalTokenizer

    tokenizer = LocalTokenizer.of(config)
    try:
        return Outline(config), tokenizer
    except NotImplementedError as error:
        raise UnloadedError("The form of the weights depends on their numbers.") from error


def _check_here(model: str | None) -> None:
    """Raise `UnloadedError` for the name of a model on the hub."""
    if model is not None and not is_here(model):
        raise UnloadedError("The model may have to be downloaded.")
