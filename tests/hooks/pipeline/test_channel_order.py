"""What leaves on several channels leaves in the order of the engine (contract 2.16)."""

from dataclasses import replace
from threading import Lock
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, GenerationRequest, SamplingParams, Token, ToolCall
from hooks import Chunk, Verdict, emit, hold, redact
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.pipeline.pipeline import Pipeline
from tests.helpers import pipeline_of

KEY = "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"
CALL = ToolCall(0, "read")
Runs = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no worker"


class Tail:
    """Holds the last `max_hold` characters. It cannot be copied."""

    def __init__(self, max_hold: int | None = 8) -> None:
        self.num_held = max_hold or 8
        if max_hold is not None:
            self.max_hold = max_hold

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending) if chunk.is_final else hold(min(len(chunk.pending), self.num_held))


class Sees:
    """Keeps what it was shown of each channel. It cannot be copied, and it holds nothing."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str, bool]] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        self.shown.append((chunk.channel, chunk.text_diff, chunk.is_final))
        return emit(chunk.pending)


class FailsIfCopied:
    """Holds the last four characters. A copy of it fails, and the hook itself does not."""

    copyable = True
    max_hold = 4

    def __init__(self, how: str) -> None:
        self.how = how
        self.num_ends = 0

    def __call__(self, chunk: Chunk) -> Verdict:
        if self.how == "state":
            chunk.state["lock"] = Lock()  # it cannot be copied
        if not chunk.is_final:
            return hold(min(4, len(chunk.pending)))
        self.num_ends += 1
        if chunk.channel == "content" and self.num_ends == 1 and self.how != "state":
            if self.how == "raise":
                raise KeyError(chunk.pending)
            return None  # type: ignore[return-value]
        return emit(chunk.pending)


@pytest.mark.parametrize("how", ["raise", "no verdict", "state"])
async def test_a_copy_that_fails_is_no_hook_that_fails(how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "weir.hooks")
    pipeline = pipeline_of(FailsIfCopied(how))
    deltas = [
        Delta(text="Hello you"),
        Delta(text="Hm.", channel="reasoning"),
        Delta(text=" all"),
        Delta(finish_reason="stop"),
    ]
    texts: dict[str, str] = {}
    for delta in await fed(pipeline, deltas):
        texts[delta.channel] = texts.get(delta.channel, "") + delta.text
    assert texts == {"content": "Hello you all", "reasoning": "Hm."}
    assert caplog.records
    assert not any("you" in one.getMessage() for one in caplog.records)
    (tally,) = pipeline.tallies.values()
    assert "error" not in tally.others

    guard = pipeline_of(FailsIfCopied(how)).open(request())
    await guard.feed(Delta(text="Hello you"))
    assert await guard.look_ahead() is None
    await guard.close()
    assert {one.levelname for one in caplog.records} == {"DEBUG"}


def request(**fields: Any) -> GenerationRequest:
    return GenerationRequest(request_id="r", model="m", endpoint="chat", **fields)


def runs_of(deltas: list[Delta]) -> Runs:
    """The texts of the channels, joined where one follows itself."""
    runs: Runs = []
    for delta in deltas:
        if not delta.text:
            continue
        channel = delta.channel if delta.tool_call is None else f"call {delta.tool_call.index}"
        if runs and runs[-1][0] == channel:
            runs[-1] = channel, runs[-1][1] + delta.text
        else:
            runs.append((channel, delta.text))
    return runs


async def fed(pipeline: Pipeline, deltas: list[Delta], asked: GenerationRequest | None = None) -> list[Delta]:
    guard = pipeline.open(asked or request())
    released: list[Delta] = []
    for delta in deltas:
        step = await guard.feed(delta)
        released += step.released
        if step.is_over:
            break
    await guard.close()
    return released


def text(channel: Any, *texts: str) -> list[Delta]:
    return [Delta(text=one, channel=channel) for one in texts]


def end(reason: Any = "stop") -> Delta:
    return Delta(finish_reason=reason)


PIPELINES = [
    pipeline_of(Pii()),
    pipeline_of(Pii(), Secrets(), Phrases(["blue bird", "code of silence"])),
    pipeline_of(Phrases(["answer to all"]), Sees(), Secrets(), Pii()),
    pipeline_of(Secrets(), Phrases(["notes of"], action="terminate", text="No.")),
]
PLAIN = [
    "I read the",
    " notes",
    ".",
    "answer",
    ".",
    "The code",
    " is 555",
    " a",
    "blue",
    " key:",
    "fine. ",
    "x@",
]


@st.composite
def outputs(draw: st.DrawFn) -> list[Delta]:
    """Deltas of channels and whole calls in any order, none of which has a match."""
    deltas: list[Delta] = []
    num_calls = 0
    for kind in draw(st.lists(st.sampled_from(["reasoning", "content", "call"]), min_size=2, max_size=7)):
        if kind == "call":
            call = ToolCall(num_calls, "read")
            arguments = draw(st.sampled_from([['{"path":', ' "notes.txt"}'], ["{}"], ['{"a": ["x"]}']]))
            deltas += [Delta(text=one, channel="tool_call", tool_call=call) for one in arguments]
            num_calls += 1
        else:
            deltas += text(kind, *draw(st.lists(st.sampled_from(PLAIN), min_size=1, max_size=3)))
    return [*deltas, end("tool_calls" if num_calls else "stop")]


@pytest.mark.parametrize("pipeline", PIPELINES, ids=range(len(PIPELINES)))
@given(deltas=outputs())
async def test_text_and_calls_leave_in_the_order_of_the_engine(
    pipeline: Pipeline, deltas: list[Delta]
) -> None:
    released = await fed(pipeline, deltas)
    assert runs_of(released) == runs_of(deltas)
    assert released[-1].finish_reason == deltas[-1].finish_reason


@pytest.mark.parametrize("pipeline", PIPELINES[:3], ids=range(3))
@given(deltas=outputs())
async def test_tokens_leave_with_their_text(pipeline: Pipeline, deltas: list[Delta]) -> None:
    fitted = [
        Delta(
            text=delta.text,
            channel=delta.channel,
            tool_call=delta.tool_call,
            finish_reason=delta.finish_reason,
            tokens=(Token(place, delta.text, delta.text.encode(), -0.5),) if delta.text else (),
        )
        for place, delta in enumerate(deltas)
    ]
    released = await fed(pipeline, fitted, request(sampling=SamplingParams(logprobs=0)))
    assert runs_of(released) == runs_of(deltas)
    given_ids = [token.id for delta in released for token in delta.tokens]
    assert given_ids == [place for place, delta in enumerate(deltas) if delta.text]
    by_tokens = [replace(delta, text="".join(token.text for token in delta.tokens)) for delta in released]
    assert runs_of(by_tokens) == runs_of(deltas)


async def test_a_value_that_ends_its_channel_is_redacted_before_the_next_one() -> None:
    deltas = [*text("reasoning", "It is ", KEY[:20], KEY[20:]), *text("content", "Done", "."), end()]
    released = await fed(pipeline_of(Secrets(), Pii()), deltas)
    assert runs_of(released) == [("reasoning", "It is [GITHUB_TOKEN]"), ("content", "Done.")]


@pytest.mark.parametrize("cut", range(1, len("blue bird")))
async def test_a_match_that_goes_on_after_another_channel_ends_the_output(cut: int) -> None:
    first, second = "blue bird"[:cut], "blue bird"[cut:]
    seen = Sees()
    deltas = [
        *text("content", "a " + first),
        *text("reasoning", "Hm. "),
        *text("content", second + " b."),
        end(),
    ]
    released = await fed(pipeline_of(Phrases(["blue bird"]), seen), deltas)
    assert runs_of(released) == [("content", "a " + first), ("reasoning", "Hm. ")]
    assert (released[-1].finish_reason, released[-1].stop_reason) == ("content_filter", "hook0")
    assert second not in "".join(shown for _, shown, _ in seen.shown)


async def test_the_text_after_another_channel_is_read_with_the_text_before_it() -> None:
    deltas = [*text("content", "the blue"), *text("reasoning", "Hm."), *text("content", " heron"), end()]
    released = await fed(pipeline_of(Phrases(["blue bird"])), deltas)
    assert runs_of(released) == [("content", "the blue"), ("reasoning", "Hm."), ("content", " heron")]


async def test_each_later_hook_is_shown_the_text_once_and_one_last_chunk() -> None:
    seen = Sees()
    await fed(pipeline_of(Pii(), seen), [*text("reasoning", "answer"), *text("content", "code."), end()])
    assert "".join(shown for channel, shown, _ in seen.shown if channel == "reasoning") == "answer"
    assert [channel for channel, _, is_final in seen.shown if is_final] == ["reasoning", "content"]


async def test_a_later_hook_redacts_what_left_first() -> None:
    class Censor:
        def __call__(self, chunk: Chunk) -> Verdict:
            at = chunk.pending.find("answer")
            return emit(chunk.pending) if at < 0 else redact([(at, at + 6, "***")])

    deltas = [*text("reasoning", "the answer"), *text("content", "code."), end()]
    released = await fed(pipeline_of(Pii(), Censor()), deltas)
    assert runs_of(released) == [("reasoning", "the ***"), ("content", "code.")]


@pytest.mark.parametrize("asked", [{}, {"steers_end": True}], ids=["plain", "steered"])
async def test_the_limit_of_tokens_cuts_the_last_channel_alone(asked: Any) -> None:
    """What was held of an earlier channel was not cut there (contract 2.9), unless a field steers its end."""
    deltas = [*text("reasoning", "the blue"), *text("content", "a blue"), end("length")]
    released = await fed(pipeline_of(Phrases(["blue bird"])), deltas, request(**asked))
    reasoning = "the " if asked else "the blue"
    assert runs_of(released) == [("reasoning", reasoning), ("content", "a ")]
    assert released[-1].finish_reason == "length"


async def test_a_cut_after_text_came_again_withholds_what_may_be_a_match() -> None:
    deltas = [*text("content", "a blu"), *text("reasoning", "Hm. "), *text("content", "e"), end("length")]
    released = await fed(pipeline_of(Phrases(["blue bird"])), deltas)
    assert runs_of(released) == [("content", "a blu"), ("reasoning", "Hm. ")]
    assert released[-1].finish_reason == "length"


@pytest.mark.parametrize(
    ("max_hold", "in_order"), [(8, "Fine."), (8, "So.It is."), (None, "")], ids=["short", "long", "unknown"]
)
async def test_other_channels_wait_for_a_hook_that_cannot_be_copied(
    max_hold: int | None, in_order: str
) -> None:
    """They wait for as many characters as the hook says that it holds at most."""
    content = in_order or "Fine."
    deltas = [*text("reasoning", "answers"), *text("content", content[:3], content[3:]), end()]
    pipeline = pipeline_of(Tail(max_hold), Sees())
    released = await fed(pipeline, deltas)
    if max_hold is None or len(content) > max_hold:
        assert sorted(runs_of(released)) == sorted([("reasoning", "answers"), ("content", content)])
    else:
        assert runs_of(released) == [("reasoning", "answers"), ("content", content)]


async def test_a_call_waits_for_the_held_text_before_it() -> None:
    call = Delta(text='{"path": "x"}', channel="tool_call", tool_call=CALL)
    for hook in (Pii(), Tail(8), Tail(None)):
        released = await fed(pipeline_of(hook), [*text("content", "I read x"), call, end("tool_calls")])
        assert runs_of(released) == [("content", "I read x"), ("call 0", call.text)]


async def test_a_delta_without_text_does_not_end_the_wait() -> None:
    calls = [Delta(text="{}", channel="tool_call", tool_call=ToolCall(i, "read")) for i in range(2)]
    empty = Delta(text="", channel="content")
    deltas = [*text("content", "I look."), calls[0], empty, calls[1], empty, end("tool_calls")]
    runs = runs_of(await fed(pipeline_of(Tail()), deltas))
    assert runs == [("content", "I look."), ("call 0", "{}"), ("call 1", "{}")]


async def test_what_waits_leaves_with_a_verdict_that_ends_the_request() -> None:
    class Ends:
        def __call__(self, chunk: Chunk) -> Verdict:
            from hooks import terminate

            return terminate("over") if "end" in chunk.text_diff else emit(chunk.pending)

    deltas = [*text("reasoning", "answers"), *text("content", "Fi", "ne", "end")]
    released = await fed(pipeline_of(Tail(8), Ends()), [*deltas, end()])
    assert released[-1].stop_reason == "over"
    assert "ne" not in "".join(text for channel, text in runs_of(released) if channel == "reasoning")
