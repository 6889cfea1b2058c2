"""Values that leave as placeholders and come back, as clients of every endpoint see them (contract 9)."""

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from engine.protocol import Channel, Delta, GenerationRequest
from engine.streams.recorder import RecordingEngine
from engine.upstream.openai.engine import OpenAIEngine
from hooks import prompt_texts
from hooks.detect.placeholders import placeholder_for, placeholders_in
from hooks.loading.loader import HookSpec
from hooks.pipeline.pipeline import Pipeline
from hooks.workers.pool import WorkerPool
from tests.contract.case import Case, end, every_channel, everywhere, guard, said
from tests.contract.test_operator import OPERATOR, settings
from tests.contract.wire import ENDPOINTS
from tests.engine.upstream.conftest import fake_upstream
from tests.helpers import ScriptedEngine, until
from tests.proxy.conftest import Serve
from tests.proxy.telemetry.conftest import collector as collector
from tools.collector import Collector

MAIL, OTHER = "nann@initech.org", "other@initech.org"
MASKS = HookSpec("pii", {"entities": ["EMAIL_ADDRESS"], "prompt": "redact", "restore": True})


pytestmark = pytest.mark.usefixtures("restore_key")


def masked(request: GenerationRequest) -> list[str]:
    """The placeholders in the prompt."""
    texts = [text.text for text in prompt_texts(request)]
    return [*dict.fromkeys(text[a:b] for text in texts for a, b in placeholders_in(text, 0, len(text)))]


def says(channel: Channel, form: str, size: int = 3) -> ScriptedEngine:
    """A model that writes `form`, with the prompt's first placeholder at `{}`, in pieces of this size."""

    def script(request: GenerationRequest) -> list[Delta]:
        text = form.replace("{}", (masked(request) or ["none"])[0])
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        finish: Any = "tool_calls" if channel == "tool_call" else "stop"
        outputs = range(request.num_outputs)
        return [d for i in outputs for d in (*said(channel, *pieces, index=i), end(finish, index=i))]

    return ScriptedEngine(script)


@every_channel()
async def test_a_value_comes_back_on_every_channel(case: Case, channel: Channel) -> None:  # contract 9.1, 9.2
    for size in (1, 7, 100):
        fields = {"echo": True} if channel == "echo" else {}
        engine = says(channel, "to {}!", size)
        answer = await case.answer(engine, MASKS, prompt=f"write to {MAIL}: ", **fields)
        assert answer.only.said(channel) == f"to {MAIL}!"
        (request,) = case.engine.requests
        assert not any(MAIL in text.text for text in prompt_texts(request))


@everywhere("outputs")
async def test_a_value_comes_back_in_every_output(case: Case) -> None:  # contract 9.2
    answer = await case.answer(says("content", "to {}!"), MASKS, prompt=f"write to {MAIL}: ", n=3)
    assert [one.content for one in answer.outputs] == [f"to {MAIL}!"] * 3


@everywhere("tool_call")
async def test_a_value_has_escapes_in_arguments(case: Case) -> None:  # contract 9.2
    names = HookSpec("patterns", {"patterns": ['the "boss"'], "prompt": "redact", "restore": True})
    answer = await case.answer(says("tool_call", "to {}!"), names, prompt='greet the "boss"')
    assert answer.only.said("tool_call") == 'to the \\"boss\\"!'


@everywhere()
async def test_a_placeholder_of_another_request_stays_one(case: Case) -> None:  # contract 9.3, 9.9
    other = placeholder_for("EMAIL_ADDRESS", MAIL, "another caller")
    case.withholds(MAIL)
    answer = await case.answer(says("content", f"to {other}!"), MASKS, prompt="write")
    assert answer.only.content == f"to {other}!"


@everywhere()
async def test_only_the_caller_s_own_values_pass(case: Case) -> None:  # contract 3.18, 9.4
    client = await case.start(says("content", f"{MAIL}, {OTHER}."), MASKS, **settings())
    answer = await case.ask(client, f"write to {MAIL}: ", headers=OPERATOR)
    assert answer.only.content == f"{MAIL}, [EMAIL_ADDRESS]."
    decisions = [one for name, one in answer.told if name == "weir.decision"]
    assert {"restore", "redact", "rewrite_prompt"} <= {one["action"] for one in decisions}
    assert MAIL not in str(decisions)


@everywhere()
async def test_a_value_has_one_placeholder_and_a_typed_one_stays(case: Case) -> None:  # contract 9.5, 9.8
    client = await case.start(says("content", "{}"), MASKS)
    for _ in range(2):
        await case.ask(client, f"from {MAIL} to {MAIL}")
    first, second = case.engine.requests
    assert masked(first) == masked(second)
    assert len(masked(first)) == 1
    (typed,) = masked(first)
    answer = await case.ask(client, f"{typed} is not {MAIL}")
    *_, last = case.engine.requests
    assert typed in masked(last)
    assert len(masked(last)) == 2
    assert answer.only.content == typed


