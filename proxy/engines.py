"""Which engine the settings ask for. Torch loads here, and only with the in-process one."""

from pathlib import Path

from engine.backends.recorder import RecordingEngine
from engine.protocol import Engine
from proxy.config import ServeSettings


def make_engine(settings: ServeSettings) -> tuple[Engine, list[str]]:
    """The engine, not yet started, and the names its model is served under (none: whatever is asked for).

    Raises `ImportError` if the in-process engine's libraries are not installed, and `ValueError` for settings
    that it cannot run with.
    """
    engine, names = _backend(settings)
    if settings.record is not None:
        engine = RecordingEngine(engine, settings.record, max_bytes=settings.record_max_bytes)
    return engine, names


def _backend(settings: ServeSettings) -> tuple[Engine, list[str]]:
    names = settings.served_model_name
    match settings.engine:
        case "echo":
            from engine.backends.echo import EchoEngine

            return EchoEngine(), names or ["echo"]
        case "replay":
            from engine.backends.replay import ReplayEngine

            assert settings.recordings is not None
            return ReplayEngine(settings.recordings, speed=settings.replay_speed), names
        case "openai":
            from engine.backends.openai.engine import OpenAIEngine

            assert settings.upstream is not None
            key = settings.upstream_api_key
            return OpenAIEngine(
                settings.upstream,
                api_key=key.get_secret_value() if key else None,
                model=settings.upstream_model,
            ), names
        case "local":
            from engine.backends.local import LocalEngine
            from engine.config import EngineConfig, EngineOptions

            if settings.model.startswith(("/", ".", "~")) and not Path(settings.model).expanduser().is_dir():
                raise ValueError(f"there is no model folder {settings.model}")
            config = EngineConfig(
                **dict(settings.options(EngineOptions)),
                share_outputs=not (settings.hook_specs or settings.allowed_hooks),
            )
            return LocalEngine(config), names or [model_name(settings.model)]


def model_name(model: str) -> str:
    """What a model is called if nobody says: the embedded one's own name, else what it was asked for as."""
    from engine.demo import MODEL_DIR

    return "weir-demo" if Path(model) == MODEL_DIR else model
