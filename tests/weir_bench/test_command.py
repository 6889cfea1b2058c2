"""`weir bench` as it is run: options, what it prints, how it exits."""

import asyncio
import io
import signal
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from proxy.commands.cli import main
from tests.helpers import WEIR
from tests.weir_bench.conftest import Scripted, chat_frames, hello, plan_for, stream
from weir_bench.plan import Level
from weir_bench.progress import Progress
from weir_bench.runner import BenchError, Runner

ROOT = Path(__file__).parents[2]


async def start(*arguments: str | Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        WEIR,
        "bench",
        *map(str, arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def but_for_the_client_s_load(err: str) -> str:
    """Whether the client had to work hard is this machine's affair."""
    return "".join(line for line in err.splitlines(keepends=True) if "of a core" not in line)


async def run(*arguments: str | Path) -> tuple[int | None, str, str]:
    process = await start(*arguments)
    out, err = await process.communicate()
    return process.returncode, out.decode(), but_for_the_client_s_load(err.decode())


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


async def test_requests_that_fail_are_told_and_fail_the_command(scripted: Scripted) -> None:
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


async def test_ctrl_c_ends_with_what_was_measured_so_far(scripted: Scripted, tmp_path: Path) -> None:
    has_three = asyncio.Event()

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if len(server.bodies) <= 3:
            return await hello(request, body)
        has_three.set()  # one stream asks one after the other
        await asyncio.Event().wait()
        raise AssertionError

    server = await scripted(answer)
    json, html = tmp_path / "out.json", tmp_path / "out.html"
    load = ("--concurrency", "1,2", "--num-prompts", "50", "--num-warmups", "0")
    process = await start("--url", server.url, *load, "--json", json, "--html", html)
    await has_three.wait()
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert (process.returncode, but_for_the_client_s_load(err.decode())) == (130, "")
    assert "Interrupted" in out.decode()
    found = orjson.loads(json.read_bytes())
    assert found["interrupted"] is True
    assert [(run["concurrency"], run["completed"]) for run in found["runs"]] == [(1, 3)]
    assert "Interrupted" in html.read_text()


async def test_an_open_loop_asks_completions_from_a_dataset(scripted: Scripted, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--concurrency 0", "'0' is not a whole number from 1 on"),
        ("--concurrency 1,x", "'x' is not a whole number from 1 on"),
        ("--rate -1 --duration 1", "'-1' is not a number above 0, or inf"),
        ("--rate nan --duration 1", "'nan' is not a number above 0, or inf"),
        ("--duration inf", "'inf' is not a number above 0"),
        ("--url localhost:8000", "'localhost:8000' is no http or https URL"),
        ("--target weir", "'weir' is not NAME=URL or NAME=URL,MODEL"),
        ("--target a=http://a --target a=http://b", "two targets are called 'a'"),
        ("--goodput ttft", "'' is not a number above 0"),
        ("--goodput speed:3", "'speed:3' is not METRIC:MS with one of ttft, itl"),
        ("--extra []", "'[]' is not a JSON object"),
        ("--extra {", "'{' is not a JSON object"),
        ("--concurrency 1 --rate 2", "give one of them"),
        ("--max-concurrency 3", "--max-concurrency limits an open loop"),
        ("--rate 2", "an open loop needs --num-prompts"),
        ("--rate inf --duration 3", "an open loop needs --num-prompts"),
        ("--dataset-path /nowhere/data.jsonl", "/nowhere/data.jsonl"),
        ("--json /nowhere/out.json", "/nowhere/out.json"),
        ("--endpoint responses", "invalid choice: 'responses'"),
    ],
)
def test_bad_options_are_told(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["bench", *arguments.split()])
    assert exited.value.code == 2
    assert message in capsys.readouterr().err


def test_a_server_that_is_not_there_is_told(unused_tcp_port: int) -> None:
    with pytest.raises(SystemExit, match=f"weir bench: .*127.0.0.1:{unused_tcp_port}"):
        main(["bench", "--url", f"http://127.0.0.1:{unused_tcp_port}"])


async def test_a_warm_up_that_fails_ends_the_bench(scripted: Scripted) -> None:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "No such model."}}, status=404)

    runner = Runner(plan_for(await scripted(answer), num_warmups=2))
    with pytest.raises(BenchError, match="a: warm-up failed: HTTP 404: No such model"):
        await runner.run()
    assert not runner.runs


async def test_a_terminal_gets_a_progress_bar(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    server = await scripted(hello)
    await Runner(plan_for(server, levels=[Level(concurrency=2)], num_prompts=4), Progress()).run()
    assert "a, concurrency 2" in terminal.getvalue()
    assert "0 failed" in terminal.getvalue()
    before = terminal.getvalue()
    await Runner(plan_for(server), Progress(disable=True)).run()
    assert terminal.getvalue() == before
