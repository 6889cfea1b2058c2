"""For any text, tokens, chunks and verdicts: released is what the clauses say, character by character."""

import asyncio
import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, SamplingParams, Token, TopLogprob
from hooks import Chunk, Verdict, emit, hold, redact, suppress, terminate
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from tests.helpers import (
    Script,
    examples,
    guard_all,
    ids_of,
    make_deltas,
    make_request,
    pipeline_of,
    recut,
    text_of,
)

PIECES = st.lists(st.text("ab😀 ", min_size=1, max_size=4), min_size=1, max_size=12)
SIZES = st.lists(st.integers(1, 4), max_size=12)


@dataclass
class Oracle:
    """Plays hooks that answer at random, and works out, character by character, what each one passes on.

    A character is (text, index of its token, or None if it was rewritten). A token may be released once all
    of its characters were.
    """

    seed: int
    ended: bool = False

    def verdict(self, chunk: Chunk, rng: random.Random) -> Verdict:
        pending = chunk.pending
        n = len(pending)
        held = 0 if chunk.is_final else rng.randint(0, n)
        match rng.randint(0, 9):
            case 0:
                return suppress()
            case 1:
                return emit(pending.upper() + "!")
            case 2 | 3:
                cuts = sorted(rng.randint(0, n - held) for _ in range(4))
                spans = [(cuts[0], cuts[1], rng.choice(["", "#"])), (cuts[2], cuts[3], "##")]
                return redact(spans, hold=held)
            case 4 if n:
                return terminate("x", after=rng.randint(0, n), text=rng.choice([None, "bye"]))
            case 5 | 6 if held or not chunk.is_final:
                return hold(held)
        return emit(pending)


def oracle_apply(verdict: Any, pending: list[tuple[str, int | None]]) -> tuple[list, list, bool]:
    """(passed on, kept, ended) by contract 3, on characters."""
    name = type(verdict).__name__
    text = "".join(c for c, _ in pending)
    if name == "suppress":
        return [], [], False
    if name == "emit":
        new = verdict.text
        return (pending if new == text else [(c, None) for c in new]), [], False
    if name == "hold":
        n = len(pending) if verdict.n is None else verdict.n
        return pending[: len(pending) - n], pending[len(pending) - n :], False
    if name == "terminate":
        closing = [(c, None) for c in verdict.text or ""]
        return pending[: verdict.after or 0] + closing, [], True
    end = len(pending) - verdict.hold
    passed, position = [], 0
    for start, stop, replacement in sorted(verdict.spans):
        passed += pending[position:start] + [(c, None) for c in replacement]
        position = stop
    return passed + pending[position:end], pending[end:], False


def stands_together(characters: list[tuple[str, int | None]], token: int) -> bool:
    """Whether nothing was inserted between a token's characters."""
    places = [place for place, (_, own) in enumerate(characters) if own == token]
    return places == list(range(places[0], places[0] + len(places))) if places else True


