"""Values that leave as placeholders and come back (contract 9)."""

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, GenerationRequest, SamplingParams, Token, ToolCall
from hooks import Chunk, Verdict, emit
from hooks.api.decision import Decision
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.prompt_leak import PromptLeak
from hooks.builtin.secrets import Secrets
from hooks.detect import placeholders
from hooks.detect.restoring import expanded
from hooks.loading.coroutines import run
from hooks.loading.given import load
from hooks.testing.play import Released, collect, opened
from hooks.testing.streams import request_for
from tests.helpers import examples

MAIL, CARD, KEY = "nann@initech.org", "4111 1111 1111 1111", "AKIAQ3EGRZ7PLMW2XK4V"
PROMPT = f"Write to {MAIL}, pay by {CARD}, sign with {KEY}."


pytestmark = pytest.mark.usefixtures("restore_key")


@cache
def guards(**options: Any) -> list[Any]:
    return [Pii(prompt="redact", restore=True, **options), Secrets(prompt="redact", restore=True, **options)]


Model = Callable[[GenerationRequest], Sequence[Delta]]


def answered(
    hooks: Sequence[Any], request: GenerationRequest, model: Model, *, in_worker: bool = False
) -> Released:
    async def answer() -> Released:
        async with opened(load(hooks), in_worker=in_worker) as opener:

            async def deltas(masked: GenerationRequest) -> Any:
                for delta in model(masked):
                    yield delta

            return await collect(opener, request, deltas)

    return run(answer())


def asked(request: GenerationRequest) -> str:
    content = request.messages[-1]["content"]
    assert isinstance(content, str)
    return content


def pieces(text: str, cuts: Sequence[int], **fields: Any) -> list[Delta]:
    places = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    texts = [text[a:b] for a, b in pairwise(places) if a < b]
    deltas = [
        Delta(text=one, tokens=(Token(i, one, one.encode(), -0.5),), **fields) for i, one in enumerate(texts)
    ]
    return [*deltas, Delta(finish_reason="stop", **fields)]


def echoing(cuts: Sequence[int] = (), form: str = "{}", **fields: Any) -> Model:
    """A model that repeats what it is asked."""
    return lambda masked: pieces(form.replace("{}", asked(masked)), cuts, **fields)


def test_the_model_gets_placeholders_and_the_caller_the_values() -> None:
    released = answered(guards(), request_for(PROMPT), echoing())
    assert released.request is not None
    for value in (MAIL, CARD, KEY):
        assert value not in asked(released.request)
    assert released.content == PROMPT


@given(st.lists(st.integers(0, 400), max_size=40), st.sampled_from(["content", "reasoning", "echo"]))
def test_streamed_equals_whole_at_every_cut(cuts: list[int], channel: Any) -> None:
    form = "{} and {}"
    model = lambda masked: pieces(form.replace("{}", asked(masked)), cuts, channel=channel)  # noqa: E731
    released = answered(guards(), request_for(PROMPT), model)
    assert released.text(channel) == f"{PROMPT} and {PROMPT}"


def test_arguments_of_a_tool_have_the_value_with_escapes() -> None:
    value = 'nann "the boss" \\ example'
    request = request_for(f"Greet {value}!")
    hook = Patterns([r'nann "the boss" \\ example'], prompt="redact", restore=True)

    def call(masked: GenerationRequest) -> Sequence[Delta]:
        arguments = json.dumps({"text": asked(masked), "n": 1})
        return pieces(arguments, range(0, 80, 3), channel="tool_call", tool_call=ToolCall(0, "send"))

    ((_, arguments),) = answered([hook], request, call).tool_calls
    assert json.loads(arguments) == {"text": f"Greet {value}!", "n": 1}


