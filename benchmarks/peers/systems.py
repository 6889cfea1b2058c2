"""The systems, each configured as its own documentation asks for guarding streams, and started."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from benchmarks.peers.upstream import VALUES

LITELLM, NEMO = Path(".venv-litellm/bin"), Path(".venv-nemo/bin")
START_SECONDS = 240

KEY = f"sk-{'4f8a1c6e' * 8}"
"""The key that clients send. LiteLLM does not start without one."""

# NeMo's rail takes regular expressions. Weir and LiteLLM have such forms of their own.
PATTERNS = (
    VALUES["phrase"],
    r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}\b",
    r"\b4\d{3}[\s-]?\d{4}[\s-]?\d{4}[\s-]?\d{4}\b",
    r"\bAKIA[0-9A-Z]{16}\b",
)

WEIR_RAISES = """
from hooks import emit


class Raises:
    def __call__(self, chunk):
        if chunk.request.model == "weir-self-test":
            return emit(chunk.pending)
        raise RuntimeError("a guard's own fault")
"""
LITELLM_RAISES = """
from litellm.integrations.custom_guardrail import CustomGuardrail


class Raises(CustomGuardrail):
    async def async_post_call_success_hook(self, data, user_api_key_dict, response):
        raise RuntimeError("a guard's own fault")

    async def async_post_call_streaming_iterator_hook(self, user_api_key_dict, response, request_data):
        async for item in response:
            raise RuntimeError("a guard's own fault")
            yield item
"""
NEMO_RAISES = """
from nemoguardrails.actions import action


@action(is_system_action=True)
async def raises(context=None):
    raise RuntimeError("a guard's own fault")
"""
NEMO_FLOW = """
define bot refuse to respond
  "I'm sorry, I can't respond to that."

define subflow check with fault
  $allowed = execute raises
  if not $allowed
    bot refuse to respond
    stop
"""


@dataclass(frozen=True)
class System:
    name: str
    command: list[str]
    files: Mapping[str, str | Mapping[str, Any]]
    """Files of its folder, by name. A mapping is written as JSON, which YAML readers read."""
    environment: Mapping[str, str] = field(default_factory=dict)
    health: str = "/v1/models"


def systems(upstream: str, *, is_raising: bool) -> list[System]:
    return [
        _weir(upstream, is_raising),
        _litellm(upstream, is_raising),
        _nemo("NeMo Guardrails, defaults", upstream, is_raising, {}),
        _nemo("NeMo, stream_first: False", upstream, is_raising, {"stream_first": False}),
        _nemo(
            "NeMo, the same with 20 and 10",
            upstream,
            is_raising,
            {"stream_first": False, "chunk_size": 20, "context_size": 10},
        ),
    ]


def _weir(upstream: str, is_raising: bool) -> System:
    guards: list[dict[str, Any]] = [
        {"path": "phrases", "args": {"phrases": [VALUES["phrase"]]}},
        {"path": "pii", "args": {"entities": ["EMAIL_ADDRESS", "CREDIT_CARD"]}},
        {"path": "secrets"},
    ]
    hooks = [{"path": "{folder}/guard.py:Raises"}] if is_raising else guards
    command = [sys.executable, "-m", "proxy", "serve", "--port", "{port}", "--log-level", "error"]
    command += ["--engine", "openai", "--upstream", upstream, "--config", "{folder}/weir.json"]
    return System("Weir", command, {"weir.json": {"hooks": hooks}, "guard.py": WEIR_RAISES})


def _litellm(upstream: str, is_raising: bool) -> System:
    names = ("email", "visa", "aws_access_key")
    guard: dict[str, Any] = {
        "guardrail": "litellm_content_filter",
        "mode": "post_call",
        "patterns": [{"pattern_type": "prebuilt", "pattern_name": n, "action": "MASK"} for n in names],
        "blocked_words": [{"keyword": VALUES["phrase"], "action": "MASK"}],
    }
    if is_raising:
        guard = {"guardrail": "guard.Raises", "mode": "post_call"}
    return litellm(upstream, guard)


def litellm(upstream: str, guard: dict[str, Any]) -> System:
    """LiteLLM's proxy with this guardrail."""
    model = {"model": "openai/m", "api_base": upstream, "api_key": "none"}
    config = {
        "model_list": [{"model_name": "m", "litellm_params": model}],
        "guardrails": [{"guardrail_name": "guard", "litellm_params": {**guard, "default_on": True}}],
    }
    command = [str(LITELLM.absolute() / "litellm"), "--config", "litellm.json", "--port", "{port}"]
    return System(
        "LiteLLM proxy, content filter",
        [*command, "--host", "127.0.0.1", "--telemetry", "False"],
        {"litellm.json": config, "guard.py": LITELLM_RAISES},
        {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        "/health/liveliness",
    )


def _nemo(name: str, upstream: str, is_raising: bool, streaming: dict[str, Any]) -> System:
    flow = "check with fault" if is_raising else "regex check output"
    rails = {
        "output": {"flows": [flow], "streaming": {"enabled": True, **streaming}},
        "config": {"regex_detection": {"output": {"patterns": list(PATTERNS)}}},
    }
    files = {"rails/actions.py": NEMO_RAISES, "rails/flows.co": NEMO_FLOW} if is_raising else {}
    return nemo(name, upstream, rails, files)


def nemo(name: str, upstream: str, rails: dict[str, Any], others: Mapping[str, str] | None = None) -> System:
    """NeMo's server with these rails. `others`: files beside its configuration."""
    model = {"type": "main", "engine": "openai", "model": "m", "parameters": {"base_url": upstream}}
    config = {"models": [model], "rails": rails, "passthrough": True}
    files: dict[str, Any] = {"rails/config.yml": config, **(others or {})}
    command = [str(NEMO.absolute() / "nemoguardrails"), "server", "--config", "{folder}", "--port", "{port}"]
    environment = {
        "OPENAI_API_KEY": "none",
        "MAIN_MODEL_BASE_URL": upstream,
        "NEMO_GUARDRAILS_TELEMETRY_ENABLED": "0",
        "DO_NOT_TRACK": "1",
    }
    return System(name, [*command, "--default-config-id", "rails"], files, environment, "/v1/rails/configs")


@contextmanager
def running(system: System, folder: Path, port: int) -> Iterator[tuple[str, int]]:
    """Start it in a folder of its own. The base URL, and the process."""
    folder.mkdir(parents=True)

    def filled(text: str) -> str:
        return text.replace("{folder}", str(folder)).replace("{port}", str(port))

    for name, content in system.files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(filled(content if isinstance(content, str) else orjson.dumps(content).decode()))
    here = {"PYTHONPATH": os.getcwd()} if system.name == "Weir" else {}
    environment = {**os.environ, **here, **system.environment}
    command = [filled(word) for word in system.command]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            _wait(f"http://127.0.0.1:{port}{system.health}", process, folder / "log")
            yield f"http://127.0.0.1:{port}/v1", process.pid
        finally:
            process.terminate()


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"{process.args!r} does not answer: {log.read_text()[-2000:]}")