@examples(300)
@given(PIECES, SIZES, st.integers(0, 2**32), st.integers(1, 3), st.booleans())
def test_what_is_released_is_what_the_clauses_say(
    pieces: list[str], sizes: list[int], seed: int, num_hooks: int, has_logprobs: bool
) -> None:
    deltas = recut(make_deltas(pieces), sizes)
    oracle = Oracle(seed)
    shown: list[list[tuple[str, Verdict, bool]]] = [[] for _ in range(num_hooks)]

    def make_hook(i: int) -> Script:
        rng = random.Random(seed + i)

        def answer(chunk: Chunk) -> Verdict:
            if chunk.aborted:
                return suppress()
            verdict = oracle.verdict(chunk, rng)
            shown[i].append((chunk.text_diff, verdict, chunk.is_final))
            return verdict

        return Script(answer)

    request = make_request()
    request = request if has_logprobs else replace(request, sampling=SamplingParams())
    pipeline = pipeline_of(*(make_hook(i) for i in range(num_hooks)))
    released = asyncio.run(guard_all(pipeline, deltas, request))

    # Replay what each hook said on characters, stage by stage.
    characters = [(c, i) for i, piece in enumerate(pieces) for c in piece]
    stage_input: list[tuple[str, int | None]] = [*characters]
    torn: set[int] = set()
    for i in range(num_hooks):
        stage_output: list[tuple[str, int | None]] = []
        pending: list[tuple[str, int | None]] = []
        position = 0
        for text_diff, verdict, _ in shown[i]:
            new = stage_input[position : position + len(text_diff)]
            assert "".join(c for c, _ in new) == text_diff  # each hook is shown what the one before released
            position += len(text_diff)
            passed, pending, ended = oracle_apply(verdict, pending + new)
            stage_output += passed
            if ended:
                break
        stage_input = stage_output
        torn |= {i for i in range(len(pieces)) if not stands_together(stage_output, i)}
    assert text_of(released) == "".join(c for c, _ in stage_input)

    whole = {i: len(piece) for i, piece in enumerate(pieces)}
    survived = [
        i for i in whole if sum(1 for _, token in stage_input if token == i) == whole[i] and i not in torn
    ]
    assert ids_of(released) == survived

    withheld = [piece for i, piece in enumerate(pieces) if i not in survived]
    told = {token.raw for d in released for token in d.tokens} | {
        top.raw for d in released for token in d.tokens for top in token.top
    }
    assert told == {form for i in survived for form in (pieces[i].encode(), b"alt:" + pieces[i].encode())}
    assert len(withheld) + len(survived) == len(pieces)


@given(PIECES, SIZES)
def test_an_observer_changes_nothing_however_the_stream_is_cut(pieces: list[str], sizes: list[int]) -> None:
    deltas = recut(make_deltas(pieces), sizes)
    observers = [Script(lambda c: emit(c.pending)) for _ in range(3)]
    assert asyncio.run(guard_all(pipeline_of(*observers), deltas)) == deltas
    for observer in observers:
        assert "".join(c.text_diff for c in observer.chunks) == "".join(pieces)


@given(PIECES, SIZES, st.integers(0, 2**32), st.integers(1, 3))
def test_offsets_follow_from_the_text_released_with_tokens_kept(
    pieces: list[str], sizes: list[int], seed: int, num_hooks: int
) -> None:
    """The tokens that are given, with their texts, continue the text released so far (contract 3.7)."""
    oracle = Oracle(seed)

    def make_hook(i: int) -> Script:
        rng = random.Random(seed + i)
        return Script(lambda c: suppress() if c.aborted else oracle.verdict(c, rng))

    pipeline = pipeline_of(*(make_hook(i) for i in range(num_hooks)), rewritten_tokens="keep")
    so_far = ""
    for delta in asyncio.run(guard_all(pipeline, recut(make_deltas(pieces), sizes))):
        so_far += delta.text
        assert so_far.endswith("".join(token.text for token in delta.tokens))


@given(PIECES, SIZES)
def test_offsets_follow_from_the_text_released(pieces: list[str], sizes: list[int]) -> None:
    """In each released delta the tokens' texts end where its text ends."""
    hook = Script(lambda c: redact([(i, i + 1, "##") for i, ch in enumerate(c.pending) if ch == "b"], hold=0))
    released: list[Delta] = asyncio.run(guard_all(pipeline_of(hook), recut(make_deltas(pieces), sizes)))
    for delta in released:
        assert delta.text.endswith("".join(token.text for token in delta.tokens))
    assert text_of(released) == "".join(pieces).replace("b", "##")


RAWS = st.one_of(
    st.sampled_from([b"", b"<s>", b"hunter2", b"hunter2\xff", "hunter2\ufffd".encode(), b"\xf0\x9f"]),
    st.text("ab😀", max_size=3).map(str.encode),
)
DISAGREEING = st.builds(
    lambda text, raw, has_id, num_top: Token(
        5 if has_id else None, text, raw, -0.5, (TopLogprob(5, raw, -0.5),) * num_top
    ),
    st.sampled_from(["", "", "a", "b", "ab", "😀", "hello"]),
    RAWS,
    st.booleans(),
    st.integers(0, 1),
)


