"""LiteLLM's guardrail protocol on a real socket."""

import asyncio
import gc
from typing import Any, Literal

import pytest

from engine.upstream.none import NoEngine
from hooks import Chunk, Decision, Verdict, emit, hold
from hooks.builtin.json_schema import JsonSchema
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.loading.loader import HookSpec
from hooks.workers.pool import WorkerPool
from proxy.http.admission import Exchange
from proxy.http.guard_api import open_texts
from tests.helpers import Script, until
from tests.proxy.conftest import Client, Serve

PATH = "/beta/litellm_basic_guardrail_api"
BLOCK_ONLY_PATH = f"/block-only{PATH}"
TEXT = "Write to ada@initech.com, or pay by 4111 1111 1111 1111 today. All is fine"
MASKED = "Write to [EMAIL_ADDRESS], or pay by [CREDIT_CARD] today. All is fine"


async def ask(client: Client, *texts: str, path: str = PATH, **fields: Any) -> Any:
    body = {"input_type": "response", "texts": texts, "request_data": {}, "litellm_call_id": "c1", **fields}
    status, answer, _ = await client.post(path, body)
    assert status == 200, answer
    return answer


async def prompt(client: Client, *texts: str, **fields: Any) -> Any:
    return await ask(client, *texts, input_type="request", **fields)


class Gateway:
    """LiteLLM's side of one stream in the mode `incremental_diff`: it keeps back what it is told to, and lets
    all of the last answer out at the end."""

    def __init__(self, client: Client, call: str = "c1") -> None:
        self._client = client
        self._call = call
        self._rest = ""
        self.sent = ""

    async def round(self, text: str) -> None:
        answer = await ask(self._client, text, litellm_call_id=self._call)
        (answered,) = answer["texts"]
        (kept,) = answer.get("stream_holdback_chars", [0])
        assert answered.startswith(self.sent), "sent text cannot be taken back"
        end = max(len(self.sent), len(answered) - kept)
        self.sent, self._rest = answered[:end], answered[end:]

    def end(self) -> str:
        return self.sent + self._rest


def guards() -> tuple[Any, ...]:
    return Pii(prompt="redact"), Secrets(), Phrases(["blue bird"], action="terminate")


@pytest.fixture
def litellm(serve: Serve) -> Any:
    async def start(*hooks: Any, **options: Any) -> Client:
        return await serve(NoEngine(), *hooks, guard_api=[{"name": "litellm"}], **options)

    return start


@pytest.mark.parametrize("step", [1, 3, 5, 11, len(TEXT)])
async def test_a_stream_is_masked_as_the_whole_text_is_wherever_it_ends(  # contract 3.19, 8.16
    litellm: Any, step: int
) -> None:
    client = await litellm(*guards())
    stream = Gateway(client)
    for end in range(step, len(TEXT) + step, step):
        await stream.round(TEXT[:end])
        whole = await ask(client, TEXT[:end], litellm_call_id=None)
        assert [stream.end()] == whole["texts"]
        assert "ada@" not in stream.sent
        assert "4111" not in stream.sent
    assert stream.end() == MASKED


async def test_a_stream_without_something_to_mask_is_held_only_where_a_match_may_begin(litellm: Any) -> None:
    client = await litellm(Pii())
    stream = Gateway(client)
    sent = []
    for end in range(2, 13, 2):
        await stream.round("Hello, world"[:end])
        sent.append(stream.sent)
    assert sent == ["", "", "Hello,", "Hello, ", "Hello, ", "Hello, "]
    assert stream.end() == "Hello, world"


