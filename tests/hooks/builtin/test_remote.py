"""A detector asked over HTTP: what it says is done, and what it does not say as it should fails closed.

This is about the two APIs that judge several texts in a request, and about what all APIs share.
"""

import asyncio
import gzip
import logging
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

from hooks.builtin.remote_service.api import MAX_TEXTS
from hooks.builtin.remote_service.service import MAX_ANSWER
from hooks.decisions.failure import HookError
from hooks.loading.loader import HookLoadError, HookSpec, load_hook
from hooks.pipeline.pipeline import Pipeline
from hooks.testing import WAYS, assert_chunk_invariant, assert_never_released, play, stream_of
from hooks.testing.check import check
from hooks.workers.pool import WorkerPool
from tests.helpers import guard_all, make_deltas, text_of, until
from tests.hooks.builtin.detectors import DetectorServer, serving

SAID = "All is well. The password is hunter2. So it goes. "


@pytest.fixture(autouse=True)
def mode() -> str:
    return "both, as each test says"


@pytest.fixture
def server() -> DetectorServer:
    return DetectorServer()


@pytest.fixture
def url(server: DetectorServer) -> Iterator[str]:
    with serving(server) as base:
        yield f"{base}/v1/moderations"


def moderations(url: str, **arguments: Any) -> HookSpec:
    return HookSpec("remote", {"url": url, **arguments})


def fms(url: str, **arguments: Any) -> HookSpec:
    url = url.replace("/v1/moderations", "/api/v1/text/contents")
    return moderations(url, api="fms", detector="words-en", **arguments)


def pipeline_with(hook: HookSpec) -> Pipeline:
    return Pipeline([load_hook(hook)])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"window": 1}, "All is well. [secret]So it goes. "),
        ({}, "[secret]"),
        ({"unit": "characters", "window": 20, "stride": 20}, "All is well. The pas[secret] it goes. "),
        ({"window": 1, "action": "suppress"}, "All is well. So it goes. "),
        ({"window": 1, "action": "terminate", "text": "Enough."}, "All is well. Enough."),
    ],
)
def test_a_flagged_window_is_taken_out(url: str, options: dict[str, Any], text: str) -> None:
    assert play(moderations(url, **options), SAID).content == text
    assert play(moderations(url, **options), list(SAID)).content == text
    assert play(moderations(url, **options), list(SAID), in_worker=True).content == text


def test_a_span_is_cut_out(url: str, server: DetectorServer) -> None:
    for pieces in ([SAID], list(SAID)):
        assert play(fms(url), pieces).content == "All is well. The password is [secret]. So it goes. "
    assert server.bodies[0] == {
        "contents": ["All is well. The password is hunter2. ", "The password is hunter2. So it goes. "],
        "detector_params": {},
    }


def test_where_a_stream_is_cut_changes_nothing(url: str) -> None:
    for guard in (moderations(url, window=1), fms(url), fms(url, action="terminate")):
        assert_chunk_invariant(guard, "Is it hunter2? No.", num_random=5)
        assert_never_released(guard, "Is it hunter2? No.", "hunter2", not_tried=WAYS)


def test_a_prompt_is_refused_or_redacted(url: str) -> None:
    for guard in (moderations(url, prompt="refuse"), fms(url, prompt="refuse")):
        assert play(guard, stream_of("ok", prompt=SAID)).refused == "secret"
    request = play(fms(url, prompt="redact"), stream_of("ok", prompt=SAID)).request
    assert request is not None
    assert request.messages[0]["content"] == "All is well. The password is [secret]. So it goes. "


def test_tool_arguments_stay_json(url: str) -> None:
    written = '{"\\u0061": "hunter2", "n": 1}'
    assert play(fms(url), stream_of(list(written), channel="tool_call")).tool_calls[0][1] == (
        '{"\\u0061": "[secret]", "n": 1}'
    )