@every_channel()
async def test_a_value_completes_no_match(case: Case, channel: Channel) -> None:  # contract 9.12
    """The model writes the rest of a key whose beginning is the caller's."""
    forms = {"number": r"\bAB\d{4}\b", "key": r"\bAB\d{8}\b"}
    codes = HookSpec("patterns", {"patterns": forms, "prompt": "redact", "restore": True})
    case.withholds("AB12345678")
    for size in (1, 7, 100):
        fields = {"echo": True} if channel == "echo" else {}
        answer = await case.answer(says(channel, "so {}5678!", size), codes, prompt="for AB1234: ", **fields)
        assert answer.only.said(channel) == "so AB1234[key]!"


@everywhere()
async def test_text_waits_only_while_it_begins_a_placeholder(case: Case) -> None:  # contract 9.6
    looks = guard("Looks")
    form = "[E] [EMAIL_ADDRESS_] {} and on"
    answer = await case.answer(says("content", form, 1), MASKS, looks, prompt=f"write to {MAIL}: ")
    assert answer.only.content == form.replace("{}", MAIL)
    assert len(masked(case.engine.requests[0])[0]) <= 43
    (_, seen) = case.hooks
    waits = max(len(chunk.text_diff) for chunk in seen.chunks)
    assert waits <= max(len(MAIL), 43)


@everywhere("logprobs")
async def test_tokens_of_a_placeholder_are_withheld(case: Case) -> None:  # contract 3.18, 9.7
    fields = {"rewritten_tokens": "keep", "prompt": f"write to {MAIL}: "}
    answer = await case.answer(says("content", "to {}", 4), MASKS, **fields)
    assert answer.only.content == f"to {MAIL}"
    assert answer.only.tokens == []


@everywhere()
async def test_a_cut_placeholder_is_not_completed(case: Case) -> None:  # contract 9.7
    case.withholds(MAIL)
    engine = says("content", "{}")
    script = engine.script
    engine.script = lambda request: [*[*script(request)][:5], end("length")]
    answer = await case.answer(engine, MASKS, prompt=f"write to {MAIL}: ")
    assert answer.only.finish == "length"
    assert answer.only.content == ""


@everywhere()
async def test_the_order_says_who_sees_the_values(case: Case) -> None:  # contract 2.13, 9.10
    hooks = [guard("SeesPrompts"), MASKS, guard("SeesPrompts", mode="enforce")]
    before, behind = [
        HookSpec(one.path, one.args, name=name) for one, name in ((hooks[0], "a"), (hooks[2], "b"))
    ]
    await case.answer(says("content", "to {}!", 100), before, MASKS, behind, prompt=f"write to {MAIL}: ")
    first, _, last = case.hooks
    assert MAIL in first.prompt
    assert MAIL not in last.prompt
    assert MAIL not in first.answer
    assert MAIL in last.answer
    assert (first.restored, last.restored) == ([], [MAIL])


@everywhere()
async def test_a_hook_has_a_state_of_its_own_for_each_request(case: Case) -> None:  # contract 2.12
    hooks = [HookSpec("tests.contract.guards:Remembers", {"word": word}) for word in ("a", "b")]
    client = await case.start(says("content", "word", 2), *hooks)
    for prompt in ("one", "two"):
        answer = await case.ask(client, prompt)
        assert answer.only.content == f"word[a:1:{prompt}][b:1:{prompt}]"


@everywhere()
async def test_a_hook_marks_a_request_for_the_hooks_of_the_answer(case: Case) -> None:  # contract 8.15
    taints = HookSpec("phrases", {"phrases": ["zebra7"], "prompt": "taint", "of": ["user"]})
    client = await case.start(says("content", "ok"), taints, guard("SaysTaint"), **settings())
    answer = await case.ask(client, "it is zebra7", headers=OPERATOR)
    assert answer.only.content == "phrase: ok"
    assert "taint" in [one["action"] for name, one in answer.told if name == "weir.decision"]
    assert (await case.ask(client, "hello")).only.content == "None: ok"
    shadow = HookSpec(taints.path, taints.args, "shadow")
    answer = await case.answer(says("content", "ok"), shadow, guard("SaysTaint"), prompt="it is zebra7")
    assert answer.only.content == "None: ok"


