"""Workers of one service share stored responses, and the limit of a caller's requests."""

import os
import signal
import sys
from pathlib import Path

import aiohttp
import orjson
import pytest

from tests.proxy.worker_helpers import asker, begin, recorded, workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, as Linux has it")

RESPONSES = "/v1/responses"


async def test_a_response_stored_by_one_worker_is_continued_through_another(tmp_path: Path) -> None:
    """Also after the worker that stored it was killed."""
    with workers(tmp_path, "--engine", "echo") as service:
        (number, pid), (_, other) = service.pids().items()
        with asker(service, pid) as ask:
            status, body = ask("POST", RESPONSES, {"input": "One"})
            assert status == 200
            first = orjson.loads(body)["id"]
        with asker(service, other) as ask:
            status, body = ask("POST", RESPONSES, {"input": "Two", "previous_response_id": first})
            assert status == 200
            second = orjson.loads(body)["id"]
        os.kill(pid, signal.SIGKILL)
        await service.replaced(number, pid)
        with asker(service, service.pids()[number]) as ask:
            again = {"input": [{"type": "item_reference", "id": orjson.loads(body)["output"][0]["id"]}]}
            assert ask("POST", RESPONSES, {**again, "previous_response_id": second})[0] == 200
            assert ask("DELETE", f"{RESPONSES}/{first}")[0] == 200
        with asker(service, other) as ask:
            assert ask("GET", f"{RESPONSES}/{first}")[0] == 404
            assert ask("GET", f"{RESPONSES}/{second}")[0] == 200


async def test_a_caller_s_limit_holds_over_all_workers(tmp_path: Path) -> None:
    """And requests of a worker that was killed no longer count."""
    limit = ("--max-requests-per-caller", "3")
    with workers(tmp_path, *recorded(tmp_path, num_words=2, seconds=3600), *limit) as service:
        chat = {"messages": [{"role": "user", "content": "Hi"}]}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
            streams = [await begin(session, service) for _ in range(3)]
            for pid in service.pids().values():
                with asker(service, pid) as ask:
                    status, body = ask("POST", "/v1/chat/completions", chat)
                    assert (status, b"max_requests_per_caller" in body) == (429, True)
            pid = streams[0].pid
            (number,) = (number for number, one in service.pids().items() if one == pid)
            os.kill(pid, signal.SIGKILL)
            await service.replaced(number, pid)
            num_left = sum(stream.pid != pid for stream in streams)
            more = [await begin(session, service) for _ in range(3 - num_left)]
            with asker(service, service.pids()[number]) as ask:
                assert ask("POST", "/v1/chat/completions", chat)[0] == 429
            for stream in (*streams, *more):
                stream.response.close()
