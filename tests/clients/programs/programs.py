"""The agent programs that people run: how each is pointed at Weir, given a prompt, and asked to go on.

`package.json` and `requirements-aider.txt` have their versions. Each is told to send no telemetry, to look
for no updates and to run tools without asking.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.clients.programs.scripted_model import MODEL
from tests.weir import ROOT

HERE = Path(__file__).parent
BIN = HERE / "node_modules/.bin"
NODE = BIN / "node"
LOOKUP = [sys.executable, str(HERE / "lookup_server.py")]
"""The command of the MCP server."""


def _node(name: str) -> list[str | Path]:
    """A program of JavaScript, which needs another Node.js than the machine may have."""
    return [NODE, (BIN / name).resolve()]


@dataclass(frozen=True)
class Program:
    """`start`, `resume`: the options before a prompt, and before one that goes on with the session of the
    folder. `env`: the environment, of Weir's address. `files`: files of the home, by their path and of
    Weir's address. `has_server`: it has the MCP server. `by_text`: it has no tools; the model writes edits
    as text. `instead`: by case, a pattern of what it shows where it drops what the case wants to be seen.
    `asks_again`: by case, its requests after an end, where these are more than it should make."""

    command: Sequence[str | Path]
    start: Sequence[str]
    resume: Sequence[str]
    env: Callable[[str], Mapping[str, str]] = lambda url: {}
    files: Callable[[str], Mapping[str, str]] = lambda url: {}
    has_server: bool = False
    by_text: bool = False
    instead: Mapping[str, str] = field(default_factory=dict)
    asks_again: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_installed(self) -> bool:
        return all(part.exists() for part in self.command if isinstance(part, Path))


def _claude(url: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "any",
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }


def _codex(url: str) -> dict[str, str]:
    command, *arguments = LOOKUP
    config = f"""
model = "{MODEL}"
model_provider = "weir"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.weir]
name = "Weir"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "WEIR_KEY"

[mcp_servers.weather]
command = {json.dumps(command)}
args = {json.dumps(arguments)}
"""
    return {".codex/config.toml": config}


def _opencode(url: str) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "any"},
        "models": {MODEL: {"name": MODEL, "tool_call": True, "reasoning": True}},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "provider": {"weir": provider},
        "model": f"weir/{MODEL}",
        "small_model": f"weir/{MODEL}",
        "mcp": {"weather": {"type": "local", "command": LOOKUP}},
    }
    return {".config/opencode/opencode.json": json.dumps(config)}


def _qwen(url: str) -> dict[str, str]:
    config = {
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "openai"}},
    }
    return {".qwen/settings.json": json.dumps(config)}


def _copilot(wire: str, url: str) -> dict[str, str]:
    address = {"anthropic": url}.get(wire, f"{url}/v1")
    kind = {"anthropic": {"COPILOT_PROVIDER_TYPE": "anthropic"}}
    return {
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_PROVIDER_BASE_URL": address,
        "COPILOT_PROVIDER_API_KEY": "any",
        "COPILOT_MODEL": MODEL,
        **kind.get(wire, {"COPILOT_PROVIDER_TYPE": "openai", "COPILOT_PROVIDER_WIRE_API": wire}),
    }


def _copilot_by(wire: str, **instead: str) -> Program:
    options = ("--allow-all", "--no-color", "--no-auto-update", "--disable-builtin-mcps", "--no-ask-user")
    return Program(
        _node("copilot"),
        start=(*options, "-p"),
        resume=(*options, "--continue", "-p"),
        env=lambda url: _copilot(wire, url),
        instead=instead,
    )


def _continue(url: str) -> dict[str, str]:
    config = f"""
name: Weir
version: 1.0.0
schema: v1
models:
  - name: {MODEL}
    provider: openai
    model: {MODEL}
    apiBase: {url}/v1
    apiKey: any
    roles: [chat]
    capabilities: [tool_use]
