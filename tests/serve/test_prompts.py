"""Prompts that hooks read, in front of the in-process engine and its tokenizer."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import BadRequestError, OpenAI

from engine.streams.recording import Recording
from hooks import prompt_texts
from tests.serving import serving

ADDRESS = "zoe@millrace.initech.com"
EXAMPLE = ("--hook", "examples/private_prompt.py:PrivatePrompt")


def phrases(folder: Path, **args: Any) -> tuple[str, ...]:
    hook = {"path": "phrases", "args": {"phrases": ["project bluebird"], **args}}
    (folder / "weir.yaml").write_text(json.dumps({"hooks": [hook]}))
    return ("--config", str(folder / "weir.yaml"))


@pytest.fixture(params=[(), ("--hook-workers", "1")], ids=["in process", "in a worker"])
def where(request: pytest.FixtureRequest) -> tuple[str, ...]:
    value: tuple[str, ...] = request.param
    return value


def client_of(url: str) -> OpenAI:
    return OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)


async def post(url: str, path: str, body: dict[str, Any]) -> Any:
    async with aiohttp.ClientSession() as http, http.post(url + path, json=body) as response:
        return await response.json()


async def complete(url: str, prompt: Any, **more: Any) -> Any:
    """The answer, or the error, to a completion that gives its prompt back."""
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "echo": True, "logprobs": 0, **more}
    return await post(url, "/v1/completions", body)


def test_the_example_keeps_addresses_from_the_model(weir_serve: Callable[..., str]) -> None:
    url = weir_serve("--engine", "echo", *EXAMPLE)
    with client_of(url) as client:
        for stream in (False, True):
            asked = {"model": "echo", "messages": [{"role": "user", "content": f"I am {ADDRESS}."}]}
            answer = client.chat.completions.create(**asked, stream=stream)
            assert ADDRESS not in str(answer if not stream else [chunk.to_json() for chunk in answer])
        assert client.chat.completions.create(**asked).choices[0].message.content == "I am [e-mail]."


async def test_token_ids_are_read_as_text(weir_serve: Callable[..., str], where: tuple[str, ...]) -> None:
    url, said = weir_serve(*EXAMPLE, *where), f"I am {ADDRESS}"
    plain, secret = [(await post(url, "/tokenize", {"prompt": p}))["tokens"] for p in ("Hello there", said)]
    one, other, text = [await complete(url, prompt) for prompt in (plain, secret, said)]
    assert one["choices"][0]["text"].startswith("Hello there")
    assert one["usage"]["prompt_tokens"] == len(plain)
    assert ADDRESS not in str(other)
    assert "".join(other["choices"][0]["logprobs"]["tokens"]) == other["choices"][0]["text"]
    assert other["choices"][0]["text"] == text["choices"][0]["text"]
    assert other["choices"][0]["text"].startswith("I am [e-mail]")


async def test_ids_that_the_model_has_not_are_the_callers_fault(weir_serve: Callable[..., str]) -> None:
    url = weir_serve(*EXAMPLE)
    for token in (2**31, 2**62):
        answer = await complete(url, [1, token])
        assert (answer["error"]["type"], answer["error"]["param"]) == ("invalid_request_error", "prompt")


def test_a_guard_that_ships_refuses_prompts(tmp_path: Path, where: tuple[str, ...]) -> None:
    full_width = [{"type": "text", "text": "ＰＲＯＪＥＣＴ bluebird?"}]
    messages: list[Any] = [{"role": "user", "content": "Hello!"}]
    with serving(*phrases(tmp_path, prompt="refuse"), *where) as url, client_of(url) as client:
        answer = client.chat.completions.create(model="weir-demo", messages=messages)
        assert answer.choices[0].message.content
        with pytest.raises(BadRequestError) as caught:
            client.chat.completions.create(
                model="weir-demo", messages=[*messages, {"role": "user", "content": full_width}]
            )
    assert caught.value.body == {
        "message": "The prompt was refused: phrase",
        "type": "invalid_request_error",
        "param": "messages[1]",
        "code": "content_filter",
    }


def test_a_guard_that_ships_answers_for_the_model(tmp_path: Path) -> None:
    said = "I may not speak of that."
    with serving(*phrases(tmp_path, prompt="refuse", text=said)) as url, client_of(url) as client:
        answer = client.responses.create(model="weir-demo", input="Tell me of Project Bluebird.")
        assert (answer.output_text, answer.status) == (said, "incomplete")
        texts = {0: "", 1: ""}
        for chunk in client.completions.create(
            model="weir-demo", prompt="Project Bluebird", stream=True, n=2
        ):
            texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {0: said, 1: said}


def test_a_recording_holds_what_the_model_was_asked(tmp_path: Path) -> None:
    """Not what the caller said: recordings are no way round."""
    options = ("--record", str(tmp_path / "kept"), *phrases(tmp_path, prompt="redact"))
    with serving(*options) as url, client_of(url) as client:
        client.chat.completions.create(
            model="weir-demo", messages=[{"role": "user", "content": "Project Bluebird?"}], max_tokens=4
        )
    (path,) = (tmp_path / "kept").iterdir()
    assert [text.text for text in prompt_texts(Recording.load(path).request)] == ["[phrase]?"]


SLOW = """
import os, time
from hooks import emit

class Slow:
    thread_safe = True
    def __init__(self, gate):
        self.gate = gate
    def on_request(self, request):
        while len(str(request.prompts)) > 100 and not os.path.exists(self.gate):
            time.sleep(0.001)
        return request
    def __call__(self, chunk):
        return emit(chunk.pending)
"""


async def test_others_are_served_while_a_hook_reads_a_long_prompt(
    tmp_path: Path, weir_serve: Callable[..., str]
) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "slow.py").write_text(SLOW)
    hook = {"path": f"{tmp_path}/slow.py:Slow", "args": {"gate": str(gate)}}
    (tmp_path / "weir.yaml").write_text(json.dumps({"hooks": [hook]}))
    url = weir_serve("--engine", "echo", "--config", str(tmp_path / "weir.yaml"))
    long = asyncio.get_running_loop().create_task(complete(url, "long " * 20_000))
    for _ in range(3):
        assert "choices" in await complete(url, "short")
    assert not long.done()
    gate.touch()
    assert "choices" in await long