@given(
    pieces=st.lists(
        st.tuples(st.lists(DISAGREEING, max_size=4), st.sampled_from([None, "", "a", "hello", "😀"])),
        max_size=6,
    ),
    ends=st.lists(DISAGREEING, max_size=3),
    num_held=st.integers(0, 3),
)
def test_no_byte_is_told_that_the_hooks_were_not_shown(
    pieces: list[tuple[list[Token], str | None]], ends: list[Token], num_held: int
) -> None:  # contract 8.4
    """Tokens, bytes and text may disagree in any way. `None`: the text is that of the tokens."""
    deltas = [
        Delta(text="".join(t.text for t in tokens) if text is None else text, tokens=tuple(tokens))
        for tokens, text in pieces
    ]
    deltas.append(Delta(tokens=tuple(t._replace(text="") for t in ends), finish_reason="stop"))
    hook = Script(lambda c: emit(c.pending) if c.is_final else hold(min(num_held, len(c.pending))))
    released = asyncio.run(guard_all(pipeline_of(hook), deltas))

    shown = "".join(chunk.text_diff for chunk in hook.chunks).encode()
    assert text_of(released).encode() == shown == "".join(delta.text for delta in deltas).encode()
    told = [token for delta in released for token in delta.tokens]
    place = 0
    for token in told:
        place = shown.find(token.raw, place) + len(token.raw)
        assert place >= len(token.raw), (token.raw, shown)
        assert token.raw or all(not top.raw for top in token.top)
    delivered = 0
    for delta in released:
        delivered += len(delta.text.encode())
        assert len(b"".join(token.raw for token in delta.tokens)) <= delivered


async def test_bytes_are_told_if_they_are_those_of_the_text() -> None:  # contract 8.4
    """A character that several tokens share, also if a special token stands before it."""
    special, *parts = (
        Token(i, text, raw, -0.5, (TopLogprob(9, b"?", -1.0),))
        for i, (text, raw) in enumerate([("", b"<s>"), ("", b"\xf0\x9f"), ("", b"\x98"), ("😀", b"\x80")])
    )
    deltas = [
        Delta(tokens=(special, parts[0])),
        Delta(text="😀", tokens=(*parts[1:],)),
        Delta(finish_reason="stop"),
    ]
    passing = Script(lambda c: emit(c.pending))
    released = await guard_all(pipeline_of(passing), deltas)
    told = [token for delta in released for token in delta.tokens]
    assert told == [special._replace(raw=b"", top=()), *parts]
    shown = [token.id for chunk in passing.chunks for token in chunk.logprobs_diff or ()]
    assert shown == [0, 1, 2, 3]


async def test_hooks_in_shadow_mode_change_no_tokens_bytes() -> None:  # contract 3.15
    end = Delta(tokens=(Token(2, "", b"</s>", -0.5),), finish_reason="stop")
    for is_shadow, raw in ((True, b"</s>"), (False, b"")):
        observer = LoadedHook.of("hook", Script(lambda c: emit(c.pending)), is_shadow=is_shadow)
        pipeline = Pipeline([observer])
        released = await guard_all(pipeline, [*make_deltas(["a"], finish=False), end])
        assert [token.raw for delta in released for token in delta.tokens] == [b"a", raw]


@pytest.mark.parametrize(
    ("verdict", "text"), [(redact([(1, 2, "[x]")]), "a[x]"), (redact([(1, 2, "")]), "a"), (emit("b"), "b")]
)
def test_the_end_of_sequence_leaves_whether_or_not_it_comes_with_a_text_that_is_changed(
    verdict: Verdict, text: str
) -> None:
    said = Token(1, "a.", b"a.", None)
    end = Token(2, "", b"", None)

    def changing(chunk: Chunk) -> Verdict:
        return verdict if chunk.pending == "a." else emit(chunk.pending)

    apart = [Delta(text="a.", tokens=(said,)), Delta(tokens=(end,), finish_reason="stop")]
    together = [Delta(text="a.", tokens=(said, end), finish_reason="stop")]
    for deltas in (apart, together):
        released = asyncio.run(guard_all(pipeline_of(Script(changing)), deltas))
        assert (text_of(released), ids_of(released)) == (text, [2])
