"""Makes the engine that the settings ask for. An engine's code is imported when one is made."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.local.own_models import CLASSIFIER
from engine.protocol import Engine, Tokenizer
from engine.protocol.demo import GUARDS, MODEL_DIR
from engine.protocol.options import EngineConfig
from engine.protocol.parts import ENGINES, MissingPart, load
from engine.sources.names import check_name, served_name
from engine.upstream.address import UpstreamConfig
from engine.upstream.dialects import DIALECTS
from proxy.deployment.engine_choice import engine_of, with_engine
from proxy.settings.model import OPTIONS_OF, WITH_LOGITS, ModelSettings

if TYPE_CHECKING:
    from engine.upstream.engine import UpstreamEngine
    from proxy.deployment.engine_process.messages import OpenEngine


def make_engine(
    settings: ModelSettings, *, can_withhold: bool = True, engine_process: Path | None = None
) -> Engine:
    """The engine, not yet started. `can_withhold`: whether a hook may ever see its output. `engine_process`:
    the socket of the process that runs models, if it is not this one.

    Raises `ImportError` if the in-process engine's libraries are not installed, and `ValueError` for settings
    that the engine cannot run with.
    """
    settings = with_engine(settings)
    if engine_process is not None and settings.engine in WITH_LOGITS:
        engine = _remote(engine_process, settings, can_withhold)
    else:
        engine = _backend(settings, can_withhold)
    if settings.record is not None:
        from engine.streams.recorder import RecordingEngine

        engine = RecordingEngine(
            engine, settings.record, max_bytes=settings.record_max_bytes, max_age=settings.record_max_age
        )
    return engine


def _backend(settings: ModelSettings, can_withhold: bool) -> Engine:
    if settings.engine == "vllm":  # before its code asks for the libraries that come with vLLM
        load("engine.vllm.options:require_vllm", "the engine 'vllm'")()
    engine: Any = ENGINES.load(settings.engine)
    made: Engine
    match settings.engine:
        case "local":
            made = engine(engine_config(settings, can_withhold))
        case "vllm":
            made = engine(engine_config(settings, can_withhold), settings.parts.vllm)
        case "replay":
            made = engine(settings.recordings, speed=settings.replay_speed)
        case dialect if dialect in DIALECTS:
            made = _upstreams(engine, settings)
        case _:
            made = engine(**settings.engine_options)
    return made


def make_hosted(asked: "OpenEngine") -> Engine:
    """An engine of the process that runs models. The processes that serve record its streams. Raises as
    `make_engine` does."""
    return _backend(with_engine(asked.settings), asked.can_withhold)


def _remote(path: Path, settings: ModelSettings, can_withhold: bool) -> Engine:
    from engine.text.tokenizer import LocalTokenizer
    from proxy.deployment.engine_process.remote import RemoteEngine

    load_tokenizer = partial(LocalTokenizer.of, engine_config(settings))
    # Without what only this process needs: a new name must not load the model twice.
    asked = settings.named((), aliases=[], policy=None, record=None)
    return RemoteEngine(path, asked, load_tokenizer, can_withhold=can_withhold)


def _upstreams(engine: Any, settings: ModelSettings) -> Engine:
    """The pool of the upstreams. Without the pool's code, there can be one upstream."""
    engines = [(one, _upstream_engine(engine, one, settings)) for one in settings.upstream]
    tokenizer = _tokenizer(settings)
    try:
        pool_of = load("engine.upstream.pool.make:pool_of", "the pool of upstreams")
    except MissingPart:
        if len(engines) > 1:
            raise
        ((_, alone),) = engines
        alone.tokenizer = tokenizer or alone.tokenizer
        return alone
    pool: Engine = pool_of(engines, settings.parts.pool, tokenizer)
    return pool


def _tokenizer(settings: ModelSettings) -> Tokenizer | None:
    name = settings.local.tokenizer
    if name is None:
        return None
    from engine.text.tokenizer import LocalTokenizer

    try:
        return LocalTokenizer.load(
            name, trust_remote_code=settings.local.trust_remote_code, system_messages=settings.system_messages
        )
    except OSError as error:
        raise ValueError(f"tokenizer: {name} cannot be loaded") from error
    except ValueError as error:
        raise ValueError(f"tokenizer: {error}") from error


def _upstream_engine(engine: Any, upstream: UpstreamConfig, settings: ModelSettings) -> "UpstreamEngine":
    made: UpstreamEngine = engine(
        upstream.url,
        api_key=upstream.key(settings.upstream_api_key),
        model=upstream.model or settings.upstream_model,
        options=settings.upstreams,
        system_messages=settings.system_messages,
        **{settings.engine: getattr(settings.parts, settings.engine)},
    )
    return made


def make_classifier(settings: ModelSettings) -> Any:
    """A `TokenClassifier`, not yet started. Raises as `make_engine` does."""
    config = classifier_config(settings)
    return load(CLASSIFIER, "the code of models that classify tokens")(config)


def classifier_config(settings: ModelSettings) -> EngineConfig:
    """The options of a model that classifies tokens. Raises `ValueError` for a model that cannot."""
    if engine_of(settings) != "local":
        raise ValueError(
            f"only a model in this process classifies tokens, and not engine {settings.engine!r}"
        )
    return engine_config(settings)


def engine_config(settings: ModelSettings, can_withhold: bool = True) -> EngineConfig:
    """The options that the settings give. Raises `ValueError` for a folder without a model."""
    config, only_guards = settings.local, settings.only_guards
    check_model("--model", config.model)
    check_model("--speculative-model", config.speculative_model)
    model = str(GUARDS.get(config.model, config.model)) if only_guards else config.model
    chosen = {
        "model": model,
        "share_outputs": not can_withhold,
        "only_guards": only_guards,
        "system_messages": settings.system_messages,
    }
    return config.model_copy(update=chosen)


def check_model(option: str, model: str | None) -> None:
    """Raise `ValueError`, with the option's name, for a name that stands for no model on this machine. Hub
    names pass."""
    try:
        if model is not None:
            check_name(model)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error


def names_of(settings: ModelSettings, given: Sequence[str]) -> list[str]:
    """The names that requests may use for the model (none: any name). `given`: those of the settings."""
    match settings.engine:
        case "vllm":
            loras = settings.parts.vllm.vllm_lora_modules if "vllm" in OPTIONS_OF else ()
            return [*(given or [_name(settings.local.model)]), *loras]
        case "local":
            return [*given] or [_name(settings.local.model)]
        case upstream if upstream in (*DIALECTS, "replay"):
            return [*given]
    return [*given] or [settings.engine]


def _name(model: str) -> str:
    """The name of a model for which the settings give no name."""
    return "weir-demo" if Path(model) == MODEL_DIR else served_name(model)