def test_a_service_is_told_model_parameters_and_key(
    url: str, server: DetectorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "sk-key")
    play(moderations(url, model="omni-moderation-latest", api_key_env="THE_KEY"), "Hello.")
    play(fms(url, detector_params={"threshold": 0.3}, api_key_env="THE_KEY"), "Hello.")
    assert server.bodies == [
        {"input": ["Hello."], "model": "omni-moderation-latest"},
        {"contents": ["Hello."], "detector_params": {"threshold": 0.3}},
    ]
    assert [headers["Authorization"] for headers in server.headers] == ["Bearer sk-key"] * 2
    assert server.headers[1]["detector-id"] == "words-en"


def test_many_windows_are_asked_about_in_several_requests(url: str, server: DetectorServer) -> None:
    said = "".join(f"Sentence {i}. " for i in range(40))
    play(moderations(url, window=1), [said])
    assert [len(body["input"]) for body in server.bodies] == [MAX_TEXTS, MAX_TEXTS, 40 - 2 * MAX_TEXTS]
    assert "".join(server.texts) == said


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, True),
        ({"labels": ["secret"]}, True),
        ({"labels": ["self-harm"]}, False),
        ({"labels": ["secret", "self-harm"]}, True),
        ({"threshold": 0.9}, True),
        ({"threshold": 0.91}, False),
        ({"labels": ["self-harm"], "threshold": 0.9}, False),
        ({"labels": ["self-harm"], "threshold": 0.02}, True),
    ],
)
def test_which_labels_and_scores_count(url: str, options: dict[str, Any], found: bool) -> None:
    assert ("[" in play(moderations(url, **options), SAID).content) == found
    if "self-harm" not in options.get("labels", []):
        assert ("[" in play(fms(url, **options), SAID).content) == found


def test_a_detection_is_called_what_it_was_asked_for_as(url: str) -> None:
    assert "is [a secret]." in play(fms(url, labels=["a secret"]), SAID).content
    assert "is [secret]." in play(fms(url), SAID).content


def answers(answer: Any, status: int = 200) -> Callable[[], web.Response]:
    if isinstance(answer, str):
        return lambda: web.Response(text=answer, status=status)
    return lambda: web.json_response(answer, status=status)


FINE = {"flagged": False, "categories": {"secret": False}, "category_scores": {"secret": 0.1}}
PLACE = {"start": 0, "end": 3, "detection": "x", "detection_type": "y", "score": 0.5}


