"""The command `llm`, with Weir as one of its OpenAI-compatible models: `llm_command.py ADDRESS`."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from report import BASE_URL, MODEL, asking, filling_in, report

HOME = tempfile.TemporaryDirectory()
MODELS = f"""
- model_id: weir
  model_name: {MODEL}
  api_base: "{BASE_URL}/v1"
  supports_tools: true
  supports_schema: true
"""
(Path(HOME.name) / "extra-openai-models.yaml").write_text(MODELS)
TOOL = """
def get_weather(city: str) -> str:
    "The weather in a city."
    return f"21 degrees in {city}"
"""


def llm(*arguments: str) -> str:
    """What the command prints. Raises an error of what it prints as one."""
    command = [sys.executable, "-m", "llm", "-m", "weir", "--key", "-", *arguments]
    environment = {**os.environ, "LLM_USER_PATH": HOME.name}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(ended.stderr)
    return ended.stdout.removesuffix("\n")


def fill_in(question: str) -> Any:
    return json.loads(llm("--schema", "city, degrees int", question))


def use_tool() -> Any:
    return {"text": llm("--functions", TOOL, "How is the weather?")}


report(**asking(lambda question: {"text": llm(question)}), tools=use_tool, **filling_in(fill_in))