def test_a_value_in_the_arguments_of_an_earlier_call_is_masked_as_the_text_that_it_is() -> None:
    call = {
        "id": "1",
        "type": "function",
        "function": {
            "name": "send",
            "arguments": json.dumps({"to": 'a "b" nann@initech.org', "card": 4111111111111111}),
        },
    }
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Send it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": f"sent to {MAIL}"},
    ]
    released = answered(guards(), request_for(messages), echoing(range(200)))
    assert released.request is not None
    masked = json.loads(released.request.messages[1]["tool_calls"][0]["function"]["arguments"])
    assert masked["to"].startswith('a "b" [EMAIL_ADDRESS_')
    assert masked["card"].startswith("[CREDIT_CARD_")
    assert released.content == f"sent to {MAIL}"
    assert asked(released.request) == f"sent to {masked['to'][6:]}", "one value, one placeholder"


def test_a_number_comes_back_as_a_string() -> None:
    arguments = '{"card": 4111111111111111}'
    call = {"id": "1", "type": "function", "function": {"name": "pay", "arguments": arguments}}
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "Again."},
    ]

    def again(masked: GenerationRequest) -> Sequence[Delta]:
        said = masked.messages[0]["tool_calls"][0]["function"]["arguments"]
        return pieces(said, range(0, 60, 7), channel="tool_call", tool_call=ToolCall(0, "pay"))

    ((_, released),) = answered(guards(), request_for(messages), again).tool_calls
    assert json.loads(released) == {"card": "4111111111111111"}


def test_a_value_has_one_placeholder_in_a_conversation_and_another_for_another_caller() -> None:
    first = answered(guards(), request_for(PROMPT), echoing())
    assert first.request is not None
    turns = [
        {"role": "user", "content": PROMPT},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": f"Once more: {MAIL}"},
    ]
    second = answered(guards(), request_for(turns), echoing())
    assert second.request is not None
    assert second.request.messages[0]["content"] == asked(first.request)
    assert second.request.messages[1]["content"] == asked(first.request)
    reloaded = [Pii(prompt="redact", restore=True), Secrets(prompt="redact", restore=True)]
    again = answered(reloaded, request_for(PROMPT), echoing())
    assert again.request is not None
    assert asked(again.request) == asked(first.request)
    other = answered(guards(), replace(request_for(PROMPT), caller="another"), echoing())
    assert other.request is not None
    assert not set(_found(asked(first.request))) & set(_found(asked(other.request)))


def _found(text: str) -> list[str]:
    return [text[a:b] for a, b in placeholders.placeholders_in(text, 0, len(text))]


def test_a_placeholder_that_this_request_did_not_issue_stays_as_it_is() -> None:
    other = placeholders.placeholder_for("EMAIL_ADDRESS", MAIL, "another caller")
    own_but_not_sent = placeholders.placeholder_for("EMAIL_ADDRESS", "x@initech.org", "")
    text = f"{other} {own_but_not_sent} [EMAIL_ADDRESS_BCDFGHJKLMNPQRST]"
    released = answered(guards(), request_for(PROMPT), lambda _: pieces(text, range(0, 99, 5)))
    assert released.content == text


def test_a_placeholder_that_the_caller_typed_stays_literal() -> None:
    typed = placeholders.placeholder_for("EMAIL_ADDRESS", MAIL, "")
    prompt = f"{MAIL} is not {typed}"
    released = answered(guards(), request_for(prompt), echoing(range(0, 99, 4)))
    assert released.request is not None
    assert typed in asked(released.request)
    assert MAIL not in asked(released.request)
    assert released.content == prompt


def test_a_value_of_the_models_own_is_redacted_and_one_of_the_callers_passes() -> None:
    text = f"{MAIL} or other@initech.org or xnann@initech.org."
    for cuts in ([], range(60), range(0, 60, 7)):
        released = answered(guards(), request_for(PROMPT), lambda _, cuts=cuts: pieces(text, cuts))
        assert released.content == f"{MAIL} or [EMAIL_ADDRESS] or [EMAIL_ADDRESS]."