class BlockOnlyGateway:
    """LiteLLM's side of one stream in the mode `block_only`: it sends each piece as it came unless the answer
    blocks, and asks about its last answer with the next piece behind it."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path
        self._answered = ""
        self.sent = ""

    async def stream(self, text: str, step: int) -> str | None:
        """The reason of the block."""
        for start in range(0, len(text), step):
            piece = text[start : start + step]
            answer = await ask(self._client, self._answered + piece, path=self._path)
            if answer["action"] == "BLOCKED":
                return answer["blocked_reason"]
            (self._answered,) = answer["texts"]
            self.sent += piece
        return None


@pytest.mark.parametrize("step", range(1, 12))
@pytest.mark.parametrize("action", ["redact", "terminate"])
async def test_a_gateway_that_drops_changes_is_only_told_to_block(
    litellm: Any, action: Literal["redact", "terminate"], step: int
) -> None:
    client = await litellm(Pii(action=action), Secrets(action=action))
    gateway = BlockOnlyGateway(client, BLOCK_ONLY_PATH)
    assert await gateway.stream(TEXT, step)
    assert "ada@example.co" not in gateway.sent  # parts of it are: this gateway holds nothing back
    harmless = BlockOnlyGateway(client, BLOCK_ONLY_PATH)
    assert await harmless.stream("All is fine, and 12 of 24 birds sing.", step) is None
    assert harmless.sent == "All is fine, and 12 of 24 birds sing."


@pytest.mark.parametrize("step", [1, 5, 40])
async def test_a_gateway_that_is_seen_to_drop_a_change_is_blocked(litellm: Any, step: int) -> None:
    client = await litellm(Pii())
    gateway = BlockOnlyGateway(client, PATH)
    assert await gateway.stream(TEXT, step) == open_texts.UNCHANGED
    assert "4111 1111 1111" not in gateway.sent


async def test_a_prompt_is_masked_for_a_gateway_that_drops_changes_of_streams(litellm: Any) -> None:
    client = await litellm(*guards())
    assert (await prompt(client, TEXT, path=BLOCK_ONLY_PATH))["texts"] == [MASKED]


async def test_hooks_in_workers_judge_streams_too(serve: Serve) -> None:
    pool = WorkerPool(1, [HookSpec("pii")])
    client = await serve(NoEngine(), pipeline=pool, guard_api=[{"name": "litellm"}])
    stream = Gateway(client)
    for end in range(7, len(TEXT) + 7, 7):
        await stream.round(TEXT[:end])
    assert stream.end() == MASKED


async def test_an_end_blocks_every_later_round(litellm: Any) -> None:
    client = await litellm(*guards())
    for end in (4, 8):
        assert (await ask(client, "The blue bird sings."[:end]))["action"] == "NONE"
    for end in (14, 14, 20):
        answer = await ask(client, "The blue bird sings."[:end])
        assert answer == {"action": "BLOCKED", "blocked_reason": "phrase"}


async def test_each_text_and_each_call_has_a_stream_of_its_own(litellm: Any) -> None:
    client = await litellm(Pii())
    one, other = Gateway(client, "one"), Gateway(client, "other")
    for end in range(3, 31, 3):
        await asyncio.gather(
            one.round("Write to ada@initech.com today"[:end]),
            other.round("Nothing to see here, at all."[:end]),
        )
    assert one.end() == "Write to [EMAIL_ADDRESS] today"
    assert other.end() == "Nothing to see here, at all."
    for end in (5, 9, 20):
        answer = await ask(client, "Hello, world, a long day"[:end], "ada@initech.com is me."[:end])
    assert answer["texts"] == ["Hello, world, a long", "[EMAIL_ADDRESS] is m"]


async def test_a_round_reads_only_what_is_new(litellm: Any) -> None:
    hook = Script(lambda chunk: emit(chunk.pending))
    hook.copyable = True  # type: ignore[attr-defined]
    client = await litellm(hook)
    hook.chunks.clear()  # those of the self-test
    for end in range(10, 100, 10):
        await ask(client, "x" * end)
    assert (
        sum(len(chunk.text_diff) for chunk in hook.chunks) == 10 + 90
    )  # the first round is read again, once
    await ask(client, "another text")
    assert hook.chunks[-2].text_diff == "another text"
    assert hook.finals[-2].aborted  # the stream that the other text does not continue


async def test_each_decision_about_a_stream_is_reported_once(litellm: Any) -> None:  # contract 8.10
    class Clerk(Pii):
        def on_decision(self, decision: Decision) -> None:
            told.append(decision)

    told: list[Decision] = []
    heard: list[Any] = []
    client = await litellm(Clerk())
    client.server.service.decisions.subscribe(heard.append)
    text = "Write to ada@initech.com, to bob@initech.com, and to all others"
    for end in (40, 50, len(text)):
        await ask(client, text[:end])
    for decisions in (told, heard):
        assert [one.offset for one in decisions if one.action == "redact"] == [9, 29]
    (tallies,) = [one.pipeline.tallies for one in client.server.service.deployment.policies.values()]
    assert tallies["hook0"].others["redact"] == 2


async def test_a_hook_that_cannot_look_ahead_keeps_what_it_holds(litellm: Any) -> None:
    """Its state is its own, so nobody knows what it would say at an end that may not be one."""

    def last_three(chunk: Chunk) -> Verdict:
        return emit(chunk.pending) if chunk.is_final else hold(min(3, len(chunk.pending)))

    client = await litellm(Script(last_three))
    assert (await ask(client, "abcdef"))["texts"] == ["abcdef"]
    assert (await ask(client, "abcdefghi"))["texts"] == ["abcdef"]


async def test_an_idle_text_gets_its_one_last_call(litellm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_texts, "LOOK_INTERVAL", 0.01)
    monkeypatch.setattr(open_texts, "IDLE_SECONDS", 0.05)
    hook = Script(lambda chunk: emit(chunk.pending))
    client = await litellm(hook)
    for end in (3, 6):
        await ask(client, "abcdef"[:end])
    await until(lambda: len(hook.finals) == 2)
    assert not any(chunk.aborted for chunk in hook.finals)
    answer = await ask(client, "abcdefghi")  # it was forgotten
    assert answer["texts"] == ["abcdefghi"]


async def test_a_server_that_stops_waits_for_no_open_text(
    litellm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_texts, "LOOK_INTERVAL", 3600.0)
    hook = Script(lambda chunk: emit(chunk.pending))
    client = await litellm(hook, shutdown_timeout=3600)
    for end in (3, 6):
        await ask(client, "abcdef"[:end])
    async with asyncio.timeout(60):
        await client.server.stop()
    assert hook.finals[-1].aborted


def exchanges() -> list[Exchange]:
    return [one for one in gc.get_objects() if type(one) is Exchange]


async def test_an_open_text_keeps_none_of_its_questions(litellm: Any) -> None:
    client = await litellm(Pii(), decision_log=True)
    of_others = exchanges()
    for end in (20, 40, 60):
        await ask(client, TEXT[:end])
    gc.collect()
    assert not [one for one in exchanges() if one not in of_others]
    assert (await ask(client, TEXT))["texts"] == [MASKED]


async def test_too_many_open_texts_are_refused(litellm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_texts, "MAX_OPEN", 4)
    client = await litellm(Pii())
    for call in "ab":
        for end in (3, 6):
            await ask(client, "abcdef"[:end], litellm_call_id=call)
    await ask(client, "abc", litellm_call_id="c")
    status, answer, _ = await client.post(
        PATH, {"input_type": "response", "texts": ["abcdef"], "litellm_call_id": "c"}
    )
    assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")


async def test_a_failed_hook_passes_nothing(litellm: Any) -> None:
    def fails(chunk: Chunk) -> Verdict:
        if "abcd" in chunk.text:
            raise ValueError
        return emit(chunk.pending)

    client = await litellm(Script(fails))
    for end in (2, 3):
        await ask(client, "abcdef"[:end])
    for end in (4, 5):
        status, answer, _ = await client.post(
            PATH, {"input_type": "response", "texts": ["abcdef"[:end]], "litellm_call_id": "c1"}
        )
        assert (status, answer["error"]["type"]) == (500, "guardrail_error")


async def test_a_prompt_is_masked_in_every_place(litellm: Any) -> None:
    client = await litellm(*guards())
    assert await prompt(client, "Hi") == {"action": "NONE", "texts": ["Hi"]}
    messages = [
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Mail ada@initech.com"}, {"type": "text", "text": "now"}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call := _call("mail", '{"to": "ada@initech.com"}')],
        },
    ]
    texts = ["Be kind.", "Mail ada@initech.com", "now"]
    answer = await prompt(client, *texts, structured_messages=messages, tool_calls=[call])
    assert answer["action"] == "GUARDRAIL_INTERVENED"
    assert answer["texts"] == ["Be kind.", "Mail [EMAIL_ADDRESS]", "now"]
    (changed,) = answer["structured_messages"][2]["tool_calls"]
    assert changed["function"]["arguments"] == '{"to": "[EMAIL_ADDRESS]"}'
    # Without the messages there is no place for the change: nothing may go on.
    status, _, _ = await client.post(PATH, {"input_type": "request", "texts": ["x"], "tool_calls": [call]})
    assert status == 500


async def test_a_refused_prompt_is_blocked(litellm: Any) -> None:
    client = await litellm(Phrases(["blue bird"], prompt="refuse"))
    answer = await prompt(client, "Sing of the blue bird")
    assert answer == {"action": "BLOCKED", "blocked_reason": "phrase"}


async def test_tool_calls_of_an_answer_are_judged_whole(litellm: Any) -> None:
    client = await litellm(Phrases(["rm -rf"], action="terminate"), Pii())
    fine = await ask(client, "Done.", tool_calls=[_call("run", '{"command": "ls"}')])
    assert fine == {"action": "NONE", "texts": ["Done."]}
    for arguments in ('{"command": "rm -rf /"}', '{"to": "ada@initech.com"}'):
        answer = await ask(client, tool_calls=[_call("run", arguments)])
        assert answer["action"] == "BLOCKED"


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"texts": ["x"]}, 400, "input_type"),
        ({"input_type": "reqst", "texts": ["x"]}, 400, "input_type"),
        ({"input_type": "request"}, 400, "texts"),
        ({"input_type": "request", "texts": []}, 400, "no text to judge"),
        ({"input_type": "response", "texts": []}, 400, "no text to judge"),
        ({"input_type": "request", "texts": ["x"], "images": ["https://x.y/z.png"]}, 400, "images"),
        ({"input_type": "response", "texts": ["x"], "images": ["https://x.y/z.png"]}, 400, "images"),
        ([], 400, ""),
    ],
)
async def test_nothing_passes_by_default(litellm: Any, body: Any, status: int, says: str) -> None:
    client = await litellm(*guards())
    answered, answer, _ = await client.post(PATH, body)
    assert answered == status
    assert says in answer["error"]["message"]


async def test_without_a_hook_that_reads_it_no_text_passes(litellm: Any) -> None:
    for hooks, kind in (((), "response"), ((), "request"), ((JsonSchema(tools=True),), "request")):
        client = await litellm(*hooks)
        status, _, _ = await client.post(PATH, {"input_type": kind, "texts": ["x"], "litellm_call_id": "1"})
        assert status == 501


async def test_a_gateway_has_its_key_in_its_own_header(litellm: Any) -> None:
    client = await litellm(Pii(), api_key=["k1"])
    body = {"input_type": "response", "texts": ["x"]}
    for headers, status in (
        ({}, 401),
        ({"x-api-key": "no"}, 401),
        ({"x-api-key": "k1"}, 200),
        ({"Authorization": "Bearer k1"}, 200),
    ):
        assert (await client.post(PATH, body, headers=headers))[0] == status


async def test_no_such_path_exists_unless_the_setting_says_so(serve: Serve) -> None:
    client = await serve(NoEngine(), Pii())
    assert (await client.post(PATH, {}))[0] == 404


async def test_a_server_without_an_engine_says_so(litellm: Any) -> None:
    client = await litellm(Pii())
    status, answer, _ = await client.post(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}
    )
    assert (status, "--engine none" in answer["error"]["message"]) == (501, True)
