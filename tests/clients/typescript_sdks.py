"""The official SDKs for TypeScript, run by Node.js. `make test-clients` installs them."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.clients.agent import MODEL, MODES, PARAMETERS, SAID, SYSTEM, TURNS, JSONObject, Turn, result_of
from tests.clients.session import turn_of

FOLDER = Path(__file__).parent / "typescript"
IS_INSTALLED = shutil.which("node") is not None and (FOLDER / "node_modules").is_dir()

needs_typescript = pytest.mark.skipif(
    not IS_INSTALLED, reason="the SDKs for TypeScript are not installed: make test-clients"
)


async def run(script: str, given: Any) -> Any:
    """The script's output for an input, both as JSON. Fails if the script does."""
    pipe = asyncio.subprocess.PIPE
    node = await asyncio.create_subprocess_exec(
        "node", script, cwd=FOLDER, stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        answer, errors = await node.communicate(orjson.dumps(given))
    finally:
        if node.returncode is None:
            node.kill()
    assert node.returncode == 0, errors.decode()
    return orjson.loads(answer)


async def hold_conversation(api: str, url: str) -> list[Turn]:
    """The agent's conversation by the SDK of an API."""
    results: list[JSONObject] = []
    for name, arguments in (call for turn in TURNS for call in turn.calls):
        content, is_error = result_of(name, arguments)
        results.append({"name": name, "arguments": arguments, "content": content, "is_error": is_error})
    agent = {"model": MODEL, "system": SYSTEM, "said": SAID, "modes": MODES, "parameters": PARAMETERS}
    answers = await run("agents.mjs", {"api": api, "url": url, "results": results, **agent})
    turns = [turn_of(f"/{api}", answer) for answer in answers]
    if api == "chat":
        # Of a field that the SDK does not know, such as reasoning_content, its helper keeps the last piece.
        turns = [replace(turn, reasoning=told.reasoning) for turn, told in zip(turns, TURNS, strict=True)]
    return turns
