"""The other gateways' protocols on a real socket, by their documented shapes."""

import asyncio
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError

from engine.upstream.none import NoEngine
from hooks import Chunk, Verdict, emit
from hooks.builtin.media import Media
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.tools import Tools
from hooks.prompts.texts import prompt_texts
from tests.helpers import Script
from tests.proxy.conftest import Client, Serve

ALL = ["litellm", "bedrock", "agentgateway", "fms", "nemo", "hooks"]
MAIL, MASK = "Mail ada@example.com now.", "Mail [EMAIL_ADDRESS] now."
BIRD = "Sing of the blue bird."


@pytest.fixture
async def client(serve: Serve) -> Client:
    phrases = Phrases(["blue bird"], action="terminate", prompt="refuse")
    apis = [{"name": name} for name in ALL]
    return await serve(NoEngine(), Pii(prompt="redact"), phrases, guard_api=apis, api_key=["k1"])


async def ask(client: Client, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    status, answer, _ = await client.post(path, body, headers={"Authorization": "Bearer k1", **named})
    return status, answer


def bedrock(client: Client, access_key: str) -> Any:
    session = botocore.session.get_session({"region": (None, None, "eu-west-1", None)})
    session.set_credentials(access_key, "nobody checks it")
    return session.create_client("bedrock-runtime", endpoint_url=client.url, region_name="eu-west-1")


async def test_bedrocks_own_client_gets_its_answers(client: Client) -> None:
    aws = await asyncio.to_thread(bedrock, client, "k1")

    def apply(source: str, *texts: str) -> Any:
        content = [{"text": {"text": text}} for text in texts]
        return aws.apply_guardrail(
            guardrailIdentifier="weir", guardrailVersion="1", source=source, content=content
        )

    for source in ("INPUT", "OUTPUT"):
        passed = await asyncio.to_thread(apply, source, "Hello.")
        assert (passed["action"], passed["outputs"], passed["assessments"]) == ("NONE", [], [])
        assert passed["usage"]["topicPolicyUnits"] == 1
        masked = await asyncio.to_thread(apply, source, MAIL, "Hello.")
        assert masked["action"] == "GUARDRAIL_INTERVENED"
        assert masked["outputs"] == [{"text": MASK}, {"text": "Hello."}]
        (found,) = masked["assessments"][0]["sensitiveInformationPolicy"]["regexes"]
        assert (found["action"], found["match"]) == ("ANONYMIZED", "")
        blocked = await asyncio.to_thread(apply, source, BIRD)
        (topic,) = blocked["assessments"][0]["topicPolicy"]["topics"]
        assert (topic["name"], topic["action"]) == ("phrase", "BLOCKED")
        assert blocked["outputs"] == [{"text": "phrase"}]
    aws = await asyncio.to_thread(bedrock, client, "k2")
    with pytest.raises(ClientError, match="AccessDeniedException"):
        await asyncio.to_thread(apply, "INPUT", "Hello.")


async def test_bedrock_refuses_what_it_cannot_judge(client: Client) -> None:
    path = "/guardrail/weir/version/1/apply"
    image = {"image": {"format": "png", "source": {"bytes": "eA=="}}}
    for body in (
        {"source": "INPUT", "content": [image]},
        {"source": "MIDDLE", "content": [{"text": {"text": "x"}}]},
        {"source": "INPUT", "content": []},
        {"content": [{"text": {"text": "x"}}]},
    ):
        status, answer = await ask(client, path, body)
        assert (status, list(answer)) == (400, ["message"])


async def test_agentgateways_webhook(client: Client) -> None:
    def prompt(text: str | None) -> Any:
        return {"body": {"messages": [{"role": "user", "content": text}]}}

    def answer(text: str | None) -> Any:
        return {"body": {"choices": [{"message": {"role": "assistant", "content": text}}]}}

    for path, made in (("/request", prompt), ("/response", answer)):
        assert await ask(client, path, made("Hello.")) == (200, {"action": {"reason": "passed"}})
        _, masked = await ask(client, path, made(MAIL))
        assert masked == {"action": {**made(MASK), "reason": "masked"}}
        _, rejected = await ask(client, path, made(BIRD))
        assert rejected["action"]["status_code"] == 403
        assert isinstance(rejected["action"]["body"], str)
        for wrong in ({}, {"body": {}}, made(None)):
            status, refused = await ask(client, path, wrong)
            assert status == refused["action"]["status_code"] == 400


async def test_fms_detectors_say_where(client: Client) -> None:
    contents, weir = "/api/v1/text/contents", {"detector_id": "weir"}
    texts = ["Hello.", f"{MAIL} Or bob@example.com: {BIRD}", MAIL]
    _, answer = await ask(client, contents, {"contents": texts, "detector_params": {}}, **weir)
    assert [[found["text"] for found in one] for one in answer] == [
        [],
        ["ada@example.com", "bob@example.com", "blue bird."],
        ["ada@example.com"],
    ]
    assert answer[2] == [
        {
            "start": 5,
            "end": 20,
            "text": "ada@example.com",
            "detection": "EMAIL_ADDRESS",
            "detection_type": "hook0",
            "score": 1.0,
        }
    ]
    _, answer = await ask(client, contents, {"contents": texts}, detector_id="hook1")
    assert [len(one) for one in answer] == [0, 1, 0]
    for path, body in (
        ("/api/v1/text/generation", {"prompt": "Hi", "generated_text": MAIL}),
        ("/api/v1/text/chat", {"messages": [{"role": "assistant", "content": MAIL}]}),
        ("/api/v1/text/context/doc", {"content": MAIL, "context_type": "docs", "context": [BIRD]}),
    ):
        _, answer = await ask(client, path, body, **weir)
        assert answer == [{"detection": "EMAIL_ADDRESS", "detection_type": "hook0", "score": 1.0}]
    body = {"messages": [{"role": "user", "content": BIRD}]}
    _, answer = await ask(client, "/api/v1/text/chat", body, **weir)
    assert answer == [{"detection": "phrase", "detection_type": "hook1", "score": 1.0}]


@pytest.mark.parametrize("kind", ["docs", "document", "chunks"])
async def test_hooks_of_a_text_are_shown_the_documents_that_it_is_about(serve: Serve, kind: str) -> None:
    hook = Script(lambda chunk: emit(chunk.pending))
    client = await serve(NoEngine(), hook, guard_api=[{"name": "fms"}])
    body = {"content": "It is blue.", "context_type": kind, "context": ["The bird is blue.", "So it is."]}
    status, answer = await ask(client, "/api/v1/text/context/doc", body, detector_id="weir")
    assert (status, answer) == (200, [])
    last = hook.chunks[-1]
    assert (last.text, last.channel) == ("It is blue.", "content")
    shown = {one.text: one.source for one in prompt_texts(last.request)}
    assert shown["The bird is blue."] == shown["So it is."] == "document"


async def test_addresses_of_documents_are_refused(client: Client) -> None:
    body = {"content": "x", "context_type": "url", "context": ["https://example.com/"]}
    status, answer = await ask(client, "/api/v1/text/context/doc", body, detector_id="weir")
    assert (status, answer["code"]) == (422, 422)
    assert "reads no addresses" in answer["message"]


async def test_fms_errors_have_a_code(client: Client) -> None:
    for body, headers, status in (
        ({"contents": ["x"]}, {}, 422),
        ({"contents": ["x"]}, {"detector_id": "other"}, 404),
        ({"content": ["x"]}, {"detector_id": "weir"}, 422),
        ({"contents": []}, {"detector_id": "weir"}, 422),
    ):
        answered, answer = await ask(client, "/api/v1/text/contents", body, **headers)
        assert (answered, answer["code"], set(answer)) == (status, status, {"code", "message"})


async def test_nemos_checks(client: Client) -> None:
    def chat(text: str, role: str = "user", **guardrails: Any) -> Any:
        said = [{"role": "user", "content": "Hi"}] if role == "assistant" else []
        return {"model": "m", "messages": [*said, {"role": role, "content": text}], "guardrails": guardrails}

    for role in ("user", "assistant"):
        assert await ask(client, "/v1/checks", chat("Hello.", role)) == (
            200,
            {"status": "passed", "content": "Hello.", "rail": None},
        )
        _, masked = await ask(client, "/v1/checks", chat(MAIL, role))
        assert masked == {"status": "modified", "content": MASK, "rail": "hook0"}
        _, blocked = await ask(client, "/v1/checks", chat(BIRD, role))
        assert (blocked["status"], blocked["rail"]) == ("blocked", "hook1")
    both = {"rail_types": ["input", "output"]}
    assert (await ask(client, "/v1/checks", chat(MAIL, "assistant", **both)))[1]["status"] == "modified"
    for wrong in (
        {"messages": []},
        chat("x", rail_types=["output"]),
        chat("x", rail_types=["dialog"]),
        chat("x", rail_types=[]),
    ):
        status, answer = await ask(client, "/v1/checks", wrong)
        assert (status, list(answer)) == (400, ["detail"])


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
async def test_a_coding_agents_call_is_judged_before_it_runs(client: Client, agent: str) -> None:
    path = f"/v1/hooks/{agent}"

    def call(command: str, **fields: Any) -> Any:
        asked = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "session_id": "s", "cwd": "/"}
        return {**asked, "tool_input": {"command": command}, **fields}

    assert await ask(client, path, call("ls")) == (200, {})
    for denied in (
        call("blue bird"),
        call("mail ada@example.com"),
        call("ls", hook_event_name="PostToolUse"),
        {"hook_event_name": "PreToolUse"},
        [],
    ):
        status, answer = await ask(client, path, denied)
        said = answer["hookSpecificOutput"]
        assert (status, said["permissionDecision"]) == (200, "deny")
        assert said["permissionDecisionReason"]
    _, answer = await ask(client, path, call("ls"), Authorization="Bearer nobody")
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"


