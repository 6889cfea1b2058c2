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
            from engine.config import EngineConfig

            if settings.model.startswith(("/", ".", "~")) and not Path(settings.model).expanduser().is_dir():
                raise ValueError(f"there is no model folder {settings.model}")
            config = EngineConfig(
                model=settings.model,
                dtype=settings.dtype,
                device=settings.device,
                model_impl=settings.model_impl,
                quantization=settings.quantization,
                cpu_kernels=settings.cpu_kernels,
                attention_backend=settings.attention_backend,
                enforce_eager=settings.enforce_eager,
                max_model_len=settings.max_model_len,
                max_num_seqs=settings.max_num_seqs,
                max_num_batched_tokens=settings.max_num_batched_tokens,
                max_num_prefill_tokens=settings.max_num_prefill_tokens,
                max_queue_len=settings.max_queue_len,
                scheduling_policy=settings.scheduling_policy,
                block_size=settings.block_size,
                enable_prefix_caching=settings.enable_prefix_caching,
                share_outputs=not (settings.hook_specs or settings.allowed_hooks),
                kv_cache_memory=settings.kv_cache_memory,
                num_speculative_tokens=settings.num_speculative_tokens,
                prompt_lookup_min=settings.prompt_lookup_min,
                prompt_lookup_max=settings.prompt_lookup_max,
                logprobs_mode=settings.logprobs_mode,
                reasoning_parser=settings.reasoning_parser,
                tool_call_parser=settings.tool_call_parser,
                seed=settings.seed,
                num_threads=settings.num_threads,
                trust_remote_code=settings.trust_remote_code,
                logits_processors=tuple(processor.config for processor in settings.logits_processors),
                enable_test_logits_processor=settings.enable_test_logits_processor,
            )
            return LocalEngine(config), names or [model_name(settings.model)]


def model_name(model: str) -> str:
    """What a model is called if nobody says: the embedded one's own name, else what it was asked for as."""
    from engine.demo import MODEL_DIR

    return "weir-demo" if Path(model) == MODEL_DIR else model
