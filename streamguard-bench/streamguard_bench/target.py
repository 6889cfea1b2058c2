"""A server under test: a small YAML file says how it starts and what it guards."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import aiohttp
import psutil
import yaml

from streamguard_bench.values import FORMS, KINDS

APIS = ("chat", "completions", "messages")
FAILURES = ("down", "slow", "wrong")
END_SECONDS = 10


class TargetError(ValueError):
    """The file does not say what a target needs, or the server does not start. The message is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """In texts, `{port}`, `{upstream}` (a base URL without `/v1`), `{folder}` (a new folder), `{here}` (the
    folder of the file), `{python}` (this Python), `{pattern}` (a regular expression for all values of
    `guards`) and `{pattern_json}` (the same as a JSON string) are filled in."""

    name: str
    command: list[str]
    needs: str = ""
    """The command that installs the server, told where it does not start."""
    path: str = "/v1"
    """The path before `/chat/completions`."""
    ready: str = "/v1/models"
    ready_seconds: float = 120
    apis: tuple[str, ...] = ("chat",)
    guards: tuple[str, ...] = ("email", "card", "ssn", "aws_key")
    """The kinds of values that the server is set up to guard: keys of `KINDS`."""
    prompts: Literal["as they are", "masked", "restored"] = "as they are"
    model: str = "m"
    headers: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Files to write into `{folder}`, by name."""
    failures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By `down`, `slow` or `wrong`: fields of this target with which its guard fails so."""
    here: Path = Path()

    def failing(self, how: str) -> "Target":
        fields = dict(self.failures[how])
        for name in ("environment", "files"):
            fields[name] = {**getattr(self, name), **fields.get(name, {})}
        return replace(self, **fields)


def load(path: Path) -> Target:
    """Raises `TargetError`, with the field named."""
    try:
        fields = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise TargetError(f"{path}: {error}") from error
    if not isinstance(fields, dict):
        raise TargetError(f"{path}: it must be a mapping of fields")
    known = {name for name in Target.__dataclass_fields__ if name != "here"}
    if unknown := sorted(set(fields) - known):
        raise TargetError(
            f"{path}: there is no field {unknown[0]!r}; the fields are {', '.join(sorted(known))}"
        )
    for name in ("name", "command"):
        if not fields.get(name):
            raise TargetError(f"{path}: {name} is missing")
    for name, words in (("apis", APIS), ("guards", tuple(KINDS)), ("failures", FAILURES)):
        for value in fields.get(name) or ():
            if value not in words:
                raise TargetError(f"{path}: {name} has {value!r}; it may have {', '.join(words)}")
        if name in fields and name != "failures":
            fields[name] = tuple(fields[name])
    return Target(**fields, here=path.parent.resolve())


@dataclass(slots=True)
class Running:
    url: str
    """With the path."""
    headers: Mapping[str, str]
    process: psutil.Process

    def cpu_seconds(self) -> float:
        """CPU time of the process and of all that it started and that still run."""
        total = 0.0
        for process in (self.process, *self.process.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total

    def memory(self) -> int:
        """Resident bytes of the same processes."""
        total = 0
        for process in (self.process, *self.process.children(recursive=True)):
            try:
                total += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return total


@asynccontextmanager
async def running(target: Target, upstream: str) -> AsyncIterator[Running]:
    """Start the server, and end all its processes after. Raises `TargetError` if it does not answer."""
    with tempfile.TemporaryDirectory(prefix="streamguard-") as folder:
        port, log = _free_port(), Path(folder) / "server.log"
        pattern = "|".join(FORMS[kind] for kind in target.guards)
        values = {
            "port": str(port),
            "upstream": upstream,
            "folder": folder,
            "here": str(target.here),
            "python": sys.executable,
            "pattern_json": json.dumps(pattern),
            "pattern": pattern,
        }
        headers = {name: _filled(text, values) for name, text in target.headers.items()}
        process = _started(target, values, log)
        try:
            if not await _is_ready(
                f"http://127.0.0.1:{port}{target.ready}", headers, target.ready_seconds, process
            ):
                raise TargetError(
                    f"{target.name} does not answer {target.ready}{_needed(target)}:\n{_end_of(log)}"
                )
            yield Running(f"http://127.0.0.1:{port}{target.path}", headers, psutil.Process(process.pid))
        finally:
            _end(process)


def _started(target: Target, values: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    """Write the target's files and start its command, in the folder of `log`. Raises `TargetError`."""
    for name, text in target.files.items():
        file = log.parent / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_filled(text, values))
    environment = {**os.environ, **{name: _filled(text, values) for name, text in target.environment.items()}}
    command = [_filled(text, values) for text in target.command]
    with log.open("wb") as out:
        try:
            return subprocess.Popen(command, cwd=log.parent, env=environment, stdout=out, stderr=out)
        except OSError as error:
            raise TargetError(f"{target.name} does not start: {error}{_needed(target)}") from error


def _needed(target: Target) -> str:
    return f" (it needs: {target.needs})" if target.needs else ""


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


async def _is_ready(
    url: str, headers: Mapping[str, str], seconds: float, process: "subprocess.Popen[bytes]"
) -> bool:
    until = time.monotonic() + seconds
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as http:
        while process.poll() is None and time.monotonic() < until:
            try:
                async with http.get(url, headers=headers) as response:
                    if response.status < 500:
                        return True
            except (aiohttp.ClientError, TimeoutError, ConnectionError):
                pass
            await asyncio.sleep(0.1)
    return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for one in reversed(tree):
        try:
            one.terminate()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(tree, timeout=END_SECONDS)
    for one in alive:
        one.kill()
    process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
