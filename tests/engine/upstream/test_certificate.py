"""A certificate that is not trusted is named, by the upstream's engine and by the client of a chat."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
import trustme
from aiohttp import web

from engine.protocol import EngineError
from engine.upstream.openai.engine import OpenAIEngine
from proxy.cli.dialogue.client import ChatClient, ChatError, LostError
from tests.helpers import make_request
from tests.weir import run_weir

FAULT = (
    "shows a certificate that is not trusted (unable to get local issuer certificate): SSL_CERT_FILE may name"
)


async def _list_models(_: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "theirs"}]})


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def url(authority: trustme.CA) -> AsyncIterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    app = web.Application()
    app.router.add_get("/v1/models", _list_models)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def test_the_engine_names_it(url: str) -> None:
    engine = OpenAIEngine(url)
    await engine.start()
    try:
        assert FAULT in str(engine.health.problem)
        with pytest.raises(EngineError, match="shows a certificate that is not trusted") as raised:
            async for _ in engine.generate(make_request()):
                pass
        assert raised.value.status == 503
    finally:
        await engine.aclose()


async def test_a_chat_names_it(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ChatError) as raised:
            await ChatClient(session, url).models()
    assert FAULT in str(raised.value)
    assert not isinstance(raised.value, LostError), "a chat would ask again and again"


async def test_ssl_cert_file_helps(
    url: str, authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In a process of its own: a process reads the authorities once."""
    file = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(file)
    code = (
        "import asyncio, sys, aiohttp\n"
        "from proxy.cli.dialogue.client import ChatClient\n"
        "async def main():\n"
        "    async with aiohttp.ClientSession() as session:\n"
        "        print(await ChatClient(session, sys.argv[1]).models())\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, url),
        env={**os.environ, "SSL_CERT_FILE": str(file)},
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    assert said.decode().strip() == "['theirs']"


@pytest.mark.slow
async def test_a_report_names_it(url: str) -> None:
    report = await asyncio.to_thread(run_weir, "shadow", "report", "--url", url)
    assert report.returncode == 1
    assert FAULT in report.stderr
