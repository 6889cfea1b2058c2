"""Makes the engine that the settings ask for. Torch is imported here, only for the in-process engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from engine.protocol import Engine, Tokenizer
from engine.protocol.demo import GUARDS, MODEL_DIR
from engine.protocol.import_path import find_class
from engine.protocol.options import EngineConfig, EngineOptions
from engine.streams.recorder import RecordingEngine
from engine.upstream.dialects import DIALECTS
from engine.upstream.limits import UpstreamOptions
from engine.upstream.pool.options import UpstreamConfig
from engine.vllm.options import VLLMOptions, require_vllm
from proxy.settings.model import ModelSettings

if TYPE_CHECKING:
    from engine.local.classification import LocalClassifier
    from engine.upstream.engine import UpstreamEngine
    from engine.upstream.pool.replica import Replica


def make_engine(settings: ModelSettings, *, can_withhold: bool = True, only_guards: bool = False) -> Engine:
    """The engine, not yet started. `can_withhold`: whether a hook may ever see its output. `only_guards`:
    whether only guards use it.

    Raises `ImportError` if the in-process engine's libraries are not installed, and `ValueError` for settings
    that the engine cannot run with.
    """
    engine = _backend(settings, can_withhold, only_guards)
    if settings.record is not None:
        engine = RecordingEngine(
            engine, settings.record, max_bytes=settings.record_max_bytes, max_age=settings.record_max_age
        )
    return engine


def _backend(settings: ModelSettings, can_withhold: bool, only_guards: bool) -> Engine:
    match settings.engine:
        case "echo":
            from engine.upstream.echo import EchoEngine

            return EchoEngine()
        case "replay":
            from engine.upstream.replay import ReplayEngine

            assert settings.recordings is not None
            return ReplayEngine(settings.recordings, speed=settings.replay_speed)
        case "vllm":
            return _vllm_engine(settings, can_withhold)
        case "local":
            return _local_engine(engine_config(settings, can_withhold, only_guards))
    return _pool(settings)


def _pool(settings: ModelSettings) -> Engine:
    from engine.upstream.pool.engine import PoolEngine
    from engine.upstream.pool.routing import LeastOutstanding, PrefixAffinity

    return PoolEngine(
        [_replica(upstream, settings) for upstream in settings.upstream],
        routing=PrefixAffinity() if settings.routing == "affinity" else LeastOutstanding(),
        first_token_timeout=settings.upstream_first_token_timeout or None,
        retries=settings.upstream_retries,
        health_interval=settings.upstream_health_interval or None,
        tokenizer=_tokenizer(settings),
    )


def _tokenizer(settings: ModelSettings) -> Tokenizer | None:
    name = settings.tokenizer
    if name is None:
        return None
    from engine.text.tokenizer import LocalTokenizer

    try:
        return LocalTokenizer.load(name, trust_remote_code=settings.trust_remote_code)
    except OSError as error:
        raise ValueError(f"tokenizer: {name} cannot be loaded") from error


def _replica(upstream: UpstreamConfig, settings: ModelSettings) -> "Replica":
    from engine.upstream.pool.replica import Replica

    model = upstream.model or settings.upstream_model
    engine = _upstream_engine(upstream, model, settings)
    return Replica(
        upstream.name or urlsplit(engine.url).netloc,  # without the password
        engine,
        weight=upstream.weight,
        max_connections=upstream.max_connections or settings.upstream_max_connections,
        serves_all=model is not None,
        probe=engine.probe,
        problem=lambda: engine.health.problem,
        address=_address_of(engine.url),
    )


def _address_of(url: str) -> dict[str, str | int]:
    """The address of an upstream, by OpenTelemetry's names."""
    parts = urlsplit(url)
    return {"server.address": parts.hostname or "", **({"server.port": parts.port} if parts.port else {})}


def _upstream_engine(
    upstream: UpstreamConfig, model: str | None, settings: ModelSettings
) -> "UpstreamEngine":
    secret = upstream.api_key or settings.upstream_api_key
    api_key = secret.get_secret_value() if secret else None
    dialect = DIALECTS[settings.engine]
    engine: Any = find_class(dialect.engine)
    own = {settings.engine: settings.options(dialect.options)}
    options = settings.options(UpstreamOptions)
    found: UpstreamEngine = engine(upstream.url, api_key=api_key, model=model, options=options, **own)
    return found


def make_classifier(settings: ModelSettings) -> "LocalClassifier":
    """The model that classifies tokens, not yet started. Raises as `make_engine` does."""
    config = classifier_config(settings)
    from engine.local.classification import LocalClassifier

    return LocalClassifier(config)


def classifier_config(settings: ModelSettings) -> EngineConfig:
    """The options of a model that classifies tokens. Raises `ValueError` for a model that cannot."""
    if settings.engine != "local":
        raise ValueError(
            f"only a model in this process classifies tokens, and not engine {settings.engine!r}"
        )
    return engine_config(settings, can_withhold=True, only_guards=True)


def _local_engine(config: EngineConfig) -> Engine:
    from engine.local.engine import LocalEngine

    return LocalEngine(config)


def _vllm_engine(settings: ModelSettings, can_withhold: bool) -> Engine:
    require_vllm()
    from engine.vllm.engine import VLLMEngine

    return VLLMEngine(engine_config(settings, can_withhold), settings.options(VLLMOptions))


def engine_config(settings: ModelSettings, can_withhold: bool, only_guards: bool = False) -> EngineConfig:
    """The options that the settings give. Raises `ValueError` for a folder without a model."""
    for option in ("model", "speculative_model"):
        check_folder(f"--{option.replace('_', '-')}", getattr(settings, option))
    names = EngineOptions.model_fields.keys() & settings.model_fields_set
    given = {name: getattr(settings, name) for name in names}
    if only_guards and settings.model in GUARDS:
        given["model"] = str(GUARDS[settings.model])
    return EngineConfig(**given, share_outputs=not can_withhold, only_guards=only_guards)


def check_folder(option: str, model: str | None) -> None:
    """Raise `ValueError`, with the option's name, for a folder without a model. Hub names pass."""
    if model is None:
        return
    folder = Path(model)
    if model.startswith(("/", ".", "~")) and not folder.is_dir():
        raise ValueError(f"{option}: there is no model folder {model}")
    if not model.strip():
        raise ValueError(f"{option}: give a model's folder or its hub name")
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ValueError(f"{option}: the folder {model} has no model: config.json is missing")


def names_of(settings: ModelSettings, given: Sequence[str]) -> list[str]:
    """The names that requests may use for the model (none: any name). `given`: those of the settings."""
    match settings.engine:
        case "echo":
            return [*given] or ["echo"]
        case "vllm":
            return [*(given or [_name(settings.model)]), *settings.vllm_lora_modules]
        case "local":
            return [*given] or [_name(settings.model)]
    return [*given]


def _name(model: str) -> str:
    """The name of a model for which the settings give no name."""
    return "weir-demo" if Path(model) == MODEL_DIR else model