@pytest.mark.parametrize(
    ("api", "answer", "status"),
    [
        *((api, text, 200) for api in ("moderations", "fms") for text in ("", "no", "{", "null", "[[]]]")),
        *((api, {"error": "x"}, status) for api in ("moderations", "fms") for status in (400, 500, 503)),
        ("moderations", {"results": [FINE]}, 201),
        ("moderations", {"results": []}, 200),
        ("moderations", {"results": [FINE, FINE]}, 200),
        ("moderations", {"results": [{**FINE, "flagged": "false"}]}, 200),
        ("moderations", {"results": [{"flagged": False}]}, 200),
        (
            "moderations",
            '{"results": [{"flagged": false, "categories": {}, "category_scores": {"a": NaN}}]}',
            200,
        ),
        ("moderations", {"results": [{"flagged": True, "categories": {"y" * 101: True}}]}, 200),
        ("fms", [], 200),
        ("fms", [[], []], 200),
        ("fms", [PLACE], 200),
        *(
            ("fms", [[{**PLACE, **wrong}]], 200)
            for wrong in (
                {"start": -1},
                {"start": 3},
                {"end": 7},
                {"start": "0"},
                {"start": None},
                {"text": "ell"},
                {"score": "high"},
                {"detection": None},
                {"detection_type": "y" * 101},
            )
        ),
    ],
)
async def test_an_answer_that_makes_no_sense_fails_the_request(
    url: str, server: DetectorServer, caplog: pytest.LogCaptureFixture, api: str, answer: Any, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    guard = moderations(url) if api == "moderations" else fms(url)
    server.answer = answers(answer, status)
    pipeline = pipeline_with(guard)
    with pytest.raises(HookError) as caught:
        await guard_all(pipeline, make_deltas(["Hello!"]))
    assert len(server.bodies) == 1
    assert "Hello" not in caplog.text
    assert "Hello" not in str(caught.value.__cause__)
    server.answer = None  # and others go on
    assert text_of(await guard_all(pipeline, make_deltas(["Hello!"]))) == "Hello!"
    await pipeline.aclose()


async def test_a_compressed_answer_is_not_unpacked(url: str, server: DetectorServer) -> None:
    headers = {"Content-Encoding": "gzip"}
    server.answer = lambda: web.Response(body=gzip.compress(b" " * 10_000_000), headers=headers)
    pipeline = pipeline_with(moderations(url, timeout=60))
    with pytest.raises(HookError) as caught:
        await guard_all(pipeline, make_deltas(["Hello!"]))
    assert "compressed" in str(caught.value.__cause__)
    await pipeline.aclose()


async def test_an_answer_that_does_not_end_is_not_read_to_its_end(url: str, server: DetectorServer) -> None:
    server.answer = lambda: web.Response(body=b" " * (2 * MAX_ANSWER))
    pipeline = pipeline_with(moderations(url, timeout=60))
    with pytest.raises(HookError) as caught:
        await guard_all(pipeline, make_deltas(["Hello!"]))
    assert "more than" in str(caught.value.__cause__)
    await pipeline.aclose()


@pytest.mark.parametrize(
    ("options", "result"),
    [
        ({"labels": ["hate"]}, FINE),
        ({"labels": ["hate"], "threshold": 0.5}, FINE),
        ({"threshold": 0.5}, {"flagged": True, "categories": {"secret": True}}),
    ],
)
async def test_a_category_that_the_service_does_not_know_fails_the_self_test(
    url: str, server: DetectorServer, options: dict[str, Any], result: Any
) -> None:
    server.answer = answers({"results": [result]})
    pipeline = pipeline_with(moderations(url, **options))
    with pytest.raises(HookLoadError, match="failed its self-test"):
        await pipeline.start()
    await pipeline.aclose()


def test_what_is_flagged_in_no_category_is_flagged(url: str, server: DetectorServer) -> None:
    server.answer = answers({"results": [{"flagged": True, "categories": {}}]})
    assert play(moderations(url), "Hello!").content == "[flagged]"


async def test_text_does_not_follow_a_redirect(url: str, server: DetectorServer) -> None:
    server.answer = lambda: web.Response(status=307, headers={"Location": url})
    pipeline = pipeline_with(moderations(url))
    with pytest.raises(HookError):
        await guard_all(pipeline, make_deltas(["Hello!"]))
    assert len(server.bodies) == 1
    await pipeline.aclose()


async def test_a_service_that_is_slow_fails_the_request_at_the_deadline(
    url: str, server: DetectorServer
) -> None:
    server.is_open.clear()
    pipeline = pipeline_with(moderations(url, timeout=0.3))
    with pytest.raises(HookError) as caught:
        await guard_all(pipeline, make_deltas(["Hello!"]))
    assert isinstance(caught.value.__cause__, TimeoutError)
    server.is_open.set()
    await pipeline.aclose()


async def test_a_service_that_is_not_there_keeps_the_server_from_starting() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        pipeline = pipeline_with(moderations(f"http://127.0.0.1:{nobody.getsockname()[1]}/x"))
        with pytest.raises(HookLoadError, match="failed its self-test"):
            await pipeline.start()
        await pipeline.aclose()


@pytest.mark.parametrize("drops", [1, 2])
async def test_a_connection_that_breaks_is_tried_once_more(
    url: str, server: DetectorServer, drops: int
) -> None:
    pipeline = pipeline_with(moderations(url))
    server.drops = drops
    if drops == 1:
        assert text_of(await guard_all(pipeline, make_deltas(["Hello!"]))) == "Hello!"
    else:
        with pytest.raises(HookError):
            await guard_all(pipeline, make_deltas(["Hello!"]))
    assert len(server.bodies) == 2
    await pipeline.aclose()


async def test_many_streams_share_a_few_connections(url: str, server: DetectorServer) -> None:
    pipeline = pipeline_with(moderations(url, max_connections=3, window=1, timeout=60))
    server.is_open.clear()
    said = [f"Number {i}. It is hunter2. And so on." for i in range(20)]
    loop = asyncio.get_running_loop()
    streams = [loop.create_task(guard_all(pipeline, make_deltas(text))) for text in said]
    await until(lambda: len(server.bodies) >= 3)
    server.is_open.set()
    released = [text_of(deltas) for deltas in await asyncio.gather(*streams)]
    assert released == [f"Number {i}. [secret]And so on." for i in range(20)]
    assert server.most_at_once == 3
    assert len(server.connections) == 3
    assert len(server.bodies) == 3 * 20
    await pipeline.aclose()
    await closed(server)


async def closed(server: DetectorServer) -> None:
    """Wait until every connection is closed."""
    await until(lambda: all(connection.is_closing() for connection in server.connections))


async def test_a_hook_worker_keeps_its_connections_until_it_is_closed(
    url: str, server: DetectorServer
) -> None:
    pool = WorkerPool(1, [moderations(url, window=1)])
    await pool.start()
    released = await asyncio.gather(*(guard_all(pool, make_deltas(SAID)) for _ in range(8)))  # type: ignore[arg-type]
    assert [text_of(deltas) for deltas in released] == ["All is well. [secret]So it goes. "] * 8
    assert not any(connection.is_closing() for connection in server.connections)
    await pool.aclose()
    await closed(server)


async def test_a_request_that_is_cancelled_hangs_up(url: str, server: DetectorServer) -> None:
    pipeline = pipeline_with(moderations(url))
    server.is_open.clear()
    stream = asyncio.get_running_loop().create_task(guard_all(pipeline, make_deltas(["Hello!"])))
    await until(lambda: server.bodies)
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)
    assert stream.cancelled()
    await closed(server)
    server.is_open.set()
    await pipeline.aclose()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "127.0.0.1:8000"}, "url is a whole one"),
        ({"url": "ftp://x/y"}, "url is a whole one"),
        ({"api": "openai"}, "api: Input should be 'moderations', 'fms', 'litellm', 'bedrock' or 'nemo'"),
        ({"api": "contents"}, "api: contents is called fms now"),
        ({"api": "fms"}, "fms needs detector"),
        ({"api": "nemo"}, "nemo needs model"),
        ({"api": "bedrock"}, "bedrock needs a region, or api_key_env"),
        ({"api": "bedrock", "region": "eu-west-1"}, "the environment variable AWS_ACCESS_KEY_ID is not set"),
        ({"region": "eu-west-1"}, "region is of api: bedrock without api_key_env"),
        ({"api": "litellm", "labels": ["hate"]}, "labels is of api: moderations, fms, bedrock"),
        ({"api": "nemo", "model": "m", "threshold": 0.5}, "threshold is of api: moderations, fms"),
        ({"labels": "hate"}, "labels: Input should be a valid array"),
        ({"labels": []}, "labels: Value should have at least 1 item"),
        ({"unit": "tokens"}, "unit is characters or sentences, not 'tokens'"),
        ({"window": 0}, "window: Input should be greater than or equal to 1"),
        ({"timeout": 0}, "timeout: Input should be greater than 0"),
        ({"max_connections": 0}, "max_connections: Input should be greater than or equal to 1"),
        ({"window": 2, "stride": 3}, "stride is from 1 up to window"),
        ({"detector": "x"}, "detector is of api: fms"),
        ({"detector_params": {}}, "detector_params is of api: fms, litellm"),
        ({"config": "c"}, "config is of api: nemo"),
        ({"api": "fms", "detector": "x", "model": "m"}, "model is of api: moderations, litellm, nemo"),
        ({"api_key_env": "NO_SUCH_KEY"}, "the environment variable NO_SUCH_KEY is not set"),
        ({"template": "{text}"}, "the only field is {entity}"),
    ],
)
def test_what_cannot_be_keeps_the_server_from_starting(
    arguments: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(HookLoadError, match=re.escape(message)):
        load_hook(HookSpec("remote", {"url": "http://127.0.0.1:1/x", **arguments}))


@pytest.mark.slow
async def test_it_passes_the_hook_check(url: str) -> None:
    results = await check(moderations(url, window=1, prompt="redact"))
    assert results[-1].name == "prompts"
    assert [result for result in results if not result.is_good] == []