async def test_the_next_turn_may_come_by_the_id_of_the_last_one(serve: Serve) -> None:  # contract 9.8
    client = await serve(engine := says("content", "to {}!"), pipeline=await Pipeline.load([MASKS]))
    body: dict[str, Any] = {"model": "m", "input": f"write to {MAIL}"}
    _, first, _ = await client.post("/v1/responses", body)
    again = {"model": "m", "input": "again", "previous_response_id": first["id"]}
    _, second, _ = await client.post("/v1/responses", again)
    for one in (first, second):
        assert one["output"][0]["content"][0]["text"] == f"to {MAIL}!"
    assert masked(engine.requests[0]) == masked(engine.requests[1])
    assert len(engine.requests[1].messages) == 3
    assert MAIL not in str(engine.requests[1])


async def test_values_come_back_from_workers(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """Each request may be served by another worker (contract 1.5, 9.2, 9.8)."""
    client = await serve(says("content", "to {}!"), pipeline=WorkerPool(2, [MASKS]))
    for endpoint in ENDPOINTS:
        for streams in (False, True):
            case = Case(endpoint, streams, serve, caplog, clients=[client])
            answer = await case.ask(client, f"write to {MAIL}: ")
            assert answer.only.content == f"to {MAIL}!"


def text_of_files(folder: Path) -> str:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return "".join(file.read_bytes().decode(errors="replace") for file in files)


@pytest.mark.parametrize("streams", [False, True])
async def test_no_value_is_anywhere_but_in_the_answer(
    collector: Collector, serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture, streams: bool
) -> None:  # contract 9.1
    """An upstream's bytes, recordings, the audit log, kept decisions, metrics, traces, logs and errors."""
    caplog.set_level(logging.INFO)

    def script(body: Any) -> list[Any]:
        text = f"to {body['messages'][0]['content']} bluebird {OTHER}"
        pieces = [{"content": text[i : i + 3]} for i in range(0, len(text), 3)]
        choices = [{"index": 0, "delta": piece} for piece in pieces]
        last = {"index": 0, "delta": {}, "finish_reason": "stop"}
        return [*({"choices": [one]} for one in (*choices, last)), b"data: [DONE]\n\n"]

    async with fake_upstream() as upstream:
        upstream.script = script
        recorded = RecordingEngine(OpenAIEngine(upstream.url), tmp_path / "tapes", max_bytes=10**6)
        audit = HookSpec("audit", {"path": str(tmp_path / "audit"), "include_text": True})
        # The last guard withholds what came back: its decisions are those that could have a value.
        last = HookSpec("patterns", {"patterns": ["bluebird|[a-z]{1,9}@initech.org"]})
        pipeline = await Pipeline.load([MASKS, last, audit])
        options = settings(keep_withheld_text=True, store=SecretStr(f"sqlite:///{tmp_path}/weir.sqlite"))
        client = await serve(recorded, pipeline=pipeline, otlp_endpoint=collector.url, **options)
        case = Case(ENDPOINTS[0], streams, serve, caplog, clients=[client])
        answer = await case.ask(client, f"write to {MAIL}", headers=OPERATOR)
        assert answer.only.content == "to write to [pattern] [pattern] [EMAIL_ADDRESS]"
        await until(lambda: bool(collector.spans) and "usage" in text_of_files(tmp_path / "tapes"))
        _, metrics = await client.get("/metrics", headers=OPERATOR)
        _, kept = await client.get("/admin/decisions", headers=OPERATOR)
        (asked,) = upstream.bodies
    places = {
        "the upstream": str(asked),
        "the log": caplog.text,
        "metrics": metrics.decode(),
        "decisions": kept.decode(),
        "traces": str(collector.spans),
        "files": text_of_files(tmp_path),
    }
    assert "bluebird" in places["files"]
    assert [name for name, text in places.items() if MAIL in text or "nann" in text] == []


KEY = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
KEYS = HookSpec("secrets", {"prompt": "redact", "restore": True})
LINKS = HookSpec("links", {"allow": ["ok.example"]})


@everywhere()
@pytest.mark.parametrize("place", [0, 1])
async def test_a_value_in_an_address_is_the_prompts_in_either_order(case: Case, place: int) -> None:
    """Contract 9.10, 9.11."""
    case.withholds(KEY)
    for hook, value, is_carried in ((KEYS, KEY, True), (MASKS, "nann@example.info", False)):
        hooks = [hook]
        hooks.insert(place, LINKS)
        for size in (1, 9, 1000):
            engine = says("content", "so ![x](https://ok.example/?q={}) there", size)
            answer = await case.answer(engine, *hooks, prompt=f"mine is {value} now")
            address = "" if is_carried else f"https://ok.example/?q={value}"
            assert answer.only.content == f"so ![x]({address}) there"
