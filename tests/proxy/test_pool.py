"""A service in front of two upstreams, of which one fails: all over real sockets."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from hooks import emit
from proxy.deployment.engines import make_engine
from tests.engine.upstream.conftest import FakeUpstream, fake_upstream
from tests.helpers import Script, pooled
from tests.proxy.conftest import Client, Events, Serve
from tests.proxy.service.test_metrics import scrape

DONE = b"data: [DONE]\n\n"
WORDS = ["one ", "two ", "three ", "four ", "five ", "six ", "seven"]
ANSWER = "".join(WORDS)
NUMBER = 12
ROLE_ONLY = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}


def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def well(body: dict[str, Any]) -> Any:
    yield ROLE_ONLY
    yield b": a comment\n\n"
    yield from map(chunk, WORDS)
    yield chunk("", "stop")
    yield DONE


def status(code: int) -> Any:
    return lambda body: web.json_response({"error": {"message": "no"}}, status=code)


BEFORE_THE_FIRST_TOKEN: dict[str, Any] = {
    "503": status(503),
    "500": status(500),
    "429": status(429),
    "200, then hangs": lambda body: ["hang"],
    "200, cut before the first token": lambda body: [ROLE_ONLY, "cut"],
    "200, ended before the first token": lambda body: [],
    "200, an error event first": lambda body: [{"error": {"message": "secret", "code": 500}}],
    "role-only frames and comments, then hangs": lambda body: [ROLE_ONLY, b": hello\n\n", ROLE_ONLY, "hang"],
}


class Front:
    """A service in front of a good upstream and a bad one, with a hook that remembers all."""

    def __init__(self, client: Client, hook: Script, good: FakeUpstream, bad: FakeUpstream | None) -> None:
        self.client, self.hook, self.good, self.bad = client, hook, good, bad

    async def ask_all(self) -> list[Events]:
        return list(await asyncio.gather(*(self.client.stream(CHATS, self.body(i)) for i in range(NUMBER))))

    def body(self, number: int) -> dict[str, Any]:
        return {"model": "m", "messages": [{"role": "user", "content": f"question {number}"}]}

    @property
    def texts_seen(self) -> Counter[str]:
        """The texts that the hook was shown, whole, of each stream with its last call."""
        return Counter(chunk.text for chunk in self.hook.finals)

    @property
    def asked(self) -> tuple[Counter[str], Counter[str]]:
        """How often each question reached the good upstream, and the bad one."""
        good, bad = (
            Counter(str(body["messages"][0]["content"]) for body in fake.bodies) if fake else Counter()
            for fake in (self.good, self.bad)
        )
        return good, bad


CHATS = "/v1/chat/completions"


@pytest.fixture
async def fronted(serve: Serve) -> Any:
    async with AsyncExitStack() as stack:

        async def start(bad_script: Any, port: int | None = None, **settings: Any) -> Front:
            good = await stack.enter_async_context(fake_upstream())
            good.script = well
            bad = None if port else await stack.enter_async_context(fake_upstream())
            if bad is not None:
                bad.script = bad_script
            url = bad.url if bad else f"http://127.0.0.1:{port}"
            upstream: Any = [{"url": good.url, "name": "good"}, {"url": url, "name": "bad"}]
            chosen: Any = {"routing": "least", "upstream_health_interval": 0, **settings}
            engine = make_engine(pooled(upstream=upstream, **chosen))
            hook = Script(lambda c: emit(c.pending))
            client = await serve(engine, hook, names=[])
            hook.chunks.clear()  # of its self-test
            return Front(client, hook, good, bad)

        yield start


@pytest.mark.parametrize("failure", BEFORE_THE_FIRST_TOKEN)
async def test_whatever_fails_before_the_first_token_all_are_answered(fronted: Any, failure: str) -> None:
    front = await fronted(BEFORE_THE_FIRST_TOKEN[failure], upstream_first_token_timeout=4.0)
    answers = await front.ask_all()
    assert [answer.content() for answer in answers] == [ANSWER] * NUMBER
    assert all(answer.events[-1] == (None, "[DONE]") for answer in answers)
    assert front.texts_seen == {ANSWER: NUMBER}
    good, bad = front.asked
    assert set(good.values()) == {1}
    assert len(good) == NUMBER
    assert bad
    assert set(bad.values()) == {1}
    assert "secret" not in str([answer.events for answer in answers])
    samples = await scrape(front.client)
    for name in ("good", "bad"):
        assert samples("weir_upstream_outstanding", upstream=name) == 0
    assert samples("weir_upstream_requests_total", upstream="good", outcome="finished") == NUMBER
    assert samples("weir_upstream_retries_total", upstream="bad") == len(bad)
    assert samples.count("weir_upstream_first_token_seconds", upstream="good") == NUMBER


async def test_an_upstream_that_is_not_there_costs_nobody_an_answer(
    fronted: Any, unused_tcp_port: int
) -> None:
    front = await fronted(None, unused_tcp_port)
    answers = await front.ask_all()
    assert [answer.content() for answer in answers] == [ANSWER] * NUMBER
    assert front.texts_seen == {ANSWER: NUMBER}
    samples = await scrape(front.client)
    assert samples("weir_upstream_state", upstream="bad", state="open") == 1
    assert (await front.client.get("/health"))[0] == (await front.client.get("/ready"))[0] == 200


async def test_after_the_first_token_a_cut_is_one_error_and_no_second_answer(fronted: Any) -> None:
    front = await fronted(lambda body: [ROLE_ONLY, *map(chunk, WORDS[:5]), "cut"])
    answers = await front.ask_all()
    whole = [answer for answer in answers if answer.content() == ANSWER]
    cut = [answer for answer in answers if answer.content() != ANSWER]
    assert len(whole) + len(cut) == NUMBER
    assert cut
    for answer in cut:
        errors = [data["error"] for _, data in answer.events if isinstance(data, dict) and "error" in data]
        assert len(errors) == 1
        assert answer.events[-1] == (None, "[DONE]")
        assert ANSWER.startswith(answer.content())
    good, bad = front.asked
    assert not good.keys() & bad.keys()
    assert set((good + bad).values()) == {1}
    assert sum(front.texts_seen.values()) == NUMBER


async def test_a_refusal_is_the_callers_and_goes_nowhere_else(fronted: Any) -> None:
    front = await fronted(status(400))
    answers = await front.ask_all()
    good, bad = front.asked
    assert not good.keys() & bad.keys()
    assert Counter(answer.status for answer in answers) == {200: len(good), 400: len(bad)}


async def test_if_every_queue_is_full_the_client_gets_429(fronted: Any) -> None:
    front = await fronted(status(429))
    front.good.script = status(429)
    answer, *_ = await front.ask_all()
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")


async def test_answers_are_whole_without_streaming_too(fronted: Any) -> None:
    front = await fronted(BEFORE_THE_FIRST_TOKEN["200, cut before the first token"])
    for number in range(NUMBER):
        code, body, _ = await front.client.post(CHATS, front.body(number))
        assert (code, body["choices"][0]["message"]["content"]) == (200, ANSWER)


async def test_a_draining_upstream_gets_nothing_new(fronted: Any) -> None:
    front = await fronted(well)
    front.client.engine.drain("bad")
    await front.ask_all()
    assert front.asked[1] == {}
    samples = await scrape(front.client)
    assert samples("weir_upstream_state", upstream="bad", state="draining") == 1
