"""What a deployment can set: one definition for the command line, a YAML file and the environment.

`--max-model-len 4096`, `max_model_len: 4096` in the file that `--config` names, and
`WEIR_MAX_MODEL_LEN=4096` say the same; the command line wins over the environment, and both over the file.
Where vLLM has an option of that name, it means the same.
"""

import argparse
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    CliApp,
    CliSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from engine.config import LogitsProcessorConfig
from engine.demo import MODEL_DIR
from engine.parsers import REASONING_PARSERS, TOOL_CALL_PARSERS
from hooks.loading.loader import HookSpec
from hooks.pipeline.stage import PipelineOptions


class HookSetting(BaseModel):
    """A hook: its import path, or in YAML `{path: ..., args: {...}}`."""

    model_config = ConfigDict(extra="forbid")

    path: str
    args: dict[str, Any] = {}
    mode: Literal["enforce", "shadow"] = "enforce"
    name: str | None = None

    @property
    def spec(self) -> HookSpec:
        return HookSpec(self.path, self.args, self.mode, self.name)


def _hook_setting(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class LogitsProcessorSetting(BaseModel):
    """A logits processor: `name=pkg.module.Class`, or in YAML `{name: ..., path: ..., args: {...}}`."""

    model_config = ConfigDict(extra="forbid")

    name: str
    path: str
    args: dict[str, Any] = {}
    mandatory: bool = False
    params: dict[str, Any] = {}

    @property
    def config(self) -> LogitsProcessorConfig:
        return LogitsProcessorConfig(self.name, self.path, self.args, self.mandatory, self.params)


def _logits_processor_setting(value: Any) -> Any:
    """What ships, or is installed, has a name of its own."""
    if isinstance(value, str):
        name, _, path = value.partition("=")
        return {"name": name, "path": path or name}
    if isinstance(value, dict) and "path" not in value and "name" in value:
        return {**value, "path": value["name"]}
    return value


def _one_or_many(value: Any) -> Any:
    # The command line and the environment give lists as one text, with commas.
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value] if isinstance(value, dict) else value


def _keys(value: Any) -> Any:
    # Unlike other lists, this one keeps what is empty: an unset variable is refused, not taken for none.
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Key = Annotated[SecretStr, Field(min_length=1)]


def _one_of(name: str | None, names: list[str]) -> str | None:
    if name is not None and name not in names:
        raise ValueError(f"there is no '{name}'; there are {', '.join(names)}")
    return name