@given(
    st.sampled_from([f"{MAIL}.uk", f"x{MAIL}", f"{CARD} 1", f"{KEY}W", "Ann Lee Smith"]),
    st.lists(st.integers(0, 60), max_size=20),
)
@examples(600)
def test_a_value_passes_or_not_wherever_a_match_that_has_a_part_of_it_is_cut(
    text: str, cuts: list[int]
) -> None:
    """Contract 9.2, 9.4."""
    names = Phrases(["Ann Lee", "Lee Smith"], prompt="redact", restore=True)
    request = request_for(f"{PROMPT} Ask Ann Lee.")
    model = partial(pieces, f"It is {text} or so.")

    def came_of(at: Sequence[int]) -> tuple[str, list[Any]]:
        released = answered([*guards(), names, listener := Listens()], request, lambda _: model(at))
        told = [(one.hook, one.action, one.offset) for one in listener.told if one.action != "hold"]
        return released.content, told

    assert came_of(cuts) == came_of([])


def test_a_cut_placeholder_is_never_completed() -> None:
    placeholder = placeholders.placeholder_for("EMAIL_ADDRESS", MAIL, "")
    for length in range(1, len(placeholder) + 1):
        text = f"to {placeholder[:length]}"
        ends = (
            [*pieces(text, range(0, 40, 3))[:-1], Delta(finish_reason="length")],
            [Delta(text=text, finish_reason="length")],
        )
        for cut in ends:
            released = answered(guards()[:1], request_for(PROMPT), lambda _, cut=cut: cut)
            assert released.content == ("to " if length < len(placeholder) else f"to {MAIL}")


def test_ids_and_logprobs_of_what_came_back_are_withheld() -> None:
    request = replace(request_for(f"Hello {MAIL}!"), sampling=SamplingParams(logprobs=1))
    released = answered(guards(), request, echoing(range(0, 80, 2)))
    assert released.content == f"Hello {MAIL}!"
    assert "".join(token.text for token in released.tokens) in ("Hello !", "Hello ")


@pytest.mark.parametrize("channel", ["content", "tool_call"])
def test_a_later_guard_lets_a_restored_value_pass(channel: Any) -> None:
    """What stands before a value may make it a find of the second guard, which never saw it in the prompt."""
    model: Model = lambda masked: pieces(  # noqa: E731
        f'"password: {asked(masked)} {MAIL}x other@initech.org"',
        range(0, 200, 7),
        channel=channel,
        tool_call=ToolCall(0, "f") if channel == "tool_call" else None,
    )
    again = Patterns({"mail": "[a-z]{4,9}@initech.org"}, prompt="redact", restore=True)
    released = answered([*guards(), again], request_for(MAIL), model)
    text = released.content if channel == "content" else released.tool_calls[0][1]
    assert text == f'"password: {MAIL} [EMAIL_ADDRESS] [EMAIL_ADDRESS]"'


@pytest.mark.parametrize("action", ["terminate", "rewind"])
def test_values_come_back_before_a_match_that_ends_the_answer(action: Any) -> None:
    for cuts in ([], range(99), range(0, 99, 8)):
        model: Model = lambda masked, cuts=cuts: pieces(f"{asked(masked)} then other@initech.org!", cuts)  # noqa: E731
        released = answered(guards(action=action), request_for(f"Ask {MAIL}"), model)
        assert released.content == f"Ask {MAIL} then "
        assert released.finish_reason == "content_filter"


def test_a_match_around_a_placeholder_of_another_guard_leaves_it_whole() -> None:
    wide = Patterns({"line": "mail: [^\\n]{1,200}"}, prompt="redact", restore=True)
    prompt = f"mail: {MAIL} soon\nbye"
    released = answered([*guards(), wide], request_for(prompt), echoing(range(0, 200, 9)))
    assert released.request is not None
    assert "soon" not in asked(released.request)
    assert MAIL not in asked(released.request)
    assert released.content == prompt


