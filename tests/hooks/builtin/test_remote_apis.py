"""The APIs that block a text or answer with a changed one: LiteLLM's, Bedrock's and NeMo's."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from hooks.builtin.remote_service.api import MAX_TEXTS
from hooks.builtin.remote_service.authorization import Signer
from hooks.builtin.remote_service.changes import _WORD, changes
from hooks.builtin.remote_service.service import DetectorError, whole_url
from hooks.loading.loader import HookSpec
from hooks.testing import WAYS, assert_chunk_invariant, assert_never_released, play, stream_of
from tests.hooks.builtin.detectors import DetectorServer, serving

SAID = "All is well. The password is hunter2. So it goes. "
PATHS = {
    "litellm": "/beta/litellm_basic_guardrail_api",
    "bedrock": "/guardrail/abc123/version/DRAFT/apply",
    "nemo": "/v1/checks",
}
NEEDED = {"litellm": {}, "bedrock": {"api_key_env": "THE_KEY"}, "nemo": {"model": "m"}}
every_api = pytest.mark.parametrize("api", PATHS)


@pytest.fixture(autouse=True)
def mode(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("THE_KEY", "sk-key")
    return "both, as each test says"


@pytest.fixture
def server() -> DetectorServer:
    return DetectorServer()


@pytest.fixture
def base(server: DetectorServer) -> Iterator[str]:
    with serving(server) as url:
        yield url


def remote(base: str, api: str, **arguments: Any) -> HookSpec:
    return HookSpec("remote", {"url": base + PATHS[api], "api": api, **NEEDED[api], **arguments})


@every_api
@pytest.mark.parametrize("window", [1, 2])
def test_a_blocked_text_is_taken_out(base: str, api: str, window: int) -> None:
    wanted = "All is well. [secret]So it goes. " if window == 1 else "[secret]"
    assert play(remote(base, api, window=window), SAID).content == wanted
    assert play(remote(base, api, window=window), list(SAID)).content == wanted


@every_api
def test_a_part_that_is_changed_is_cut_out(base: str, server: DetectorServer, api: str) -> None:
    server.masks = True
    name = "secret" if api == "bedrock" else "remote"
    wanted = f"All is well. The password is [{name}]. So it goes. "
    for in_worker in (False, True):
        assert play(remote(base, api), list(SAID), in_worker=in_worker).content == wanted
    ended = play(remote(base, api, action="terminate", text="Enough."), [SAID])
    assert ended.content == "All is well. The password is Enough."


@every_api
def test_where_a_stream_is_cut_changes_nothing(base: str, server: DetectorServer, api: str) -> None:
    server.masks = True
    assert_chunk_invariant(remote(base, api), "Is it hunter2? No.", num_random=3)
    assert_never_released(remote(base, api), "Is it hunter2? No.", "hunter2", not_tried=WAYS)
    written = '{"\\u0061": "hunter2", "n": 1}'
    for pieces in ([written], list(written)):
        said = play(remote(base, api, template="x"), stream_of(pieces, channel="tool_call"))
        assert said.tool_calls[0][1] == '{"\\u0061": "x", "n": 1}'


@every_api
def test_prompts_are_refused_redacted_or_marked(base: str, server: DetectorServer, api: str) -> None:
    stream = stream_of("ok", prompt=SAID)
    assert play(remote(base, api, prompt="refuse"), stream).refused == "secret"
    marked = play(remote(base, api, prompt="taint", of=["user"]), stream).request
    assert marked is not None
    assert marked.taint == "secret"
    asked = len(server.bodies)
    assert play(remote(base, api, prompt="refuse", of=["tool"]), stream).refused is None
    assert server.texts[asked:] == ["ok"]
    server.masks = True
    request = play(remote(base, api, prompt="redact", template="x"), stream).request
    assert request is not None
    assert request.messages[0]["content"] == "All is well. The password is x. So it goes. "


def test_what_each_api_sends(base: str, server: DetectorServer) -> None:
    stream = stream_of("Hello.", prompt="Hi.")
    key = {"api_key_env": "THE_KEY", "prompt": "refuse"}
    play(remote(base, "litellm", model="m", detector_params={"level": 3}, **key), stream)
    play(remote(base, "nemo", config="rails", **key), stream)
    play(remote(base, "bedrock", **key), stream)
    litellm = {"model": "m", "request_data": {}, "additional_provider_specific_params": {"level": 3}}
    rails = {"config_ids": ["rails"]}
    user, assistant = {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}
    assert server.bodies == [
        {"input_type": "request", "texts": ["Hi."], **litellm},
        {"input_type": "response", "texts": ["Hello."], **litellm},
        {"model": "m", "messages": [user], "guardrails": {**rails, "rail_types": ["input"]}},
        {"model": "m", "messages": [assistant], "guardrails": {**rails, "rail_types": ["output"]}},
        {"source": "INPUT", "content": [{"text": {"text": "Hi."}}]},
        {"source": "OUTPUT", "content": [{"text": {"text": "Hello."}}]},
    ]
    assert server.paths == [PATHS[api] for api in ("litellm", "nemo", "bedrock") for _ in range(2)]
    assert [headers.get("x-api-key") for headers in server.headers] == ["sk-key"] * 2 + [None] * 4
    assert [headers.get("Authorization") for headers in server.headers] == [None] * 2 + ["Bearer sk-key"] * 4


@every_api
def test_each_window_is_sent_once_and_never_without_words(
    base: str, server: DetectorServer, api: str
) -> None:
    said = "".join(f"Sentence {i}. \n\n" for i in range(20))
    assert play(remote(base, api, window=1), list(said)).content == said
    assert server.texts == [f"Sentence {i}. " for i in range(20)]
    server.bodies.clear()
    assert play(remote(base, api, window=1, max_connections=99), [said]).content == said
    assert sorted(server.texts) == sorted(f"Sentence {i}. " for i in range(20))
    assert server.most_at_once <= MAX_TEXTS


def finding(action: str, **more: str) -> dict[str, str]:
    return {"action": action, **more}


def assessed(*findings: Any, output: str = "Sorry.", **more: Any) -> dict[str, Any]:
    policies = [{"aPolicy": {"findings": [one]}} for one in findings]
    outputs = [{"text": output}]
    return {"action": "GUARDRAIL_INTERVENED", "outputs": outputs, "assessments": policies, **more}


BLOCKED, MASKED = finding("BLOCKED", type="HATE"), finding("ANONYMIZED", type="NAME", match="Bob")


@pytest.mark.parametrize(
    ("arguments", "answer", "content"),
    [
        ({}, assessed(BLOCKED), "[HATE]"),
        ({}, assessed(MASKED, BLOCKED), "[HATE]"),
        ({"labels": ["NAME"]}, assessed(MASKED, BLOCKED), "[NAME]"),
        ({"labels": ["OTHER"]}, assessed(MASKED, BLOCKED), "I am Bob Roe, 41."),
        ({}, assessed(finding("BLOCKED", name="Investing", type="DENY")), "[Investing]"),
        ({}, assessed(finding("BLOCKED", match="Roe")), "[remote]"),
        ({}, assessed(finding("A_NEW_ACTION", type="HATE")), "[HATE]"),
        ({}, assessed(), "[remote]"),
        ({"labels": ["OTHER"]}, assessed(), "[remote]"),
        ({}, assessed({"action": 7}), "[remote]"),
        ({}, {"action": "NONE", "outputs": [], "assessments": []}, "I am Bob Roe, 41."),
        ({}, assessed(finding("NONE", type="HATE"), action="NONE"), "I am Bob Roe, 41."),
        ({}, assessed(BLOCKED, action="NONE"), "[HATE]"),
        ({}, assessed(MASKED, output="I am {NAME} Roe, 41."), "I am [NAME] Roe, 41."),
        ({}, assessed(MASKED, output="I am {NAME} Roe, {AGE}."), "I am [NAME] Roe, [remote]."),
        ({"labels": ["AGE"]}, assessed(MASKED, output="I am {NAME} Roe, 41."), "I am Bob Roe, 41."),
    ],
)
def test_what_a_guardrail_of_bedrock_finds(
    base: str, server: DetectorServer, arguments: Any, answer: Any, content: str
) -> None:
    server.answer = lambda: web.json_response(answer)
    assert play(remote(base, "bedrock", **arguments), "I am Bob Roe, 41.").content == content


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ({"action": "BLOCKED"}, "[remote]"),
        ({"action": "BLOCKED", "blocked_reason": "pii.NAME"}, "[pii.NAME]"),
        ({"action": "BLOCKED", "blocked_reason": "It names Bob"}, "[remote]"),
        ({"action": "BLOCKED", "blocked_reason": "Bob"}, "[remote]"),
        ({"action": "BLOCKED", "blocked_reason": "x" * 101}, "[remote]"),
        ({"action": "NONE", "texts": []}, "I am Bob."),
        ({"action": "NONE", "texts": ["I am X."]}, "I am [remote]."),  # as LiteLLM reads it
        ({"action": "GUARDRAIL_INTERVENED", "texts": ["I am Bob. (I am a machine.)"]}, "[remote]"),
        ({"action": "GUARDRAIL_INTERVENED", "texts": [" I am  Bob."]}, "I am Bob."),
    ],
)
def test_what_a_guardrail_for_litellm_finds(
    base: str, server: DetectorServer, answer: Any, content: str
) -> None:
    server.answer = lambda: web.json_response(answer)
    assert play(remote(base, "litellm"), "I am Bob.").content == content


SENSELESS = {
    "litellm": [
        {},
        {"action": "none"},
        {"action": "GUARDRAIL_INTERVENED"},
        {"action": "GUARDRAIL_INTERVENED", "texts": ["Hello!"]},
        {"action": "GUARDRAIL_INTERVENED", "texts": ["a", "b"]},
        {"action": "NONE", "texts": [None]},
    ],
    "nemo": [
        {"status": "passed"},
        {"status": "ok", "content": "Hello!"},
        {"status": "modified", "content": "Hello!"},
        {"status": "blocked", "content": "No.", "rail": "x" * 101},
    ],
    "bedrock": [
        {"action": "NONE", "outputs": []},
        {"action": "none", "outputs": [], "assessments": []},
        {**assessed(MASKED), "outputs": []},
        {**assessed(MASKED), "outputs": [{"text": "a"}, {"text": "b"}]},
        assessed(MASKED, output="Hello!"),
        assessed(guardrailCoverage={"textCharacters": {"guarded": 5, "total": 6}}),
    ],
}


@every_api
def test_an_answer_that_makes_no_sense_fails_the_request(base: str, server: DetectorServer, api: str) -> None:
    for answer in ([], "no", *SENSELESS[api]):
        server.answer = lambda answer=answer: web.json_response(answer)
        with pytest.raises((DetectorError, ValueError)) as caught:
            play(remote(base, api), "Hello!")
        assert "Hello" not in str(caught.value)
    server.answer = lambda: web.json_response({"message": "Too many requests"}, status=429)
    with pytest.raises(DetectorError, match="status 429"):
        play(remote(base, api), "Hello!")


def test_one_late_answer_of_several_fails_the_request(base: str, server: DetectorServer) -> None:
    server.is_open.clear()
    with pytest.raises(TimeoutError):
        play(remote(base, "litellm", window=1, timeout=0.2), "One. Two. Three. ")
    server.is_open.set()


@pytest.mark.parametrize(
    ("text", "changed", "places"),
    [
        ("Call Bob now.", "Call {NAME} now.", ["Bob"]),
        ("Call Bob Roe now.", "Call ****** now.", ["Bob Roe"]),
        ("Mail a.b@c.de now.", "Mail [EMAIL] now.", ["a.b@c.de"]),
        ("Pay 4111 1111 1111 1234.", "Pay **** **** **** 1234.", ["4111 1111 1111"]),
        ("The key is hunter2.", "The key is [r2].", ["hunter2"]),
        ("Bob and Bob and Bob", "X and Bob and X", ["Bob", "Bob"]),
        ("密码是鲍勃吗", "密码是X吗", ["鲍勃"]),
        ("All of it.", "", ["All of it."]),
        ("Say it.", "Do not say: Say it.", ["Say it."]),
        ("Say  it.\n", "Say it.", []),
        ("a " * 600, "b " * 2_000, ["a " * 600]),
    ],
)
def test_the_places_that_were_changed(text: str, changed: str, places: list[str]) -> None:
    assert [text[start:end] for start, end in changes(text, changed)] == places


@given(st.text("ab .,é鲍", max_size=30), st.text("ab .,é鲍", max_size=30))
def test_only_words_of_the_changed_text_stay(text: str, changed: str) -> None:
    if text == changed:
        return
    places = changes(text, changed)
    kept = text
    for start, end in reversed(places):
        assert start < end or not text
        kept = kept[:start] + " " + kept[end:]
    words = iter(_WORD.findall(changed))
    assert all(word in words for word in _WORD.findall(kept))


TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YU"
    "uwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQc"
    "HNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oL"
    "xBA=="
)
ARN = "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Aguardrail%2Fabc123"


VANILLA = {"url": URL("https://example.amazonaws.com/"), "service": "service", "content_type": None}


@pytest.mark.parametrize(
    ("request_to_sign", "body", "signature"),
    [
        # post-vanilla, post-sts-header-before and post-x-www-form-urlencoded of AWS's test suite
        (VANILLA, b"", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            {**VANILLA, "token": TOKEN},
            b"",
            "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
        ),
        (
            {**VANILLA, "content_type": "application/x-www-form-urlencoded"},
            b"Param1=value1",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
        # by botocore 1.44.8
        (
            {
                "url": whole_url(f"https://example.amazonaws.com/guardrail/{ARN}/version/DRAFT/apply"),
                "service": "bedrock",
                "token": "AQoEXAMPLE",
            },
            b'{"source": "OUTPUT"}',
            "6261a9ea1d9896c9cd0ab684b7406e76711b7c37e7bac7b938ec2a75d9290b34",
        ),
    ],
)
def test_signatures_are_those_of_aws(request_to_sign: Any, body: bytes, signature: str) -> None:
    secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    signer = Signer(region="us-east-1", key_id="AKIDEXAMPLE", secret=secret, **request_to_sign)
    headers = signer.headers(body, datetime(2015, 8, 30, 12, 36, tzinfo=UTC))
    scope = f"AKIDEXAMPLE/20150830/us-east-1/{signer.service}/aws4_request"
    assert headers["Authorization"].startswith(f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=")
    assert headers["Authorization"].endswith(f", Signature={signature}")
    assert headers["x-amz-date"] == "20150830T123600Z"
    assert headers.get("x-amz-security-token") == signer.token
    assert secret not in repr(signer)


def test_what_is_sent_is_what_is_signed(
    base: str, server: DetectorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in {"ACCESS_KEY_ID": "AK", "SECRET_ACCESS_KEY": "hush", "SESSION_TOKEN": "t"}.items():
        monkeypatch.setenv(f"AWS_{variable}", value)
    url = f"{base}/guardrail/{ARN}/version/1/apply"
    assert play(HookSpec("remote", {"url": url, "api": "bedrock", "region": "eu-west-1"}), "Hi é.").content
    sent = server.headers[0]
    seen = URL(f"http://{sent['Host']}{server.paths[0]}", encoded=True)
    body = b'{"source": "OUTPUT", "content": [{"text": {"text": "Hi \\u00e9."}}]}'
    now = datetime.strptime(sent["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    signed = Signer(seen, "bedrock", "eu-west-1", "AK", "hush", "t").headers(body, now)
    assert sent["Authorization"] == signed["Authorization"]
    assert f"Credential=AK/{now:%Y%m%d}/eu-west-1/bedrock/aws4_request," in sent["Authorization"]
    assert sent["x-amz-security-token"] == "t"
    assert sent["Content-Type"] == "application/json"
    assert abs((datetime.now(UTC) - now).total_seconds()) < 60
