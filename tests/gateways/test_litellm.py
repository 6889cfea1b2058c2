"""Weir as the guardrail of LiteLLM's proxy, as `docs/behind-a-gateway.md` sets them up: `make test-gateways`.

An upstream streams texts with forbidden values, cut at random. The clients ask LiteLLM. What LiteLLM lets
through without asking Weir is tested too, so that the page stays true when LiteLLM changes.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml

from benchmarks.peers.__main__ import running_upstream
from benchmarks.peers.client import HEADERS, Received, ask
from benchmarks.peers.systems import KEY, LITELLM, System, running
from benchmarks.peers.upstream import VALUES, Answer
from benchmarks.relay import free_port
from tests.serving import serving
from tests.weir import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not LITELLM.exists(), reason="there is no .venv-litellm: make test-gateways"),
]
PAGE = ROOT / "docs/behind-a-gateway.md"
FORBIDDEN = [value for value in VALUES if value != "none"]
CUTS = 125
"""Random cuts of each value: 500 streams."""
AT_ONCE = 8
REDACTED = {
    "phrase": "[phrase]",
    "e-mail": "[EMAIL_ADDRESS]",
    "card": "[CREDIT_CARD]",
    "key": "[AWS_ACCESS_KEY]",
}


def settings_of_the_page(name: str) -> Any:
    found = re.search(rf"```yaml\n({name}.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, f"{PAGE} has no {name}"
    return yaml.safe_load(found[1])


def guardrails(redacting: str, ending: str) -> list[Mapping[str, Any]]:
    """The page's guardrail, and variants of it. A request names the one that it wants."""
    (page,) = settings_of_the_page("# litellm.yaml")["guardrails"]
    page = {**page["litellm_params"], "api_base": redacting, "api_key": KEY, "default_on": False}
    block_only = {"streaming_transform_mode": "block_only", "streaming_sampling_rate": 1}
    buffered = {
        "api_base": f"{redacting}/block-only",
        "streaming_transform_mode": "block_only",
        "streaming_buffer_until_moderated": True,
    }
    variants: dict[str, dict[str, Any]] = {
        "page": {},
        "each chunk": {"streaming_sampling_rate": 1},
        "ends": {"api_base": ending},
        "block only": block_only,
        "told to block": {"api_base": f"{redacting}/block-only", **block_only},
        "buffered": buffered | {"streaming_sampling_rate": 1},
        "buffered, each fifth chunk": buffered,
        "answers": {"mode": "post_call"},
        "buffered answers": buffered | {"mode": "post_call"},
        "during": {"mode": "during_call", "api_base": ending},
        "unreachable": {"api_base": f"http://127.0.0.1:{free_port()}"},
        "wrong key": {"api_key": "wrong"},
        "tools": {"mode": ["pre_mcp_call", "post_mcp_call"], "default_on": True},
    }
    named = [{"guardrail_name": name, "litellm_params": page | own} for name, own in variants.items()]
    (bedrock,) = settings_of_the_page("guardrails:")["guardrails"]
    own = {"aws_bedrock_runtime_endpoint": redacting, "aws_access_key_id": KEY}
    return [*named, {"guardrail_name": "bedrock", "litellm_params": bedrock["litellm_params"] | own}]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """LiteLLM's, without a database."""
    folder = tmp_path_factory.mktemp("gateways")
    with ExitStack() as stack:
        upstream = stack.enter_context(running_upstream())
        weirs = []
        for arguments in ({}, {"action": "terminate", "prompt": "refuse"}):
            settings = settings_of_the_page("# weir.yaml")
            for hook in settings["hooks"]:
                hook.setdefault("args", {}).update(arguments)
            file = folder / f"weir{len(weirs)}.yaml"
            file.write_text(yaml.safe_dump({**settings, "guard_api": ["litellm", "bedrock"], "api_key": KEY}))
            weirs.append(stack.enter_context(serving("--config", str(file))))
        settings = settings_of_the_page("# litellm.yaml")
        settings["model_list"][0]["litellm_params"]["api_base"] = upstream
        echo = stack.enter_context(serving("--engine", "echo"))
        model = {"model": "openai/echo", "api_base": f"{echo}/v1", "api_key": "none"}
        settings["model_list"].append({"model_name": "echo", "litellm_params": model})
        settings["guardrails"] = guardrails(*weirs)
        tools = {
            "command": str(LITELLM.absolute() / "python"),
            "args": [str(Path(__file__).with_name("tools.py"))],
        }
        settings["mcp_servers"] = {"notes": {"transport": "stdio", **tools}}
        port = free_port()
        command = [str(LITELLM.absolute() / "litellm"), "--config", "litellm.json", "--port", str(port)]
        environment = {
            "LITELLM_MASTER_KEY": KEY,
            "LITELLM_LOG": "ERROR",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        environment |= {"LITELLM_ENABLE_MCP_STDIO": "True"}
        litellm = System(
            "LiteLLM",
            [*command, "--host", "127.0.0.1", "--telemetry", "False"],
            {"litellm.json": settings},
            environment,
            "/health/liveliness",
        )
        base_url, _ = stack.enter_context(running(litellm, folder / "litellm", port))
        yield base_url


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        yield session


class Got(NamedTuple):
    answer: Answer
    received: Received

    @property
    def outcome(self) -> str:
        return self.received.outcome(self.answer)

    @property
    def content(self) -> str:
        return self.received.texts["content 0"]

    @property
    def error(self) -> str:
        found = re.search(r"'message': '(.*?)'", self.received.error)
        return found[1] if found else self.received.error


async def all_of(
    http: aiohttp.ClientSession, url: str, guardrail: str, channel: str = "content", cuts: int = 0
) -> list[Got]:
    """Each value, in streams cut in so many ways; without cuts, in an answer without streaming."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(value: str, cut: int) -> Got:
        answer = Answer(value, channel, cut)
        async with at_once:
            received = await ask(http, url, answer, is_streaming=cuts > 0, guardrails=[guardrail])
        return Got(answer, received)

    return await asyncio.gather(*(one(value, cut) for cut in range(cuts or 1) for value in FORBIDDEN))


def outcomes(results: list[Got]) -> Counter[str]:
    return Counter(got.outcome for got in results)


@pytest.mark.parametrize("guardrail", ["page", "each chunk"])
async def test_nothing_forbidden_leaves_in_a_stream_that_equals_the_whole(
    http: aiohttp.ClientSession, url: str, guardrail: str
) -> None:
    results = await all_of(http, url, guardrail, cuts=CUTS)
    assert outcomes(results) == {"none": CUTS * len(FORBIDDEN)}
    for got in results:
        value = got.answer.value
        assert got.content == got.answer.text.replace(VALUES[value], REDACTED[value])
        assert (got.received.status, got.error) == (200, "")


async def test_each_output_is_judged(http: aiohttp.ClientSession, url: str) -> None:
    assert outcomes(await all_of(http, url, "page", "n=2", cuts=3)) == {"none": 12}
    assert outcomes(await all_of(http, url, "page", "n=2")) == {"none": 4}


async def test_an_answer_without_streaming_is_redacted(http: aiohttp.ClientSession, url: str) -> None:
    for got in await all_of(http, url, "page"):
        value = got.answer.value
        assert got.content == got.answer.text.replace(VALUES[value], REDACTED[value])


async def test_terminate_ends_an_answer_with_an_error(http: aiohttp.ClientSession, url: str) -> None:
    for got in await all_of(http, url, "ends", cuts=5):
        before, _, _ = got.answer.text.partition(VALUES[got.answer.value])
        assert before.startswith(got.content)
        assert got.error == REDACTED[got.answer.value].strip("[]")
    for got in await all_of(http, url, "ends"):
        assert (got.received.status, got.content) == (400, "")


async def test_a_buffered_stream_is_judged_before_anything_leaves(
    http: aiohttp.ClientSession, url: str
) -> None:
    for channel in ("tool_call", "logprobs"):
        for got in await all_of(http, url, "buffered", channel, cuts=3):
            assert (got.received.status, dict(got.received.texts)) == (400, {})


@pytest.mark.parametrize("guardrail", ["buffered", "buffered, each fifth chunk"])
async def test_no_stream_has_a_forbidden_character_if_litellm_buffers_and_only_blocks(
    http: aiohttp.ClientSession, url: str, guardrail: str
) -> None:
    for got in await all_of(http, url, guardrail, cuts=CUTS):
        assert (got.received.status, dict(got.received.texts)) == (400, {})


async def test_a_value_is_never_whole_if_litellm_only_blocks_and_asks_about_each_chunk(
    http: aiohttp.ClientSession, url: str
) -> None:
    found = outcomes(await all_of(http, url, "told to block", cuts=CUTS))
    assert found["whole"] == 0
    assert found.total() == CUTS * len(FORBIDDEN)


async def test_a_failure_of_the_guardrail_closes_the_request(http: aiohttp.ClientSession, url: str) -> None:
    for guardrail in ("unreachable", "wrong key"):
        for cuts in (0, 1):
            for got in await all_of(http, url, guardrail, cuts=cuts):
                assert got.received.status >= 400
                assert not any(got.received.texts.values())


async def test_a_prompt_is_redacted_or_refused(http: aiohttp.ClientSession, url: str) -> None:
    for guardrail, status in (("page", 200), ("ends", 400), ("during", 400)):
        body = {"model": "echo", "guardrails": [guardrail]}
        body |= {"messages": [{"role": "user", "content": "Mail jane.doe@millrace.com"}]}
        async with http.post(url + "/chat/completions", json=body, headers=HEADERS) as response:
            answer = await response.json()
            assert response.status == status, answer
        if status == 200:
            assert answer["choices"][0]["message"]["content"] == "Mail [EMAIL_ADDRESS]"


async def test_tools_of_mcp_servers_are_judged(http: aiohttp.ClientSession, url: str) -> None:
    async def call(name: str, **arguments: str) -> str:
        body = {"server_id": "notes", "name": name, "arguments": arguments}
        address = url.removesuffix("/v1") + "/mcp-rest/tools/call"
        async with http.post(address, json=body, headers=HEADERS) as response:
            assert response.status == 200, await response.text()
            return await response.text()

    assert "saved: Mail [EMAIL_ADDRESS]" in await call("save", text="Mail jane.doe@millrace.com")
    assert "Write to [EMAIL_ADDRESS] now." in await call("contact")


async def test_litellms_bedrock_guardrail_asks_weir(http: aiohttp.ClientSession, url: str) -> None:
    for cuts in (0, 3):
        for got in await all_of(http, url, "bedrock", cuts=cuts):
            value = got.answer.value
            assert got.content == got.answer.text.replace(VALUES[value], REDACTED[value])


LETS_THROUGH = {
    ("page", "logprobs", "whole"),
    ("page", "reasoning", "whole"),
    ("page", "tool_call", "streaming"),
    ("block only", "content", "streaming"),
    ("block only", "logprobs", "streaming"),
    ("block only", "logprobs", "whole"),
    ("block only", "reasoning", "streaming"),
    ("block only", "reasoning", "whole"),
    ("block only", "tool_call", "streaming"),
}
"""What LiteLLM sends to the client without asking, or in spite of Weir's answer: the page says so."""


@pytest.mark.parametrize("channel", ["content", "logprobs", "reasoning", "tool_call"])
async def test_what_litellm_lets_through_is_what_the_page_says(
    http: aiohttp.ClientSession, url: str, channel: str
) -> None:
    leaking = set()
    for guardrail in ("page", "block only"):
        for how, cuts in (("streaming", 2), ("whole", 0)):
            found = outcomes(await all_of(http, url, guardrail, channel, cuts=cuts))
            if found["whole"] or found["part"]:
                leaking.add((guardrail, channel, how))
    assert leaking == {one for one in LETS_THROUGH if one[1] == channel}


@pytest.mark.parametrize(
    ("guardrail", "path", "leaks"),
    [
        ("answers", "/chat/completions", False),
        ("answers", "/messages", True),
        ("answers", "/responses", True),
        ("buffered answers", "/chat/completions", False),
        ("buffered answers", "/messages", False),
        ("buffered answers", "/responses", False),
    ],
)
async def test_streams_of_other_endpoints_need_a_buffer_and_guards_that_end(
    http: aiohttp.ClientSession, url: str, guardrail: str, path: str, leaks: bool
) -> None:
    said = [{"role": "user", "content": "Mail jane.doe@millrace.com now."}]
    body = {"model": "echo", "guardrails": [guardrail], "stream": True, "max_tokens": 100}
    body["input" if path == "/responses" else "messages"] = said
    async with http.post(url + path, json=body, headers=HEADERS) as response:
        assert ("millrace" in await response.text()) is leaks