def codes(**options: Any) -> Patterns:
    """A guard that masks short codes, and acts on longer ones, of which a short one may be a part."""
    patterns = {"short": r"\bAB\d{4}\b", "long": r"\bAB\d{8}\b", "marked": r"key=AB\d{4}\b"}
    return Patterns(patterns, prompt="redact", restore=True, **options)


WRITTEN = {
    "the rest after it": ("{}5678.", "AB1234[long]."),
    "a word before it": ("key={}.", "[marked]AB1234."),
    "both": ("a key={}5678, {}", "a key=AB1234[long], AB1234"),
    "no match": ("{} 5678, {}567 {}.", "AB1234 5678, AB1234567 AB1234."),
    "twice": ("{}5678 {}5678", "AB1234[long] AB1234[long]"),
}
"""What the model writes, and what the caller of AB1234 gets."""


@pytest.mark.parametrize("channel", ["content", "reasoning", "echo"])
@pytest.mark.parametrize("form", WRITTEN.values(), ids=WRITTEN)
@given(cuts=st.lists(st.integers(0, 200), max_size=30))
def test_a_value_completes_no_match(form: tuple[str, str], channel: Any, cuts: list[int]) -> None:
    written, wanted = form  # contract 9.12
    model = lambda masked: pieces(written.replace("{}", asked(masked)), cuts, channel=channel)  # noqa: E731
    assert answered([codes()], request_for("AB1234"), model).text(channel) == wanted


@given(cuts=st.lists(st.integers(0, 200), max_size=30))
def test_a_value_completes_no_match_in_arguments(cuts: list[int]) -> None:  # contract 9.12
    def call(masked: GenerationRequest) -> Sequence[Delta]:
        arguments = json.dumps({"text": f"{asked(masked)}5678"})
        return pieces(arguments, cuts, channel="tool_call", tool_call=ToolCall(0, "send"))

    ((_, arguments),) = answered([codes()], request_for("AB1234"), call).tool_calls
    assert json.loads(arguments) == {"text": "AB1234[long]"}


@given(cuts=st.lists(st.integers(0, 200), max_size=30))
def test_an_answer_that_completes_a_value_ends_after_it(cuts: list[int]) -> None:  # contract 9.12
    released = answered([codes(action="terminate")], request_for("AB1234"), echoing(cuts, "so {}, {}5678"))
    assert released.content == "so AB1234, AB1234"


@given(cuts=st.lists(st.integers(0, 200), max_size=30))
def test_a_cut_answer_has_no_beginning_of_a_match_with_a_value(cuts: list[int]) -> None:
    def model(masked: GenerationRequest) -> Sequence[Delta]:
        return [*pieces(f"so {asked(masked)}56", cuts)[:-1], Delta(finish_reason="length")]

    assert answered([codes()], request_for("AB1234"), model).content == "so AB1234"  # contract 9.7, 9.12


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("restores", [True, False])
@given(cuts=st.lists(st.integers(0, 200), max_size=30))
def test_a_value_of_another_guard_completes_no_match(
    is_before: bool, restores: bool, cuts: list[int]
) -> None:
    mask = Patterns({"short": r"\bAB\d{4}\b"}, prompt="redact", restore=True)
    more: dict[str, Any] = {"prompt": "redact", "restore": True} if restores else {}
    keys = Patterns({"long": r"\bAB\d{8}\b"}, **more)
    order = [keys, mask] if is_before else [mask, keys]
    released = answered(order, request_for("AB1234"), echoing(cuts, "so {}5678, {}"))
    assert released.content == ("so AB1234[long], AB1234" if is_before or restores else "so [long], AB1234")


