"""`weir bench` as users run it: options, output and exit status."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from proxy.cli.cli import main
from tests.processes import WAIT_LIMIT
from tests.weir_bench.conftest import Scripted, chat_frames, hello, stream

ROOT = Path(__file__).parents[2]


async def start(*arguments: str | Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "proxy",
        "bench",
        *map(str, arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def without_the_client_s_load(err: str) -> str:
    """The output without the warning about a busy client, which depends on the machine."""
    return "".join(line for line in err.splitlines(keepends=True) if "of a core" not in line)


async def run(*arguments: str | Path) -> tuple[int | None, str, str]:
    process = await start(*arguments)
    out, err = await asyncio.wait_for(process.communicate(), WAIT_LIMIT)
    return process.returncode, out.decode(), without_the_client_s_load(err.decode())


async def test_two_targets_are_compared_side_by_side(scripted: Scripted, tmp_path: Path) -> None:
    one, two = await scripted(hello), await scripted(hello)
    json, html = tmp_path / "out.json", tmp_path / "out.html"
    targets = ("--target", f"one={one.url}", "--target", f"two={two.url},their-model")
    loads = ("--concurrency", "1,3", "--num-prompts", "6", "--repetitions", "2", "--num-warmups", "1")
    more = ("--extra", '{"top_k": 5}', "--max-tokens", "9", "--slo", "ttft:60000", "--slo", "itl:60000")
    code, out, err = await run(*targets, *loads, *more, "--json", json, "--html", html)
    assert (code, err) == (0, "")
    assert len(one.bodies) == len(two.bodies) == 1 + 2 * 2 * 6
    assert {body["model"] for body in one.bodies} == {"first"}
    assert {body["model"] for body in two.bodies} == {"their-model"}
    asked = one.bodies[0]
    assert (asked["stream"], asked["top_k"], asked["max_tokens"]) == (True, 5, 9)
    assert asked["stream_options"] == {"include_usage": True}
    prompts = [[body["messages"][0]["content"] for body in server.bodies] for server in (one, two)]
    assert sorted(prompts[0]) == sorted(prompts[1])
    assert len(set(prompts[0])) == len(prompts[0])
    found = orjson.loads(json.read_bytes())
    assert [(s["target"], s["concurrency"], s["completed"]) for s in found["summary"]] == [
        ("one", 1, 6),
        ("two", 1, 6),
        ("one", 3, 6),
        ("two", 3, 6),
    ]
    assert all(run["total_output_tokens"] == 36 for run in found["runs"])
    assert all(run["request_goodput"] == run["request_throughput"] for run in found["runs"])
    assert "concurrency 3" in out
    assert "TTFT" in out
    assert html.read_text().count("<figure>") == 15


async def test_failed_requests_are_reported_and_fail_the_command(scripted: Scripted) -> None:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if len(server.bodies) % 3 == 0:
            return web.json_response({"error": {"message": "Too many requests."}}, status=429)
        if len(server.bodies) == 4:
            return await stream(request, chat_frames([]))
        return await hello(request, body)

    server = await scripted(answer)
    code, out, err = await run("--url", server.url, "--num-requests", "9", "--num-warmups", "0")
    assert code == 1
    assert "3 × HTTP 429: Too many requests." in err
    assert "1 × no text: finish_reason: stop" in err
    row = next(line for line in out.splitlines() if line.startswith("concurrency 1"))
    assert row.split()[3:5] == ["5", "4"]


async def test_ctrl_c_ends_with_a_report_of_the_requests_so_far(scripted: Scripted, tmp_path: Path) -> None:
    has_three = asyncio.Event()

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if len(server.bodies) <= 3:
            return await hello(request, body)
        has_three.set()  # the one stream sends one request after the other
        await asyncio.Event().wait()
        raise AssertionError

    server = await scripted(answer)
    json, html = tmp_path / "out.json", tmp_path / "out.html"
    load = ("--concurrency", "1,2", "--num-prompts", "50", "--num-warmups", "0")
    process = await start("--url", server.url, *load, "--json", json, "--html", html)
    await asyncio.wait_for(has_three.wait(), WAIT_LIMIT)
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(process.communicate(), WAIT_LIMIT)
    assert (process.returncode, without_the_client_s_load(err.decode())) == (130, "")
    assert "Interrupted" in out.decode()
    found = orjson.loads(json.read_bytes())
    assert found["interrupted"] is True
    assert [(run["concurrency"], run["completed"]) for run in found["runs"]] == [(1, 3)]
    assert "Interrupted" in html.read_text()


async def test_an_open_loop_sends_completions_from_a_dataset(scripted: Scripted, tmp_path: Path) -> None:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        choice = {"index": 0, "text": body["prompt"], "finish_reason": "stop"}
        return await stream(
            request, [b"data: %b\n\n" % orjson.dumps({"choices": [choice]}), b"data: [DONE]\n\n"]
        )

    server = await scripted(answer)
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "one"}\n{"prompt": "two", "output_tokens": 3}\n')
    code, out, err = await run(
        *("--base-url", server.url.removesuffix("/v1"), "--endpoint", "completions", "--dataset-path", data),
        *("--request-rate", "500", "--num-prompts", "10", "--max-concurrency", "2", "--num-warmups", "0"),
    )
    assert (code, err) == (0, "")
    assert "500 requests/s" in out
    assert set(server.paths) == {"/v1/completions"}
    assert sorted((body["prompt"], body["max_tokens"]) for body in server.bodies) == (
        [("one", 128)] * 5 + [("two", 3)] * 5
    )
    assert server.most_open <= 2


def test_a_missing_server_is_reported(unused_tcp_port: int) -> None:
    with pytest.raises(SystemExit, match=f"weir bench: .*127.0.0.1:{unused_tcp_port}"):
        main(["bench", "--url", f"http://127.0.0.1:{unused_tcp_port}"])
