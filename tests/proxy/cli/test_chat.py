"""`weir chat` prints an answer as it arrives."""

import asyncio
import subprocess

from tests.processes import WAIT_LIMIT
from tests.proxy.cli.conftest import weir


async def test_weir_chat_shows_the_stream(echo: tuple["subprocess.Popen[str]", str]) -> None:
    _, url = echo
    for arguments, given in ((["Hello there"], None), ([], "Hello there\n")):
        with weir("chat", "--url", url + "/v1", *arguments) as chat:
            out, err = await asyncio.to_thread(chat.communicate, given, WAIT_LIMIT)
        assert (chat.returncode, out, err) == (0, "HELLO THERE\n", "")
    with weir("chat", "--url", "http://127.0.0.1:9/v1", "x") as lost:
        _, err = await asyncio.to_thread(lost.communicate, None, WAIT_LIMIT)
    assert lost.returncode == 1
    assert err == "weir chat: http://127.0.0.1:9/v1: the server cannot be reached: Connection refused\n"
