"""Front ends and agent frameworks against Weir, each in its own words: `make test-frontends`.

Each script of this folder uses one library as its users would, and prints what they see. Weir stands in
front of a scripted upstream, with guards that redact, end and refuse. `docs/clients.md` has the results.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.frontends import upstream
from tests.processes import killed_at_end
from tests.serving import ROOT, serving

HERE = Path(__file__).parent
OPENAI_2, OPENAI_3 = (ROOT / f".venv-frontends-openai-{major}/bin/python" for major in (2, 3))
NODE = Path(shutil.which("node") or "node")
SCRIPTS = [
    (OPENAI_2, "instructor_client.py"),
    (OPENAI_2, "llama_index_llm.py"),
    (OPENAI_3, "dspy_predict.py"),
    (OPENAI_3, "llm_command.py"),
    *((OPENAI_3, f"langchain_agent.py {api}") for api in ("openai", "responses", "anthropic")),
    *((OPENAI_3, f"openai_agents.py {api}") for api in ("chat", "responses")),
    *((OPENAI_3, f"pydantic_ai_agent.py {api}") for api in ("chat", "responses", "anthropic")),
    *((NODE, f"vercel_ai.mjs {api}") for api in ("chat", "responses", "compatible", "messages")),
    (NODE, "continue_adapter.mjs"),
]
RAISE_AT_A_GUARDS_END = ("openai_agents.py responses",)
"""Scripts whose library raises an error, with the reason in it, where others return the text."""
TEXTS = {
    "answer": upstream.ANSWER,
    "redacted": "Write to [EMAIL_ADDRESS] today.",
    "ended": "The secret project is called ",
    "closed": "The secret project is called [withheld]",
    "replied": "I may not answer that.",
}
TOLD = {"refused": "The prompt was refused: phrase", "failed": "The connection to the upstream engine broke."}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Weir's, with the guards of `weir.yaml`."""
    command = [sys.executable, str(HERE / "upstream.py")]
    with killed_at_end(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout
        found = re.search(r"http://127.0.0.1:\d+", process.stdout.readline())
        assert found
        options = ("--engine", "openai", "--upstream", f"{found[0]}/v1", "--config", str(HERE / "weir.yaml"))
        with serving(*options) as url:
            yield url


@pytest.mark.slow
@pytest.mark.parametrize(("program", "script"), SCRIPTS, ids=[script for _, script in SCRIPTS])
def test_a_library_works_unchanged(address: str, program: Path, script: str) -> None:
    name, *arguments = script.split()
    needed = HERE / "node_modules" if program == NODE else program
    if not (needed.exists() and program.exists()):
        pytest.skip(f"there is no {needed.relative_to(ROOT)}: make test-frontends")
    command = [program, HERE / name, address, *arguments]
    ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    results: dict[str, Any] = {}
    for line in ended.stdout.splitlines():
        if line.startswith("{"):  # Continue's adapter prints a line of its own for each error
            results |= json.loads(line)
    assert results, ended.stderr
    assert ended.returncode == 0, ended.stderr
    for one, result in results.items():
        check(one, result, raises=script in RAISE_AT_A_GUARDS_END)


def check(name: str, result: Any, *, raises: bool) -> None:
    """Fails unless this is what a user of the library should see of the try."""
    if name in ("ended", "closed", "replied") and raises:
        assert "content_filter" in result["told"], (name, result)
    elif name in TEXTS:
        assert "raised" not in result, (name, result)
        assert result["text"] == TEXTS[name], (name, result)
    elif name in TOLD:
        assert TOLD[name] in result["told"], (name, result)
    elif name == "tools":
        assert "raised" not in result, result
        assert result.get("text", "Paris").rstrip(".").endswith("Paris"), result
        assert result.get("calls", [{"city": "Paris"}]) == [{"city": "Paris"}], result
    elif name.endswith("_ended"):  # half an object is no object
        assert "raised" in result, (name, result)
    else:
        assert result == upstream.REPORT, (name, result)
