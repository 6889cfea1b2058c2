"""The chunk that a hook is shown (contract 2)."""

import pytest

from engine.protocol import Delta, ProbeInfo, PromptScores, Token
from hooks import Chunk, Verdict, emit, hold
from hooks.api import StreamContext
from tests.helpers import Script, guard_all, make_deltas, make_request, pipeline_of, text_of


def passing(chunk: Chunk) -> Verdict:
    return emit(chunk.pending)


async def test_a_chunk_says_whose_it_is() -> None:  # contract 2.1, 2.2
    hook = Script(passing)
    request = make_request(stream=True, user="u7", metadata={"team": "x"})
    await guard_all(pipeline_of(hook), make_deltas(["a", "b"]), request)
    chunk = hook.chunks[1]
    assert (chunk.request_id, chunk.output_index, chunk.channel) == ("r1", 0, "content")
    assert (chunk.text_diff, chunk.text, chunk.token_ids_diff) == ("b", "ab", (1,))
    assert (chunk.is_final, chunk.aborted, chunk.streaming) == (False, False, True)
    assert [token.logprob for token in chunk.logprobs_diff] == [-0.25]
    assert [top.raw for top in chunk.logprobs_diff[0].top] == [b"alt:b"]
    assert (chunk.request.user, chunk.request.metadata) == ("u7", {"team": "x"})
    assert chunk.request.messages[0]["content"] == "Hi"


async def test_a_chunk_has_the_scores_of_tokens_and_prompt() -> None:  # contract 2.10
    probe = ProbeInfo(name="harm", kind="linear", labels=("harm",))
    scored = Token(7, "a", scores=(0.5,))
    cut = Token(None, "c", scores=(1.5,))
    prompt = PromptScores((probe,), ((0.25,),))
    deltas = [
        Delta(
            text="why", tokens=(Token(6, "why", scores=(0.0,)),), channel="reasoning", prompt_scores=prompt
        ),
        Delta(text="abc", tokens=(scored, Token(8, "b"), cut), finish_reason="stop"),
    ]
    hook = Script(passing)
    released = await guard_all(pipeline_of(hook), deltas)
    chunk = next(chunk for chunk in hook.chunks if chunk.channel == "content")
    assert (chunk.scores_diff, chunk.tokens_diff) == (((0.5,), None), (scored, Token(8, "b"), cut))
    assert (chunk.prompt_scores, chunk.probes) == (((0.25,),), (probe,))
    assert all(delta.prompt_scores is None for delta in released)


async def test_a_chunk_of_an_engine_without_probes_has_no_scores() -> None:  # contract 2.10
    hook = Script(passing)
    await guard_all(pipeline_of(hook), make_deltas(["a"]))
    assert (hook.chunks[0].scores_diff, hook.chunks[0].prompt_scores, hook.chunks[0].probes) == (
        (None,),
        None,
        (),
    )


async def test_text_that_is_not_read_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:  # contract 2.1
    monkeypatch.setattr(StreamContext, "text", lambda *_: pytest.fail("it was joined"))
    assert text_of(await guard_all(pipeline_of(Script(passing)), make_deltas(["a", "b"]))) == "ab"


async def test_text_and_pending_of_a_kept_chunk_stay_what_they_were() -> None:
    hook = Script(lambda c: emit(c.pending) if c.is_final else hold(min(1, len(c.pending))))
    await guard_all(pipeline_of(hook), make_deltas(["ab", "cd", "ef"]))
    assert [c.text for c in hook.chunks] == ["ab", "abcd", "abcdef", "abcdef"]
    assert [c.pending for c in hook.chunks] == ["ab", "bcd", "def", "f"]


async def test_holding_all_keeps_pending_growing() -> None:
    hook = Script(lambda c: emit(c.pending) if c.is_final else hold())
    await guard_all(pipeline_of(hook), make_deltas(["ab", "cd", "ef"]))
    assert [c.pending for c in hook.chunks] == ["ab", "abcd", "abcdef", "abcdef"]


async def test_a_hook_is_not_called_without_new_text() -> None:
    hook = Script(passing)
    await guard_all(pipeline_of(hook), [Delta(), Delta(text="a"), Delta(), Delta(finish_reason="stop")])
    assert [(c.text_diff, c.is_final) for c in hook.chunks] == [("a", False), ("", True)]


def test_a_chunks_repr_holds_no_text() -> None:  # contract 6.2
    assert "secret" not in repr(Chunk(StreamContext(make_request()), "secret"))


async def test_a_chunk_has_the_text_that_the_output_continues() -> None:  # contract 2.8
    hook = Script(passing)
    request = make_request(messages=(), prompts=("Once upon a time",))
    await guard_all(pipeline_of(hook), make_deltas(["a"]), request)
    assert hook.chunks[0].lead == "Once upon a time"
