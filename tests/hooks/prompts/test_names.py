"""A name is read as words too, and a name whose words a hook changes stays a name."""

from typing import Any

import pytest

from engine.protocol import GenerationRequest
from hooks import Refusal, prompt_texts
from hooks.builtin.phrases import Phrases
from hooks.prompts.names import name_of, readings_of

PHRASES = ["project bluebird", "bluebird", "OpenAI"]


@pytest.fixture(autouse=True)
def mode() -> str:
    """Nothing runs here."""
    return "none"


def asking(**fields: Any) -> GenerationRequest:
    given = {"messages": ({"role": "user", "content": "Hi"},), **fields}
    return GenerationRequest(request_id="r", model="m", endpoint="chat", **given)


def calling(name: str) -> tuple[dict[str, Any], ...]:
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": '{"name": "my_name"}'}}
    return ({"role": "assistant", "content": None, "tool_calls": [call]},)


def everywhere(name: str) -> dict[str, GenerationRequest]:
    """By a name's place, a request with the name there."""
    of_function = {"type": "function", "function": {"name": name}}
    schema = {"type": "json_schema", "json_schema": {"name": name, "schema": {"type": "object"}}}
    return {
        "tools[0].function.name": asking(tools=(of_function,)),
        "tools[0].name": asking(tools=({"type": "web", "name": name},)),
        "tools[0].custom.name": asking(tools=({"type": "custom", "custom": {"name": name}},)),
        "tool_choice.function.name": asking(tool_choice=of_function),
        "tool_choice.allowed_tools.tools[0].function.name": asking(
            tool_choice={"type": "allowed_tools", "allowed_tools": {"tools": [of_function]}}
        ),
        "messages[0].tool_calls[0].function.name": asking(messages=calling(name)),
        "messages[0].name": asking(messages=({"role": "tool", "name": name, "content": "ok"},)),
        "messages[0].function_call.name": asking(
            messages=({"role": "assistant", "content": None, "function_call": {"name": name}},)
        ),
        "extra.functions[0].name": asking(extra={"functions": [{"name": name}]}),
        "extra.response_format.json_schema.name": asking(extra={"response_format": schema}),
    }


PLACES = [*everywhere("f")]


@pytest.mark.parametrize(
    ("name", "readings"),
    [
        ("send", []),
        ("get_project_bluebird", ["get project bluebird"]),
        ("get-project.bluebird", ["get project bluebird"]),
        ("__get__bluebird", ["get bluebird"]),
        ("getProjectBluebird", ["get Project Bluebird"]),
        ("GetURLOfPage2Send", ["Get URL Of Page2 Send"]),
        ("ask_OpenAI", ["ask OpenAI", "ask Open AI"]),
        ("holÉtat", ["hol État"]),
        ("", []),
    ],
)
def test_a_name_is_split_at_its_joints_and_at_changes_of_case(name: str, readings: list[str]) -> None:
    assert readings_of(name) == readings


@pytest.mark.parametrize(
    ("words", "name"),
    [("get [phrase]", "get_phrase"), ("[x]", "x"), ("", "_"), ("holen Vögel-a", "holen_V_gel-a")],
)
def test_words_make_a_name_that_the_api_takes(words: str, name: str) -> None:
    assert name_of(words) == name


@pytest.mark.parametrize("name", ["get_bluebird", "getBluebird", "get_project_bluebird", "ask_OpenAI_now"])
@pytest.mark.parametrize("place", PLACES)
def test_a_phrase_in_a_name_is_found(place: str, name: str) -> None:  # contract 8.6
    request = everywhere(name)[place]
    guard: Any = Phrases(PHRASES, prompt="refuse", of=["user", "assistant", "tool", "definition"])
    assert isinstance(guard.on_request(request), Refusal)
    (redacted, *_) = [text for text in prompt_texts(request) if text.place == place and " " in text.text]
    assert not redacted.is_json


@pytest.mark.parametrize("place", PLACES)
def test_a_name_whose_words_change_stays_a_name(place: str) -> None:  # contract 8.6, 8.7
    guard: Any = Phrases(PHRASES, prompt="redact")
    assert guard.on_request(everywhere("get_projectBluebird")[place]) == everywhere("get_phrase")[place]
    assert (
        guard.on_request(everywhere("my_bluebirdOfOpenAI")[place])
        == everywhere("my_phrase_Of_Open_AI")[place]
    )


@pytest.mark.parametrize("place", PLACES)
def test_a_name_without_a_match_stays_as_it_is(place: str) -> None:
    for name in ("get_birds", "send", "getBirds"):
        request = everywhere(name)[place]
        guard: Any = Phrases(PHRASES, prompt="redact")
    assert guard.on_request(request) is request


def test_a_value_of_arguments_or_of_a_schema_is_no_name() -> None:
    schema = {"type": "object", "properties": {"name": {"const": "my_name"}}, "default": {"name": "my_name"}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    texts = prompt_texts(asking(messages=calling("f"), tools=(tool,)))
    assert "my name" not in [text.text for text in texts]