def test_a_completion_goes_on_after_the_caller_s_value() -> None:  # contract 2.8, 9.12
    request = replace(request_for(""), endpoint="completions", prompts=("the code is AB1234",), messages=())
    released = answered([codes()], request, lambda _: pieces("5678, or 5678", [2]))
    assert released.content == "[long], or 5678"


def test_values_side_by_side_leave_though_they_may_all_be_one_match() -> None:
    """What waits has a bound (contract 9.12): with a form that has no end, four values wait."""
    endless = Patterns({"line": r"\bAB[AB\d]{4,4000}X"}, prompt="redact", restore=True)
    seen: list[str] = []

    def looks(chunk: Chunk) -> Verdict:
        seen.append(chunk.text_diff)
        return emit(chunk.pending)

    request = request_for("say AB1234X")
    model: Model = lambda masked: pieces(asked(masked)[4:] * 80, range(0, 4000, 9))  # noqa: E731
    assert answered([endless, looks], request, model).content == "AB1234X" * 80
    assert max(map(len, seen)) <= 7 * 5


@pytest.mark.parametrize(
    "written", ["nann%40initech.org", "nann&#64;initech.org", "nann\u2011x@initech.org", "ｎann@initech.org"]
)
def test_a_value_comes_back_as_it_was_written(written: str) -> None:
    released = answered(guards(), request_for(f"To {written} now"), echoing(range(0, 99, 6)))
    assert released.request is not None
    assert written not in asked(released.request)
    assert released.content == f"To {written} now"


def test_a_long_value_comes_back_whole() -> None:
    body = "\n".join(
        "".join(random.Random(i).choices("ABCDEFGHabcdefgh0123456789+/", k=64)) for i in range(120)
    )
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"
    released = answered(guards(), request_for(f"Keep {key} safe"), echoing(range(0, 99, 6)))
    assert released.request is not None
    assert len(asked(released.request)) < 100
    assert released.content == f"Keep {key} safe"


def test_phrases_come_back_too() -> None:
    hook = Phrases(["Project Bluebird"], prompt="redact", restore=True)
    prompt = "About **Project  Bluebird** and project bluebird."
    released = answered([hook], request_for(prompt), echoing(range(0, 99, 5)))
    assert released.request is not None
    assert "luebird" not in asked(released.request)
    assert released.content == prompt


def test_every_output_and_a_worker_bring_values_back() -> None:
    request = replace(request_for(PROMPT), sampling=SamplingParams(n=2))

    def both(masked: GenerationRequest) -> Sequence[Delta]:
        some = [pieces(asked(masked), range(i, 90, 7), index=i) for i in range(2)]
        return (
            [delta for pair in zip(*some, strict=False) for delta in pair]
            + some[0][len(some[1]) :]
            + some[1][len(some[0]) :]
        )

    released = answered(guards(), request, both, in_worker=True)
    assert released.text("content", 0) == released.text("content", 1) == PROMPT


def test_decisions_say_that_a_value_came_back_and_never_which() -> None:
    heard: list[Any] = []

    class Listens:
        def __call__(self, chunk: Any) -> Any:
            from hooks import redact

            text = chunk.pending
            return redact([(0, len(text), "x", "all")] if text else [])

        def on_decision(self, decision: Any) -> None:
            heard.append(decision)

    answered([*guards(), Listens()], request_for(PROMPT), echoing(range(0, 99, 5)))
    assert {"restore", "rewrite_prompt", "redact"} <= {decision.action for decision in heard}
    for decision in heard:
        for value in (MAIL, CARD, KEY):
            assert value not in decision.withheld
            assert value not in repr(decision)


def test_a_guard_that_restores_needs_a_prompt_to_redact() -> None:
    wrongs: list[dict[str, Any]] = [{}, {"prompt": "refuse"}, {"prompt": "redact", "template": "x"}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="restore"):
            Pii(restore=True, **wrong)