async def test_the_answer_to_an_agent_gives_each_reason_once(serve: Serve) -> None:
    client = await serve(NoEngine(), Tools([{"tools": ["Read"]}]), guard_api=[{"name": "hooks"}])
    body = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}
    _, answer, _ = await client.post("/v1/hooks/codex", body)
    said = answer["hookSpecificOutput"]["permissionDecisionReason"]
    assert said == "A guardrail refuses this call: tool_denied"


async def test_an_agents_call_is_denied_if_a_hook_fails(serve: Serve) -> None:
    def fails(chunk: Chunk) -> Verdict:
        if "rm" in chunk.text:
            raise ValueError
        return emit(chunk.pending)

    client = await serve(NoEngine(), Script(fails), guard_api=[{"name": "hooks"}])
    body = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "rm"}}
    status, answer, _ = await client.post("/v1/hooks/codex", body)
    assert (status, answer["hookSpecificOutput"]["permissionDecision"]) == (200, "deny")


async def test_a_hook_that_reads_media_judges_images(serve: Serve) -> None:
    client = await serve(NoEngine(), Media(allow=["image"], addresses=True), guard_api=[{"name": "litellm"}])
    body = {"input_type": "request", "texts": ["x"], "images": ["https://example.com/a.png"]}
    _, answer, _ = await client.post("/beta/litellm_basic_guardrail_api", body)
    assert answer["action"] == "NONE"


async def test_no_hooks_pass_nothing(serve: Serve) -> None:
    client = await serve(NoEngine(), guard_api=[{"name": name} for name in ALL])
    call = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}}
    assert "deny" in str((await client.post("/v1/hooks/codex", call))[1])
    asked = {"messages": [{"role": "user", "content": "x"}]}
    assert (await client.post("/v1/checks", asked))[0] == 501
    assert (await client.post("/request", {"body": asked}))[0] == 501
    bedrock = {"source": "OUTPUT", "content": [{"text": {"text": "x"}}]}
    assert (await client.post("/guardrail/a/version/1/apply", bedrock))[0] == 501
