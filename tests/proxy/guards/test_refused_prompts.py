"""A refused prompt: where the text at fault is, and how a conversation goes on after it."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from engine.protocol import GenerationRequest
from hooks import Chunk, Refusal, Verdict, emit, refuse
from hooks.builtin.pii import Pii
from hooks.detect.refused_before import RefusedBefore
from hooks.prompts.texts import prompt_texts
from tests.helpers import ScriptedEngine, make_request
from tests.proxy.conftest import Client, Serve, hello
from tests.proxy.telemetry.test_request_log import line_of

CHATS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
MAIL = "ada@initech.org"
HI = {"role": "user", "content": "Hi"}
HELLO = {"role": "assistant", "content": "Hello"}
TOLD = {"role": "user", "content": f"I am {MAIL}."}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": f"From {MAIL}."}
CALL = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
CALLED = [
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "1"},
]
TOOLS = [{"name": "g", "input_schema": {}}, {"name": "f", "description": MAIL, "input_schema": {}}]
CHAT_TOOLS = [
    {"type": "function", "function": {"name": one["name"], "description": one.get("description", "")}}
    for one in TOOLS
]


def asked(path: str, messages: list[Any], **fields: Any) -> dict[str, Any]:
    more = {"max_tokens": 9} if path == MESSAGES else {}
    return {"model": "m", **more, "input" if path == RESPONSES else "messages": messages, **fields}


# contract 8.8
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        (CHATS, asked(CHATS, [HI, HELLO, TOLD]), "messages[2]"),
        (CHATS, asked(CHATS, [{"role": "system", "content": MAIL}, HI]), "messages[0]"),
        (MESSAGES, asked(MESSAGES, [HI, HELLO, TOLD], system="Be brief."), "messages[2]"),
        (MESSAGES, asked(MESSAGES, [HI], system=f"Ask {MAIL}."), "system"),
        (
            MESSAGES,
            asked(
                MESSAGES,
                [HI, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}],
            ),
            "messages[2]",
        ),
        (RESPONSES, {"model": "m", "input": f"I am {MAIL}."}, "input"),
        (RESPONSES, asked(RESPONSES, [TOLD]), "input[0]"),
        (RESPONSES, asked(RESPONSES, [HI, HELLO, *CALLED, TOLD], instructions="Be brief."), "input[4]"),
        (RESPONSES, asked(RESPONSES, [HI, HELLO, {**CALLED[0], "arguments": MAIL}]), "input[1]"),
        (RESPONSES, asked(RESPONSES, [HI, CALLED[0], {**CALLED[1], "output": MAIL}]), "input[2]"),
        (RESPONSES, asked(RESPONSES, [HI], instructions=f"Ask {MAIL}."), "instructions"),
        ("/v1/completions", {"model": "m", "prompt": f"I am {MAIL}."}, "prompt"),
    ],
)
async def test_the_error_says_where_the_text_is_and_not_what_it_is(
    serve: Serve, path: str, body: dict[str, Any], place: str, stream: bool
) -> None:
    client = await serve(ScriptedEngine(hello), Pii(prompt="refuse"))
    status, answer, headers = await client.post(path, {**body, "stream": stream})
    assert (status, headers["x-should-retry"]) == (400, "false")
    error = answer["error"]
    assert MAIL not in str(answer)
    if path == MESSAGES:
        assert error["message"] == f"The prompt was refused: EMAIL_ADDRESS (in {place})"
    else:
        assert (error["code"], error["param"]) == ("content_filter", place)


RESPONSE_TOOLS = [{**one["function"], "type": "function"} for one in CHAT_TOOLS]


@pytest.mark.parametrize(
    ("path", "tools"), [(CHATS, CHAT_TOOLS), (MESSAGES, TOOLS), (RESPONSES, RESPONSE_TOOLS)]
)
async def test_a_tools_place_counts_all_tools(serve: Serve, path: str, tools: list[Any]) -> None:
    client = await serve(ScriptedEngine(hello), Pii(prompt="refuse", of=["definition"]))
    other = {"type": "web_search_20250305", "name": "web_search"}
    _, answer, _ = await client.post(path, asked(path, [HI], tools=[other, *tools]))
    assert "tools[2]" in str(answer["error"])


async def test_tools_of_a_response_are_those_of_the_request_or_of_an_item(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), Pii(prompt="refuse", of=["definition"]))
    first, second = RESPONSE_TOOLS
    added = [{"type": "additional_tools", "role": "developer", "tools": [first, second]}]
    inner = [{"type": "namespace", "name": "n", "tools": [second]}]
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    for fields, place in (
        ({"tools": [first, *inner]}, "tools[1]"),
        ({"tools": RESPONSE_TOOLS, "tool_choice": allowed}, "tools[1]"),
        ({"tools": [{"type": "odd"}], "input": [HI, *added, HELLO, HI]}, "input[1]"),
    ):
        _, answer, _ = await client.post(RESPONSES, {**asked(RESPONSES, [HI]), **fields})
        assert answer["error"]["param"] == place


async def test_a_text_of_an_earlier_response_has_that_place(serve: Serve) -> None:
    """The guard came with a reload, or the conversation began under another policy."""
    client = await serve(ScriptedEngine(hello), Late())
    _, first, _ = await client.post(RESPONSES, asked(RESPONSES, [TOLD]))
    body = {**asked(RESPONSES, [HI, TOLD]), "previous_response_id": first["id"]}
    _, answer, _ = await client.post(RESPONSES, body)
    assert answer["error"]["param"] == "previous_response_id"


class Late:
    """Refuses the first message of a chat that has more than one."""

    def on_request(self, request: GenerationRequest) -> GenerationRequest | Refusal:
        return refuse("late", place="messages[0].content") if len(request.messages) > 1 else request

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)


class Session:
    """A conversation of a client that keeps what it has sent, whatever became of it."""

    def __init__(self, client: Client, path: str, **fields: Any) -> None:
        self._client, self._path, self._fields = client, path, fields
        self._history: list[Any] = []

    async def say(self, text: str) -> int:
        self._history.append({"role": "user", "content": text})
        status, _, _ = await self._client.post(self._path, asked(self._path, self._history, **self._fields))
        if status == 200:
            self._history.append({"role": "assistant", "content": "Hello"})
        return int(status)


@pytest.mark.parametrize("path", [CHATS, MESSAGES, RESPONSES])
async def test_a_conversation_goes_on_after_a_new_text_was_refused(serve: Serve, path: str) -> None:
    engine = ScriptedEngine(hello)
    client = await serve(engine, Pii(prompt="refuse_new"))
    session = Session(client, path)
    texts = ["Hi", f"I am {MAIL}.", "Go on.", "And then?", f"I am {MAIL}!", "So?"]
    assert [await session.say(text) for text in texts] == [200, 400, 200, 200, 400, 200]
    assert MAIL not in str([request.messages for request in engine.requests])
    assert "[EMAIL_ADDRESS]" in str(engine.requests[-1].messages)


@pytest.mark.parametrize(
    ("path", "fields"),
    [(MESSAGES, {"system": f"Ask {MAIL}.", "tools": TOOLS}), (RESPONSES, {"instructions": MAIL})],
)
async def test_an_agents_own_prompt_is_redacted_and_not_refused(
    serve: Serve, path: str, fields: dict[str, Any]
) -> None:
    engine = ScriptedEngine(hello)
    client = await serve(engine, Pii(prompt="refuse_new"))
    assert await Session(client, path, **fields).say("Hi") == 200
    (request,) = engine.requests
    assert MAIL not in str((request.messages, request.tools))


def test_a_text_that_was_refused_is_new_for_another_caller_and_after_a_day() -> None:
    now = 0.0
    before = RefusedBefore(lambda: now, most=2)
    request = make_request(messages=(HI, HELLO, TOLD))
    (text,) = (one for one in prompt_texts(request) if MAIL in one.text)
    found = text, 5, 5 + len(MAIL)
    before.new_texts(request).refuse([found])

    def is_new(request: GenerationRequest) -> bool:
        return before.new_texts(request).has(*found)

    went_on = replace(request, messages=(*request.messages, HI))
    assert not is_new(went_on)
    assert is_new(replace(went_on, caller="other"))
    before.new_texts(request).refuse((text._replace(text=other), 0, 1) for other in "ab")
    assert is_new(went_on), "the oldest are forgotten"
    before.new_texts(request).refuse([found])
    assert not is_new(went_on)
    now = 25 * 3600.0
    assert is_new(went_on)


def test_a_text_before_the_models_last_answer_is_not_new() -> None:
    request = make_request(messages=(TOLD, HELLO, HI))
    (text,) = (one for one in prompt_texts(request) if MAIL in one.text)
    assert not RefusedBefore().new_texts(request).has(text, 5, 5 + len(MAIL))


@pytest.mark.parametrize("path", [CHATS, MESSAGES, RESPONSES])
async def test_a_refused_text_is_refused_until_the_caller_says_more(serve: Serve, path: str) -> None:
    """Clients ask again, and ask for a title first."""
    client = await serve(ScriptedEngine(hello), Pii(prompt="refuse_new"))
    reminder = {"role": "user", "content": "Remember the rules."}
    for before, after, status in (
        ([], [], 400),
        ([], [], 400),
        ([HI], [], 400),
        ([], [reminder], 200),
        ([], [TOLD], 400),
        ([], [TOLD], 400),
        ([], [TOLD, HI], 200),
    ):
        assert (await client.post(path, asked(path, [*before, TOLD, *after])))[0] == status


@pytest.mark.parametrize("path", [CHATS, MESSAGES, RESPONSES])
async def test_a_refused_paragraph_is_known_again_before_others_of_its_text(serve: Serve, path: str) -> None:
    """Clients add the next words to the text that was refused, and trim its lines."""
    engine = ScriptedEngine(hello)
    client = await serve(engine, Pii(prompt="refuse_new"))
    told = TOLD["content"]
    for text, status in (
        (f"Today is Monday.\n\n{told}", 400),
        (f"Today is Monday.\n\n{told}\n", 400),
        (f"Today is Monday.\n\n{told} \n\nToday is Tuesday.", 200),
        (f"Today is Monday.\n\n{told}\n\nToday is Tuesday.\n \nAnd now {MAIL}", 400),
        (f"Today is Monday.\n\n{told}\n\nToday is Tuesday.\n \nAnd now {MAIL}\n\nSo?", 200),
    ):
        said = [{"role": "user", "content": text}]
        assert (await client.post(path, asked(path, said)))[0] == status, text
    assert MAIL not in str([request.messages for request in engine.requests])


async def test_the_log_names_the_field_the_code_and_the_model_of_a_bad_request(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = await serve(ScriptedEngine(hello))
    status, _, headers = await client.post(CHATS, asked(CHATS, [HI, {"role": 5, MAIL: MAIL}]))
    assert (status, headers["x-should-retry"]) == (400, "false")
    line = await line_of(caplog)
    assert (line["error_field"], line["error_code"], line["model"]) == ("messages[1]", "string_type", "m")
    assert MAIL not in str(line)


async def test_an_agent_goes_on_after_a_tools_result_was_refused(serve: Serve) -> None:
    """It sends the result again, beside the user's next words."""
    engine = ScriptedEngine(hello)
    client = await serve(engine, Pii(prompt="refuse_new"))
    said = [HI, {"role": "assistant", "content": [CALL]}]
    for blocks, status in (
        ([RESULT], 400),
        ([RESULT, {"type": "text", "text": "Go on."}], 200),
        ([RESULT, {"type": "text", "text": MAIL}], 400),
        ([RESULT, {"type": "text", "text": MAIL}, {"type": "text", "text": "So?"}], 200),
    ):
        turn = {"role": "user", "content": blocks}
        assert (await client.post(MESSAGES, asked(MESSAGES, [*said, turn])))[0] == status
    assert MAIL not in str([request.messages for request in engine.requests])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{MESSAGES}/count_tokens", {"model": "m", "messages": [TOLD]}),
        ("/v1/moderations", {"input": TOLD["content"]}),
    ],
)
async def test_a_question_about_a_prompt_is_no_turn(serve: Serve, path: str, body: dict[str, Any]) -> None:
    """Clients count a prompt's tokens, or have it judged, before they send it."""
    client = await serve(ScriptedEngine(hello), Pii(prompt="refuse_new"), moderations=True)
    for _ in range(2):
        status, answer, _ = await client.post(path, body)
        assert "EMAIL_ADDRESS" in str((status, answer))
    turns = [[TOLD, HI], [TOLD, HI], [TOLD, HI, HI]]
    assert [(await client.post(MESSAGES, asked(MESSAGES, turn)))[0] for turn in turns] == [400, 400, 200]
    assert (await client.post(path, body))[0] == 200
