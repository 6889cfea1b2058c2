"""Hooks written for TensorRT-LLM's post-processor hook run here when only their import line changes.

They are what its documentation describes: stateless upper-casing, a guard with state of its own keyed by
`request_id`, withholding everything, ending at once. Its verdict helpers and class names are all used.
"""

from hooks import (
    PostProcessorHook,
    PostProcessorHookChunk,
    PostProcessorHookVerdict,
    emit,
    suppress,
    terminate,
)
from hooks.pipeline.pipeline import Pipeline
from tests.helpers import (
    Source,
    finish_of,
    guard_all,
    ids_of,
    make_deltas,
    make_request,
    pipeline_of,
    text_of,
)


class Shout:
    def __call__(self, chunk: PostProcessorHookChunk) -> PostProcessorHookVerdict:
        return emit(chunk.text_diff.upper())


class EndsAtWord:
    """Keeps each request's text, by `request_id`, and lets go of it at the end."""

    WORDS = ("forbidden",)

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def __call__(self, chunk: PostProcessorHookChunk) -> PostProcessorHookVerdict:
        text = self.texts.pop(chunk.request_id, "") + chunk.text_diff.lower()
        if any(word in text for word in self.WORDS):
            return terminate("forbidden_word")
        if not chunk.is_final:
            self.texts[chunk.request_id] = text
        return emit(chunk.text_diff)


class PerOutput:
    """Keyed by `(request_id, output_index)`, as hooks for n > 1 are."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, int], int] = {}

    def __call__(self, chunk: PostProcessorHookChunk) -> PostProcessorHookVerdict:
        key = (chunk.request_id, chunk.output_index)
        self.counts[key] = self.counts.get(key, 0) + len(chunk.token_ids_diff)
        if chunk.is_final:
            del self.counts[key]
        return emit(chunk.text_diff)


class Mute:
    def __call__(self, chunk: PostProcessorHookChunk) -> PostProcessorHookVerdict:
        return suppress()


class EndAtOnce:
    def __call__(self, chunk: PostProcessorHookChunk) -> PostProcessorHookVerdict:
        return terminate("test_policy")


def one(hook: PostProcessorHook) -> Pipeline:
    return pipeline_of(hook)


async def test_upper_casing() -> None:
    assert text_of(await guard_all(one(Shout()), make_deltas(["ab", "cd"]))) == "ABCD"


async def test_text_and_ids_may_part_as_they_do_there_if_a_setting_says_so() -> None:
    pipeline = pipeline_of(Shout(), rewritten_tokens="keep")
    assert ids_of(await guard_all(pipeline, make_deltas(["ab", "cd"]))) == [0, 1]


async def test_a_guard_with_state_by_request() -> None:
    guard = EndsAtWord()
    source = Source(make_deltas(["well, for", "bid", "den", " fruit"]))
    released = await guard_all(pipeline_of(guard, terminate_finish_reason="stop"), source)
    assert text_of(released) == "well, forbid"
    assert finish_of(released) == ("stop", "forbidden_word")
    assert source.closed_early
    assert text_of(await guard_all(one(guard), make_deltas(["fine"]))) == "fine"
    assert guard.texts == {}


async def test_state_by_output() -> None:
    hook = PerOutput()
    deltas = [*make_deltas("ab"), *make_deltas("xyz", index=1)]
    released = await guard_all(one(hook), deltas, make_request(n=2))
    assert (text_of(released), text_of(released, index=1)) == ("ab", "xyz")
    assert hook.counts == {}


async def test_withholding_everything() -> None:
    released = await guard_all(one(Mute()), make_deltas(["a", "b"]))
    assert (text_of(released), ids_of(released), finish_of(released)) == ("", [], ("stop", None))


async def test_ending_at_once() -> None:
    released = await guard_all(one(EndAtOnce()), make_deltas(["a", "b"]))
    assert (text_of(released), finish_of(released)) == ("", ("content_filter", "test_policy"))
