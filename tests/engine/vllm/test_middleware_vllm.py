"""Weir's guards in vLLM's own server, asked by OpenAI's client."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import openai
import pytest

from benchmarks.relay import free_port
from tests.processes import WAIT_LIMIT, wait_until
from tests.serving import ROOT

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def url(vllm_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("middleware"), free_port()
    (folder / "weir.yaml").write_text(json.dumps({"hooks": ["examples/upper_case.py:UpperCase"]}))
    address = ["--host", "127.0.0.1", "--port", str(port)]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *address]
    command += ["--model", str(vllm_model), "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "4"]
    command += ["--middleware", "weir.adapters.vllm.Guard"]
    environment = {**os.environ, "WEIR_CONFIG": str(folder / "weir.yaml")}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log, start_new_session=True)

    def is_up() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        with suppress(OSError):
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/health").status == 200
        return False

    try:
        wait_until(is_up)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(WAIT_LIMIT)


@pytest.mark.parametrize("streams", [True, False])
def test_all_that_vllm_answers_went_through_the_hooks(url: str, streams: bool, vllm_model: Path) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    asked = {"model": str(vllm_model), "prompt": "hello", "max_tokens": 20, "logprobs": 2, "seed": 1}
    if streams:
        chunks = list(client.completions.create(**asked, stream=True))
        text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    else:
        text = client.completions.create(**asked).choices[0].text
    assert text
    assert text == text.upper()


@pytest.mark.parametrize("streams", [True, False])
def test_chats_and_responses_go_through_the_hooks(url: str, streams: bool, vllm_model: Path) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == [str(vllm_model)]
    asked = {"model": str(vllm_model), "messages": [{"role": "user", "content": "hello"}], "max_tokens": 20}
    if streams:
        chunks = client.chat.completions.create(**asked, seed=1, stream=True)
        text = "".join(one.delta.content or "" for chunk in chunks for one in chunk.choices)
    else:
        text = client.chat.completions.create(**asked, seed=1).choices[0].message.content
    response = client.responses.create(model=str(vllm_model), input="hello", max_output_tokens=20)
    for said in (text, response.output_text):
        assert said
        assert said == said.upper()


CLIENT = """import argparse, sys
from vllm.entrypoints.cli import openai
command = getattr(openai, sys.argv.pop(1))
command.cmd(command.add_cli_args(argparse.ArgumentParser()).parse_args())
"""


@pytest.mark.parametrize("command", ["ChatCommand", "CompleteCommand"])
def test_vllms_own_client_gets_what_the_hooks_release(url: str, command: str) -> None:
    """`vllm chat` and `vllm complete`. The package for CPUs cannot start the command `vllm`."""
    line = [sys.executable, "-c", CLIENT, command, "--url", f"{url}/v1", "--quick", "hello"]
    limit = ["--max-tokens", "20"] if command == "CompleteCommand" else []
    ran = subprocess.run([*line, *limit], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    _, said = ran.stdout.split("Using model: ")[1].split("\n", 1)
    assert said.strip()
    assert said == said.upper()


@pytest.mark.parametrize("path", ["/tokenize", "/inference/v1/generate", "/v1/embeddings", "/v1/messages"])
def test_nothing_goes_round_the_hooks(url: str, path: str) -> None:
    request = urllib.request.Request(f"{url}{path}", b"{}", {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(request)