class ServeSettings(BaseSettings):
    """Serve a model behind guardrail hooks, on an OpenAI-compatible API.

    Every option can stand in the YAML file named by --config (underscores for dashes) and in the
    environment (WEIR_MAX_MODEL_LEN for --max-model-len). The command line wins over the environment, the
    environment over the file.
    """

    model_config = SettingsConfigDict(
        cli_prog_name="weir serve",
        env_prefix="WEIR_",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_shortcuts={
            "hooks": "hook",
            "allowed-hooks": "allowed-hook",
            "logits-processors": "logits-processor",
        },
        extra="forbid",
        protected_namespaces=(),
    )

    config: Path | None = Field(None, description="YAML file with any of these options")

    # What runs
    engine: Literal["local", "openai", "replay", "echo"] = Field(
        "local",
        description="local: a model in this process. openai: an upstream server. replay: recorded streams. "
        "echo: the prompt back",
    )
    model: str = Field(
        str(MODEL_DIR), description="Model folder or hub name (local; default: the small one that ships)"
    )
    served_model_name: Annotated[list[str], NoDecode, BeforeValidator(_one_or_many)] = Field(
        [], description="Names the API knows the model by (default: the model's)"
    )
    trust_remote_code: bool = Field(False, description="Let the model's folder bring its own Python code")

    # The in-process engine
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where the model runs")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Number format of weights and keys and values (auto: as the model says)"
    )
    quantization: Literal["int8"] | None = Field(
        None, description="int8: round weights to 8 bits while loading, for few streams at once"
    )
    model_impl: Literal["auto", "weir", "transformers"] = Field(
        "auto", description="Whose code runs the model (auto: Weir's own for the families that it knows)"
    )
    cpu_kernels: Literal["auto", "native", "torch"] = Field(
        "auto", description="What runs between matrices on a CPU (auto: C where there is a compiler)"
    )
    attention_backend: Literal["auto", "triton", "varlen", "sdpa"] = Field(
        "auto", description="What attends on CUDA (auto: the first that passes a trial at start)"
    )
    enforce_eager: bool = Field(False, description="On CUDA, capture no graphs")
    max_model_len: int | None = Field(
        None, ge=1, description="Longest prompt and output together, in tokens (default: as the model says)"
    )
    max_num_seqs: int = Field(64, ge=1, description="Sequences that run at the same time")
    max_num_batched_tokens: int = Field(2048, ge=1, description="Tokens in one step of the engine")
    max_num_prefill_tokens: int | None = Field(
        None, ge=1, description="Prompt tokens in a step that others decode in (default: learnt, see README)"
    )
    scheduling_policy: Literal["fcfs", "priority"] = Field(
        "fcfs", description="Who is next: by arrival, or by the requests' priority and then by arrival"
    )
    max_queue_len: int = Field(1024, ge=0, description="Outputs that may wait; what finds more gets 429")
    block_size: int = Field(16, ge=1, description="Tokens in a block of the key-value cache")
    enable_prefix_caching: bool = Field(True, description="Compute once what prompts begin with in common")
    kv_cache_memory: int | None = Field(
        None, ge=1, description="Bytes for keys and values (default: enough, up to a quarter of free memory)"
    )
    num_speculative_tokens: int = Field(
        0, ge=0, description="Tokens to guess from the text so far in one step; outputs stay the same"
    )
    prompt_lookup_min: int = Field(2, ge=1, description="Tokens that must have stood before, for a guess")
    prompt_lookup_max: int = Field(4, ge=1, description="Tokens that are looked for first, for a guess")
    logprobs_mode: Literal["raw_logprobs", "processed_logprobs"] = Field(
        "raw_logprobs", description="Logprobs before or after penalties, temperature and filters"
    )
    logits_processors: Annotated[
        list[Annotated[LogitsProcessorSetting, BeforeValidator(_logits_processor_setting)]],
        NoDecode,
        BeforeValidator(_one_or_many),
    ] = Field(
        [],
        description="Logits processor for requests to name: NAME=pkg.module.Class, or one that ships; repeat",
    )
    enable_test_logits_processor: bool = Field(
        False, description="Answer every request with 'Hello world!', to see that logits processors work"
    )
    seed: int | None = Field(
        None, description="Of the draws of requests that give none (default: a fresh one)"
    )
    num_threads: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="CPU threads of a step (default: all cores; one less for short steps)",
    )

    # Other engines
    upstream: str | None = Field(None, description="Base URL of an OpenAI-compatible server (openai)")
    upstream_model: str | None = Field(None, description="Model name to ask the upstream for (openai)")
    upstream_api_key: SecretStr | None = Field(
        None, description="Key for the upstream; better set as WEIR_UPSTREAM_API_KEY"
    )
    recordings: Path | None = Field(None, description="Folder of recorded streams (replay)")
    replay_speed: float = Field(0.0, ge=0, description="1: as fast as recorded; 0: without waiting (replay)")
    record: Path | None = Field(
        None, description="Folder to keep every request and what the model said to it in, unguarded"
    )
    record_max_bytes: int = Field(
        1024**3, ge=1, description="Bytes of recordings to keep; the oldest are removed (record)"
    )

    # Parsers
    reasoning_parser: str | None = Field(
        None, description=f"How the model marks its reasoning: {', '.join(REASONING_PARSERS)}"
    )
    tool_call_parser: str | None = Field(
        None, description=f"How the model writes tool calls: {', '.join(TOOL_CALL_PARSERS)}"
    )

    # Guards
    hooks: Annotated[
        list[Annotated[HookSetting, BeforeValidator(_hook_setting)]],
        NoDecode,
        BeforeValidator(_one_or_many),
    ] = Field([], description="Guardrail hook: pkg.module.Class or path/to/file.py:Class; repeat in order")
    post_processor_hook: str | None = Field(
        None,
        description="A hook as TensorRT-LLM names it: the same as one more --hook, in front of the others",
    )
    allowed_hooks: Annotated[
        list[Annotated[HookSetting, BeforeValidator(_hook_setting)]],
        NoDecode,
        BeforeValidator(_one_or_many),
    ] = Field(
        [], description="Hook that a request may name in its field hooks, to run beside the others; repeat"
    )
    hook_workers: int = Field(0, ge=0, description="Processes that hooks run in (0: in the service's own)")
    hook_timeout: float = Field(10.0, gt=0, description="Seconds that one call of a hook may take")
    hook_load_timeout: float = Field(
        60.0, gt=0, description="Seconds that it may take to import and build a hook"
    )
    max_rewinds: int = Field(
        8, ge=0, description="How often hooks may take one request back; after that, they end it"
    )
    rewritten_tokens: Literal["withhold", "keep"] = Field(
        "withhold", description="Ids and logprobs of rewritten text: withheld, or passed as TensorRT-LLM does"
    )
    usage: Literal["generated", "released"] = Field("generated", description="Which tokens usage counts")
    terminate_finish_reason: Literal["content_filter", "stop"] = Field(
        "content_filter", description="finish_reason of an output that a hook ended"
    )

    skip_tokenizer_init: bool = Field(False, description="Refused: hooks need text, and text a tokenizer")

    # The service
    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one")
    api_key: Annotated[list[Key], NoDecode, BeforeValidator(_keys)] = Field(
        [], description="Key that clients must send; several may be given. Better set as WEIR_API_KEY"
    )
    max_body_size: int = Field(16 * 1024 * 1024, ge=1, description="Longest request body, in bytes")
    max_stored_responses: int = Field(
        1000, ge=0, description="Responses kept in memory for previous_response_id, the latest used; 0: none"
    )
    keep_alive_interval: float = Field(
        15.0, gt=0, description="Seconds of silence after which a stream gets a comment line"
    )
    shutdown_timeout: float = Field(
        30.0, ge=0, description="Seconds that running streams get to finish on SIGTERM"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="What is logged")

    @property
    def hook_specs(self) -> list[HookSpec]:
        """The hooks that run for every request, in order."""
        first = [HookSpec(self.post_processor_hook)] if self.post_processor_hook else []
        return [*first, *(hook.spec for hook in self.hooks)]

    @property
    def pipeline_options(self) -> PipelineOptions:
        return PipelineOptions(
            finish_reason=self.terminate_finish_reason,
            hook_timeout=self.hook_timeout,
            hook_load_timeout=self.hook_load_timeout,
            rewritten_tokens=self.rewritten_tokens,
            max_rewinds=self.max_rewinds,
            usage=self.usage,
        )

    @field_validator("reasoning_parser")
    @classmethod
    def _reasoning_parser_exists(cls, name: str | None) -> str | None:
        return _one_of(name, REASONING_PARSERS)

    @field_validator("tool_call_parser")
    @classmethod
    def _tool_call_parser_exists(cls, name: str | None) -> str | None:
        return _one_of(name, TOOL_CALL_PARSERS)

    @model_validator(mode="after")
    def _engine_has_what_it_needs(self) -> "ServeSettings":
        if self.skip_tokenizer_init:
            raise ValueError("skip_tokenizer_init would leave hooks without text to look at: take it out")
        if self.engine == "openai" and not self.upstream:
            raise ValueError("engine 'openai' needs an upstream: --upstream URL")
        if self.engine == "replay" and self.recordings is None:
            raise ValueError("engine 'replay' needs recordings: --recordings DIR")
        if self.engine != "local" and (self.logits_processors or self.enable_test_logits_processor):
            raise ValueError(
                f"engine '{self.engine}' has no logits of its own: it cannot run logits processors"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls)