def test_the_key_comes_from_a_file_or_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def key() -> bytes:
        placeholders.operator_key.cache_clear()
        return placeholders.operator_key()

    (tmp_path / "key").write_text("from a file, long enough\n")
    monkeypatch.setenv(placeholders.KEY_FILE, str(tmp_path / "key"))
    assert key() == b"from a file, long enough"
    monkeypatch.setenv(placeholders.KEY_FILE, str(tmp_path / "none"))
    with pytest.raises(ValueError, match="WEIR_RESTORE_KEY_FILE: the file cannot be read"):
        key()
    monkeypatch.delenv(placeholders.KEY_FILE)
    monkeypatch.setenv(placeholders.KEY, "short")
    with pytest.raises(ValueError, match="at least 16"):
        key()
    monkeypatch.delenv(placeholders.KEY)
    assert key() != key()
    placeholders.operator_key.cache_clear()


class Listens:
    def __init__(self) -> None:
        self.told: list[Decision] = []

    @property
    def withheld(self) -> list[str]:
        return [decision.withheld for decision in self.told]

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)

    def on_decision(self, decision: Decision) -> None:
        self.told.append(decision)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_no_decision_has_a_value_that_the_model_wrote_by_itself(place: int, size: int) -> None:
    """Contract 3.18, 9.1."""
    listener = Listens()
    hooks: list[Any] = [Secrets(prompt="redact", restore=True), listener]
    hooks.insert(place, Patterns({"keys": "keys? .{1,40}!"}))
    text = f"The key {KEY}! and the key {KEY[:9]}! end."
    pieces = [text[i : i + size] for i in range(0, len(text), size)]

    def model(request: GenerationRequest) -> list[Delta]:
        return [*(Delta(text=piece) for piece in pieces), Delta(finish_reason="stop")]

    request = replace(request_for(), messages=({"role": "user", "content": PROMPT},))
    released = answered(hooks, request, model)
    assert released.content == "The [keys] and the [keys] end."
    withheld = [one for one in listener.withheld if one]
    assert withheld
    assert not any(KEY in one for one in withheld)
    assert f"key {'*' * len(KEY)}!" in withheld


def test_a_hook_that_says_nonsense_of_its_placeholders_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:  # contract 9.11
    class Wrong(Listens):
        def on_request(self, request: GenerationRequest, state: dict[Any, Any]) -> GenerationRequest:
            state["caller_values"] = {"[X]": 5}
            return request

    request = replace(request_for(), messages=({"role": "user", "content": "Hi"},))
    answered([Wrong()], request, lambda _: [Delta(text="Hi"), Delta(finish_reason="stop")])
    assert "hook Wrong failed: it gave a value that is not text" in caplog.text


def test_a_leak_of_the_prompt_is_found_with_its_values_in_either_order() -> None:  # contract 9.11
    prompt = f"The secret rule is {MAIL} and never tell anybody else of it"
    for place in (0, 1):
        hooks: list[Any] = [Pii(entities=["EMAIL_ADDRESS"], prompt="redact", restore=True)]
        hooks.insert(place, PromptLeak(min_words=8, roles=["user"]))

        def model(request: GenerationRequest) -> list[Delta]:
            said = asked(request).removeprefix("The ").removesuffix(" tell anybody else of it")
            return [Delta(text=f"{said} ok"), Delta(finish_reason="stop")]

        request = replace(request_for(), messages=({"role": "user", "content": prompt},))
        assert MAIL not in answered(hooks, request, model).content


def test_a_text_is_read_with_its_values_once_whatever_their_number() -> None:  # contract 9.11
    values = {f"[NAME_{i}]": f"Ann {i}" for i in range(20_000)}
    assert expanded("[[NAME_1] [NAME_9]] [NAME_x] [", values) == "[Ann 1 Ann 9] [NAME_x] ["
    text = "[" * 50_000 + "".join(values)
    began = time.process_time()
    assert expanded(text, values) == "[" * 50_000 + "".join(values.values())
    assert time.process_time() - began < 1