"""
    return {".continue/config.yaml": config}


def _pi(url: str) -> dict[str, str]:
    models = [{"id": MODEL, "reasoning": True}]
    provider = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "any", "models": models}
    return {".pi/agent/models.json": json.dumps({"providers": {"weir": provider}})}


AIDER = (
    *("--model", f"openai/{MODEL}", "--no-show-model-warnings", "--no-git", "--yes-always", "--no-stream"),
    *(
        "--no-check-update",
        "--analytics-disable",
        "--no-pretty",
        "--no-show-release-notes",
        "--map-tokens",
        "0",
    ),
    *("--edit-format", "diff"),
)

NO_SIGN = {"ends_text": "It is called", "ends_reasoning": "It is called", "ends_call": "I write it"}
"""The text until its end, and no call. Nothing says that a guard ended it."""

PROGRAMS: Mapping[str, Program] = {
    "claude-code": Program(
        [BIN / "claude"],
        start=("--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose", "-p"),
        resume=("--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose", "-c", "-p"),
        env=_claude,
        # It asks without one of its fields, and then without another.
        asks_again={"refuses": 6},
    ),
    "codex": Program(
        [BIN / "codex"],
        start=("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
        resume=(
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "resume",
            "--last",
        ),
        env=lambda url: {"WEIR_KEY": "any"},
        files=_codex,
        has_server=True,
        instead=dict.fromkeys(
            ("ends_text", "ends_reasoning", "ends_call"),
            "Incomplete response returned, reason: content_filter",
        ),
        asks_again=dict.fromkeys(("ends_text", "ends_reasoning", "ends_call", "closes"), 5),
    ),
    "opencode": Program(
        [BIN / "opencode"],
        start=("run", "--auto"),
        resume=("run", "--auto", "--continue"),
        env=lambda url: {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        files=_opencode,
        has_server=True,
        instead=dict.fromkeys(
            ("ends_text", "ends_reasoning", "ends_call"),
            "The response was blocked by the provider's content filter",
        ),
    ),
    "qwen-code": Program(
        _node("qwen"),
        start=("--yolo", "-p"),
        resume=("--yolo", "--continue", "-p"),
        env=lambda url: {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "any", "OPENAI_MODEL": MODEL},
        files=_qwen,
        instead={**NO_SIGN, "ends_reasoning": "Model stream ended after a tool result"},
        asks_again={"ends_reasoning": 4},
    ),
    "copilot-chat": _copilot_by(
        "completions", **{**NO_SIGN, "ends_reasoning": "blocked by content filtering"}
    ),
    "copilot-responses": _copilot_by("responses", **NO_SIGN),
    "copilot-messages": _copilot_by(
        "anthropic", **{**NO_SIGN, "ends_reasoning": "blocked by content filtering"}
    ),
    "continue": Program(
        _node("cn"),
        start=("--auto", "-p"),
        resume=("--auto", "--resume", "-p"),
        env=lambda url: {"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_METRICS_ENABLED": "0"},
        files=_continue,
        instead={**NO_SIGN, "ends_reasoning": r"^\s*$"},
    ),
    "pi": Program(
        _node("pi"),
        start=("--model", f"weir/{MODEL}", "-p"),
        resume=("--model", f"weir/{MODEL}", "-c", "-p"),
        env=lambda url: {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"},
        files=_pi,
        # It prints no answer of another finish reason than those that it knows.
        instead=dict.fromkeys(
            ("ends_text", "ends_reasoning", "ends_call", "closes"), "Provider finish_reason: content_filter"
        ),
    ),
    "aider": Program(
        [ROOT / ".venv-programs-aider/bin/aider"],
        start=(*AIDER, "--message"),
        resume=(*AIDER, "--restore-chat-history", "--message"),
        env=lambda url: {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "any"},
        by_text=True,
        instead=NO_SIGN,
    ),
}
