"""Guards that are told to look at prompts do there what they do to answers, with the same detector."""

import json
import random
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks import Chunk, hold, prompt_texts
from hooks.api import StreamContext
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import PhraseDetector, Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.detect import span_guard
from hooks.prompts.texts import PromptText
from hooks.testing import assert_chunk_invariant, play, stream_of
from hooks.testing.streams import Prompt, request_for
from tests.helpers import examples
from tests.hooks.builtin.streams import replaced

PHRASES = ["project bluebird", "hunter2", "süß", "4111"]

GUARDS: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "phrases": (Phrases, {"phrases": PHRASES}, "It is Project  Bluebird.", "phrase"),
    "patterns": (Patterns, {"patterns": {"ticket": r"T-\d{6}"}}, "See T-123456!", "ticket"),
    "pii": (Pii, {}, "I am zoe@millrace.initech.com.", "EMAIL_ADDRESS"),
    "secrets": (Secrets, {}, "Use sk-EXAMPLE7f3K9mQ2xT8vB4nL6pR1!", "OPENAI_KEY"),
}
each_guard = pytest.mark.parametrize("name", GUARDS)


@pytest.fixture(autouse=True)
def mode() -> str:
    return "the kit's own"


def asked(guard: Any, prompt: Prompt) -> list[str]:
    """The texts that the engine is asked, whose answer is let through."""
    released = play(guard, stream_of("ok", prompt=prompt))
    assert released.content == "ok"
    assert released.request is not None
    return [text.text for text in prompt_texts(released.request)]


@each_guard
@pytest.mark.parametrize("action", ["redact", "suppress", "terminate"])
def test_a_prompt_is_redacted_whatever_is_done_to_answers(name: str, action: str) -> None:
    guard, args, said, entity = GUARDS[name]
    (text,) = asked(guard(**args, action=action, prompt="redact", template="<{entity}>"), said)
    assert f"<{entity}>" in text
    assert text.startswith(said[:3])
    assert text.endswith(said[-1])
    assert asked(guard(**args, prompt="redact"), "Good morning.") == ["Good morning."]


@each_guard
def test_a_prompt_is_refused_by_its_entitys_name(name: str) -> None:
    guard, args, said, entity = GUARDS[name]
    released = play(guard(**args, prompt="refuse"), stream_of("ok", prompt=said))
    assert (released.refused, released.request, released.content) == (entity, None, "")
    released = play(guard(**args, prompt="refuse", text="No."), stream_of("ok", prompt=said), in_worker=True)
    assert (released.refused, released.request, released.content) == (entity, None, "No.")
    assert asked(guard(**args, prompt="refuse"), "Good morning.") == ["Good morning."]


@each_guard
def test_prompts_are_none_of_its_business_unless_it_is_told_so(name: str) -> None:
    guard, args, said, _ = GUARDS[name]
    assert guard(**args).on_request is None
    assert asked(guard(**args), said) == [said]


def test_there_are_three_things_to_do_about_a_prompt() -> None:
    with pytest.raises(
        ValueError, match="prompt: Input should be 'redact', 'refuse', 'refuse_new' or 'taint'"
    ):
        Phrases(PHRASES, prompt=cast(Any, "terminate"))


def test_channels_are_of_answers_alone() -> None:
    assert asked(Phrases(PHRASES, prompt="redact", channels=["reasoning"]), "hunter2") == ["[phrase]"]


def test_a_subclass_may_read_prompts_by_itself() -> None:
    class Own(Phrases):
        def on_request(self, request: Any) -> Any:
            self.seen = request
            return request

    guard = Own(PHRASES)
    asked(guard, "hunter2")
    assert guard.seen.messages[0]["content"] == "hunter2"


def call(arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "send", "arguments": arguments}}


def test_arguments_are_guarded_as_they_read_and_stay_json() -> None:
    written = r'{"to": "\u0068unter2", "pin": 4111, "note": "süß"}'
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call(written)]},
        {"role": "user", "content": "ok"},
    ]
    released = play(Phrases(PHRASES, prompt="redact"), stream_of("ok", prompt=messages))
    assert released.request is not None
    (sent,) = released.request.messages[0]["tool_calls"]
    assert sent == call('{"to": "[phrase]", "pin": "[phrase]", "note": "[phrase]"}')
    assert play(Phrases(PHRASES, prompt="refuse"), stream_of("ok", prompt=messages)).refused == "phrase"


def test_a_tools_definition_stays_one() -> None:
    schema = {"type": "object", "properties": {"hunter2": {"default": 4111, "description": 'say "süß"'}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    request = replace(request_for("Hi"), tools=(tool,))
    released = play(Phrases(PHRASES, prompt="redact"), stream_of("ok", prompt=request))
    assert released.request is not None
    (made,) = released.request.tools
    assert made["function"]["parameters"] == {
        "type": "object",
        "properties": {"[phrase]": {"default": "[phrase]", "description": 'say "[phrase]"'}},
    }


def test_what_only_reads_across_parts_is_found() -> None:
    for parts in (["my project", "bluebird"], ["my hun", "ter2"]):
        content = [{"type": "text", "text": part} for part in parts]
        (text,) = asked(Phrases(PHRASES, prompt="redact"), [{"role": "user", "content": content}])
        assert text == "my [phrase]"


PARTS = ["hunter2", "süß", "s", "hunter", "2", " ", "\n", "project", "bluebird", "😀", "x", "4111"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=30).map("".join)


@examples(200)
@given(TEXTS, st.integers(1, 20))
def test_a_long_prompt_is_redacted_as_a_short_one(text: str, size: int) -> None:
    """It is looked at in pieces; where they end makes no difference."""
    guard = Phrases(PHRASES, prompt="redact")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_guard, "_PART", size)
        made = [guard._redacted(text_of(text)), json.loads(guard._redacted(text_of(json.dumps(text), True)))]
    expected = replaced(text, PhraseDetector(PHRASES).scan(text)[0])
    assert made == [expected, expected]


def text_of(text: str, is_json: bool = False) -> PromptText:
    return PromptText(text, "messages[0].content", is_json)


def test_a_match_is_found_wherever_it_stands_in_a_long_prompt() -> None:
    rng = random.Random(5)
    refuses, redacts = (Pii(prompt=prompt) for prompt in ("refuse", "redact"))
    filler = "The harbour was quiet, and 3 of 4 herons waited. " * 400
    for _ in range(20):
        at = rng.randrange(len(filler))
        prompt = f"{filler[:at]} zoe@millrace.initech.com {filler[at:]}"
        assert play(refuses, stream_of("ok", prompt=prompt)).refused == "EMAIL_ADDRESS"
        assert asked(redacts, prompt) == [f"{filler[:at]} [EMAIL_ADDRESS] {filler[at:]}"]


@pytest.mark.parametrize("guard", [Pii(), Secrets()])
def test_the_text_that_is_kept_of_a_stream_does_not_grow(guard: Pii | Secrets) -> None:
    kept = []
    context = StreamContext(request_for("Hi"))
    for piece in ["The harbour was quiet: zoe@millrace.initech.com, "] + ["and 3 of 4 herons waited. "] * 700:
        context.text_diffs.append(piece)
        assert not isinstance(guard(Chunk(context, piece)), hold)
        kept.append(len(context.state["excerpt"].text))
    assert max(kept) == max(kept[:-200])
    assert max(kept) <= guard.detector.reach + 600


def test_a_match_excludes_what_seemed_to_begin_in_it_also_where_the_client_cut() -> None:
    assert_chunk_invariant(Patterns(["ab|bcd"]), stream_of("abc", is_cut=True))