def load_settings(arguments: list[str]) -> ServeSettings:
    """Settings from the command line's `arguments`, the environment and the YAML file that they name.

    Exits, saying what is wrong, if they cannot be read; prints the help and exits for `--help`.
    """
    # As with vLLM, `--max_model_len` is `--max-model-len`.
    arguments = [re.sub("^--[a-z_]+", lambda m: m[0].replace("_", "-"), argument) for argument in arguments]
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--config", default=os.environ.get("WEIR_CONFIG"))
    file = early.parse_known_args(arguments)[0].config
    if file and not Path(file).is_file():
        raise SystemExit(f"weir serve: there is no configuration file {file}")

    if file:
        try:
            content = yaml.safe_load(Path(file).read_text())
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise SystemExit(f"weir serve: {file} is not YAML\n  {error}") from None
        if not isinstance(content, dict | None):
            raise SystemExit(f"weir serve: {file} must hold options by name")

    class Settings(ServeSettings):
        __doc__ = ServeSettings.__doc__
        model_config = SettingsConfigDict(yaml_file=file)

    try:
        return CliApp.run(
            Settings,
            cli_args=arguments,
            cli_settings_source=CliSettingsSource(Settings, add_argument_method=_add_argument),
        )
    except ValidationError as error:
        problems = "\n".join(f"  {_option(e['loc'])}{e['msg']}" for e in error.errors())
        raise SystemExit(f"weir serve: the settings are wrong\n{problems}") from None
    except SettingsError as error:
        raise SystemExit(f"weir serve: the settings are wrong\n  {error}") from None


def _option(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) + ": " if location else ""


def _add_argument(parser: argparse.ArgumentParser, *flags: str, **options: Any) -> argparse.Action:
    """argparse's own, with the names of Python's types taken out of the help."""
    metavar = str(options.get("metavar", "{"))
    if not metavar.startswith("{") or "[" in metavar:
        options["metavar"] = flags[-1].removeprefix("--").replace("-", "_").upper()
    text, _, value = str(options.get("help", "")).rpartition(" (default: ")
    if "(default:" in text or value in ("None)", "[])"):
        options["help"] = text
    return parser.add_argument(*flags, **options)
