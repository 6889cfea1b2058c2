"""A message that the output continues, in the forms that chat templates give it (contract 2.8)."""

from dataclasses import replace
from typing import Any

import pytest

from hooks.builtin.phrases import Phrases
from hooks.testing import assert_chunk_invariant, play, stream_of

SYSTEM = {"role": "system", "content": "Project"}
ROLES = ["user", "assistant", "tool"]


def continued(role: str, content: Any, *before: dict[str, Any], output: str = "bird it is") -> Any:
    stream = stream_of(output, prompt=[*before, {"role": role, "content": content}])
    return replace(stream, request=replace(stream.request, extra={"continue_final_message": True}))


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["the kit's own"], indirect=True)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "content",
    [
        "Project Blue ",
        "Project Blue \n\t\u00a0",
        parts("Project Blue", " "),
        parts("Project ", "Blue "),
        parts("Project", "Blue"),
        parts("Project B ", "lue "),
        parts("Project B", "lue"),
    ],
    ids=repr,
)
def test_a_match_is_found_though_a_template_trims_or_joins_the_texts(role: str, content: Any) -> None:
    guard, stream = Phrases(["project bluebird"]), continued(role, content)
    assert play(guard, stream).content == "[phrase] it is"  # contract 2.8
    assert_chunk_invariant(guard, stream, num_random=10)


@pytest.mark.parametrize("role", ROLES)
def test_no_text_before_the_last_hides_a_match(role: str) -> None:  # contract 2.8
    guard = Phrases(["bluebird"])
    earlier = {"role": role, "content": "x"}
    with_reasoning = {"role": role, "reasoning_content": "x", "content": parts("Bl", "ue")}
    assert play(guard, continued(role, "Blue", earlier)).content == "[phrase] it is"
    assert play(guard, continued(role, parts("x", "Blue"))).content == "[phrase] it is"
    assert play(guard, continued(role, None, earlier, with_reasoning)).content == "[phrase] it is"


@pytest.mark.parametrize("role", ROLES)
def test_a_system_message_may_begin_the_message_that_is_continued(role: str) -> None:  # contract 2.8
    guard = Phrases(["project bluebird"])
    assert play(guard, continued(role, "Blue", SYSTEM)).content == "[phrase] it is"
    assert play(guard, continued(role, "Bluebird", output=" it is")).content == " it is"


@pytest.mark.parametrize(
    "fields",
    [
        {"content": [{"type": "thinking", "thinking": "Project Blue", "closed": False}]},
        {"content": [{"type": "thinking", "thinking": parts("Project ", "Blue")}]},
        {"content": [{"type": "reasoning", "reasoning": "Project Blue"}]},
        {"content": [*parts("Project "), {"type": "refusal", "refusal": "Blue"}]},
        {"content": None, "thinking": "Project Blue"},
        {"content": None, "function_call": {"name": "f", "arguments": "Project Blue"}},
        {
            "content": None,
            "tool_calls": [{"type": "custom", "custom": {"name": "f", "input": "Project Blue"}}],
        },
    ],
    ids=repr,
)
def test_each_field_that_holds_text_is_in_the_lead(fields: dict[str, Any]) -> None:  # contract 2.8
    stream = stream_of("bird it is", prompt=[{"role": "assistant", "prefix": True, **fields}])
    assert play(Phrases(["project bluebird"]), stream).content == "[phrase] it is"


def test_an_assistants_message_ends_a_chat_whose_system_messages_are_folded() -> None:  # contract 2.8
    guard = Phrases(["bluebird"])
    said = {"role": "assistant", "content": "Blue"}
    stream = stream_of("bird it is", prompt=[SYSTEM, {"role": "user", "content": "Hi"}, said, SYSTEM])
    assert play(guard, stream).content == "[phrase] it is"
    between = stream_of(
        "bird it is", prompt=[{"role": "user", "content": "Hi"}, said, SYSTEM, said | {"content": ""}]
    )
    assert play(guard, between).content == "[phrase] it is"
    asked = stream_of("bird it is", prompt=[said, SYSTEM, {"role": "user", "content": "Hi"}])
    assert play(guard, asked).content == "bird it is"


def test_a_prompt_of_a_completion_has_one_form() -> None:
    stream = stream_of("2 it is")
    prompt = replace(stream.request, messages=(), prompts=("hunter ",), endpoint="completions")
    assert play(Phrases(["hunter2"]), replace(stream, request=prompt)).content == "2 it is"
