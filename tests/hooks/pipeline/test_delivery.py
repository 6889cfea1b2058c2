"""An output that a hook takes back, and that goes on otherwise, unseen by the client."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.parsers import Parsers
from engine.protocol import Delta
from hooks import Chunk, Verdict, emit, hold, redact, rewind, suppress, terminate
from hooks.decisions.failure import HookError
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from tests.helpers import (
    Script,
    Teller,
    examples,
    finish_of,
    guard_all,
    ids_of,
    make_request,
    pipeline_of,
    text_of,
    verdicts_of,
)


class Rewinder(Script):
    may_rewind = True


class Forbid(Rewinder):
    """Has the model go back from a phrase; holds just what could still become one."""

    def __init__(self, phrase: str, **options: Any) -> None:
        super().__init__(self.judge)
        self.phrase = phrase
        self.options = options

    def judge(self, chunk: Chunk) -> Verdict:
        text = chunk.pending
        if chunk.aborted:
            return emit(text)
        if (found := text.find(self.phrase)) >= 0:
            return rewind("phrase", after=found, **self.options)
        if chunk.is_final:
            return emit(text)
        return hold(max(n for n in range(len(self.phrase)) if text.endswith(self.phrase[:n])))


def follow(*ways: str) -> Callable[[tuple[str, ...]], Sequence[str]]:
    """Say the first way, words between bars; where that is banned, go on as the next that begins so."""
    paths = [(*way.split("|"), "") for way in ways]

    def tell(said: tuple[str, ...]) -> Sequence[str]:
        return [path[len(said)] for path in paths if path[: len(said)] == said]

    return tell


def run(teller: Teller, *hooks: Any, n: int = 1, can_rewind: bool = True, **options: Any) -> list[Delta]:
    request = make_request(n=n)
    return asyncio.run(guard_all(pipeline_of(*hooks, **options), teller, request, can_rewind=can_rewind))


def at(chunk: Chunk, text: str, said: Callable[[int], Verdict]) -> Verdict:
    """The verdict that `said` gives for the place of `text`; a chunk without the text passes."""
    place = -1 if chunk.aborted else chunk.pending.find(text)
    return said(place) if place >= 0 else emit(chunk.pending)


BIRDS = follow(
    "Our| project| is| project| blue|bird|.", "Our| project| is| project| red|.", "Our| project| is| secret|."
)


@pytest.mark.parametrize("sizes", [[], [2] * 9, [20] * 4, [4, 1, 1, 9]])
def test_the_client_sees_one_unbroken_stream(sizes: list[int]) -> None:  # contract 8.3
    teller = Teller(BIRDS, sizes)
    hook = Forbid("project bluebird")
    released = run(teller, hook)
    assert text_of(released) == "Our project is secret."
    assert finish_of(released) == ("stop", None)
    assert [teller.words[i or 0] for i in ids_of(released)] == ["Our", " project", " is", " secret", ".", ""]
    assert [(r.index, r.num_tokens, r.banned) for r in teller.rewinds] == [(0, 3, None)]
    told = {token.raw for d in released for token in d.tokens}
    assert not told & {b" blue", b"bird"}


@pytest.mark.parametrize("sizes", [[], [30]])
def test_hooks_begin_anew_with_what_stands_and_the_old_stream_has_its_last_call(sizes: list[int]) -> None:
    """Contract 8.11."""
    hook = Forbid("project bluebird")
    run(Teller(BIRDS, sizes), hook)
    old, final = hook.finals
    assert (old.aborted, final.aborted) == (not sizes, False), "a chunk that was the last already is the last"
    assert final.text == "Our project is secret."
    assert final.state is not old.state
    first_of_new = next(c for c in hook.chunks if c.state is final.state)
    assert first_of_new.text_diff == "Our project is"


def test_another_observer_is_told_too() -> None:
    observer = Script(lambda chunk: emit(chunk.pending))
    run(Teller(BIRDS), observer, Forbid("project bluebird"), observer)
    for state in {id(c.state): c.state for c in observer.chunks}.values():
        own = [c for c in observer.chunks if c.state is state]
        assert [c.is_final for c in own] == [False] * (len(own) - 1) + [True]
    assert [c.aborted for c in observer.finals] == [True, True, False, False]


def test_given_ids_are_banned_in_place_of_the_token() -> None:  # contract 8.3
    teller = Teller(follow("a| b", "c"))
    secret = teller.id_of("a"), teller.id_of(" b")
    assert text_of(run(teller, Forbid("a b", ban=secret))) == "c"
    assert teller.rewinds[0].banned == secret


def test_a_token_that_a_place_is_inside_of_goes_back_whole() -> None:  # contract 8.3
    teller = Teller(follow("well| then", "well| now"))
    hook = Rewinder(lambda c: at(c, "hen", lambda i: rewind("x", after=i)))
    assert text_of(run(teller, hook)) == "well now"
    assert teller.rewinds[0].num_tokens == 1


def test_text_leaves_in_whole_tokens() -> None:  # contract 8.11
    hook = Rewinder(lambda c: emit(c.pending) if c.is_final else hold(min(1, len(c.pending))))
    released = run(Teller(follow("abc|def|ghi")), hook)
    assert [d.text for d in released if d.text] == ["abc", "def", "ghi"]


def test_what_a_later_hook_holds_goes_back_as_well() -> None:
    """Only text that all hooks have released may leave (contract 3.9)."""
    teller = Teller(follow("one| two| bad", "one| six| good"))
    slow = Script(lambda c: emit(c.pending) if c.is_final else hold(min(3, len(c.pending))))
    assert text_of(run(teller, Forbid("bad"), slow)) == "one six good"
    assert [r.num_tokens for r in teller.rewinds] == [1]


def test_what_another_hook_replaced_goes_back_with_what_it_replaced() -> None:
    number = Script(lambda c: at(c, "1", lambda i: redact([(i, i + 1, "#")])))
    teller = Teller(follow("a|1|b", "a|1|c", "a|2|c"))
    assert text_of(run(teller, number, Forbid("#b"))) == "a2c"
    assert [r.num_tokens for r in teller.rewinds] == [1]


def test_after_so_many_times_it_terminates() -> None:  # contract 8.3
    ways = [f"good |bad{i}" for i in range(9)]
    teller = Teller(follow(*ways, "good |end"))
    assert text_of(run(teller, Forbid("bad"), max_rewinds=9)) == "good end"
    teller = Teller(follow(*ways, "good |end"))
    released = run(teller, Forbid("bad"), max_rewinds=3)
    assert (text_of(released), finish_of(released)) == ("good ", ("content_filter", "phrase"))
    assert len(teller.rewinds) == 3
    assert text_of(run(Teller(follow("good |bad")), Forbid("bad"), max_rewinds=0)) == "good "


def test_the_times_are_counted_over_all_outputs_of_a_request() -> None:
    teller = Teller(follow(*(f"bad{i}" for i in range(9)), "good"))
    released = run(teller, Forbid("bad"), n=3, max_rewinds=4)
    assert [finish_of(released, i)[0] for i in range(3)] == ["content_filter"] * 3
    assert len(teller.rewinds) == 4


def test_an_engine_that_cannot_go_back_makes_it_a_terminate() -> None:  # contract 8.3
    teller = Teller(BIRDS)
    released = run(teller, Forbid("project bluebird"), can_rewind=False)
    assert (text_of(released), finish_of(released)) == ("Our project is ", ("content_filter", "phrase"))
    assert teller.rewinds == []


@pytest.mark.parametrize("sizes", [[], [3] * 3])
@pytest.mark.parametrize("way", ["good |bad", "bad", "<think>|I|bad", "one| two|good |bad"])
def test_an_engine_that_finds_no_other_way_makes_it_a_terminate(way: str, sizes: list[int]) -> None:
    """Contract 8.3, 8.11: also where nothing stands, and on each channel."""
    teller = Teller(follow(way), sizes, parsers=Parsers(reasoning="qwen3"))
    hook, observer = Forbid("bad"), Script(lambda chunk: emit(chunk.pending))
    pipeline = pipeline_of(hook, observer)
    released = asyncio.run(guard_all(pipeline, teller, can_rewind=True))
    said = way.replace("|", "").removesuffix("bad").removeprefix("<think>")
    assert text_of(released) + text_of(released, "reasoning") == said
    assert finish_of(released) == ("content_filter", "phrase")
    assert len(teller.rewinds) == 1
    assert [verdicts_of(pipeline)["hook0"][name] for name in ("rewind", "terminate")] == [1, 1]
    assert all(chunk.aborted for chunk in observer.finals)


@pytest.mark.parametrize("sizes", [[], [5] * 3])
@pytest.mark.parametrize("scope", ["output", "request"])
def test_where_no_other_way_is_left_it_does_as_terminate_would(sizes: list[int], scope: Any) -> None:
    """Contract 3.3, 5.1: later hooks see the closing text, and siblings go on if the scope is the output."""
    teller = Teller(follow("good |bad|.|.", "good |fine|.|."), sizes)
    both = teller.id_of("bad"), teller.id_of("fine")
    forbids = Forbid("bad", text="Sorry.", scope=scope, ban=both)
    first = Rewinder(lambda c: emit(c.pending) if c.output_index else forbids.judge(c))
    later = Script(lambda c: emit(c.pending.replace("Sorry", "Pardon")))
    released = run(teller, first, later, n=2)
    assert text_of(released) == "good Pardon."
    assert finish_of(released) == ("content_filter", "phrase")
    goes_on = scope == "output" or bool(sizes)  # in one piece, the other output has ended before
    assert finish_of(released, 1) == (("stop", None) if goes_on else ("content_filter", "phrase"))


def test_an_output_that_the_engine_filters_by_itself_ends_as_the_engine_says() -> None:
    """Only the end that follows a rewind stands for it."""
    deltas = [Delta(text="one"), Delta(finish_reason="content_filter")]
    released = asyncio.run(guard_all(pipeline_of(Forbid("bad")), deltas, can_rewind=True))
    assert (text_of(released), finish_of(released)) == ("one", ("content_filter", None))


def test_outputs_that_are_chosen_among_candidates_are_never_taken_back() -> None:  # contract 8.3
    request = make_request()
    request = replace(request, sampling=replace(request.sampling, best_of=2))
    pipeline = pipeline_of(Forbid("project bluebird"))
    released = asyncio.run(guard_all(pipeline, Teller(BIRDS), request, can_rewind=True))
    assert finish_of(released) == ("content_filter", "phrase")


def test_what_may_not_rewind_fails_its_request() -> None:  # contract 8.11
    with pytest.raises(HookError):
        run(Teller(BIRDS), Script(lambda c: rewind("x")))


@pytest.mark.parametrize(
    "bad", [rewind("x", after=99), rewind("x", ban=cast(Any, ["a"])), rewind(cast(Any, 3))]
)
def test_a_rewind_that_makes_no_sense_fails_its_request(bad: Verdict) -> None:
    with pytest.raises(HookError):
        run(Teller(BIRDS), Rewinder(lambda c: bad))


def test_in_shadow_it_is_counted_and_has_no_effect() -> None:  # contract 3.15
    pipeline = Pipeline([LoadedHook.of("guard", Forbid("project bluebird"), is_shadow=True)])
    released = asyncio.run(guard_all(pipeline, Teller(BIRDS), can_rewind=True))
    assert text_of(released) == "Our project is project bluebird."
    assert verdicts_of(pipeline)["guard"]["rewind"] == 1


def test_it_is_counted() -> None:
    pipeline = pipeline_of(Forbid("project bluebird"))
    asyncio.run(guard_all(pipeline, Teller(BIRDS), can_rewind=True))
    assert verdicts_of(pipeline)["hook0"]["rewind"] == 1


def test_an_answer_that_ended_can_be_made_to_go_on() -> None:
    """The end of sequence is a token like others: on the last chunk there is nothing else to take back."""
    hook = Rewinder(
        lambda c: rewind("too short") if c.is_final and len(c.text) < 5 and not c.aborted else emit(c.pending)
    )
    teller = Teller(follow("No.", "No.| Never."))
    released = run(teller, hook)
    assert (text_of(released), finish_of(released)) == ("No. Never.", ("stop", None))
    assert [r.num_tokens for r in teller.rewinds] == [1]


def test_where_there_is_nothing_to_take_back_it_terminates() -> None:
    def judge(chunk: Chunk) -> Verdict:
        is_over = chunk.text.endswith("b") and not chunk.aborted
        return rewind("x", after=len(chunk.pending)) if is_over else emit(chunk.pending)

    teller = Teller(follow("a|b|c"))
    released = run(teller, Rewinder(judge))
    assert (text_of(released), finish_of(released)) == ("ab", ("content_filter", "x"))
    assert teller.rewinds == []


def test_siblings_go_on() -> None:  # contract 8.3
    teller = Teller(follow("a| bad| b", "a| good| b"), [1, 1, 1, 3, 1])
    second = Rewinder(
        lambda c: at(c, " bad", lambda i: rewind("x", after=i)) if c.output_index else emit(c.pending)
    )
    released = run(teller, second, n=2)
    assert [text_of(released, index=i) for i in (0, 1)] == ["a bad b", "a good b"]
    assert [finish_of(released, i) for i in (0, 1)] == [("stop", None)] * 2


def test_a_terminate_outweighs_it() -> None:
    ending = Script(lambda c: at(c, "x", lambda i: terminate("over", after=i)))
    for hooks in ([Forbid("bad"), ending], [ending, Forbid("bad")]):
        released = run(Teller(follow("good|x|bad", "good|y"), [3]), *hooks)
        assert (text_of(released), finish_of(released)) == ("good", ("content_filter", "over"))


def test_a_hook_that_says_something_else_of_what_stands_ends_the_request_closed() -> None:  # contract 8.11
    calls = [0]

    def whimsical(chunk: Chunk) -> Verdict:
        calls[0] += chunk.text_diff.startswith("one")
        return emit(chunk.pending) if calls[0] < 2 else emit(chunk.pending.upper())

    released = run(Teller(follow("one| bad", "one| good")), Script(whimsical), Forbid(" bad"))
    assert (text_of(released), finish_of(released)) == ("one", ("content_filter", "phrase"))


@pytest.mark.parametrize("verdict", [terminate("again"), rewind("again"), suppress()])
def test_a_hook_that_stops_at_what_stands_ends_the_request_closed(verdict: Verdict) -> None:
    seen: list[str] = []

    def once(chunk: Chunk) -> Verdict:
        if chunk.aborted:
            return emit(chunk.pending)
        seen.append(chunk.pending)
        return verdict if seen.count("one") > 1 and "one" in chunk.pending else emit(chunk.pending)

    released = run(Teller(follow("one| bad", "one| good")), Rewinder(once), Forbid(" bad"))
    assert text_of(released) == "one"
    assert finish_of(released)[0] == "content_filter"


def test_usage_counts_what_was_withdrawn_unless_told_otherwise() -> None:  # contract 8.3
    teller = Teller(BIRDS)
    released = run(teller, Forbid("project bluebird"))
    assert released[-1].usage is not None
    assert released[-1].usage.completion_tokens == teller.num_generated == 9
    released = run(Teller(BIRDS), Forbid("project bluebird"), usage="released")
    assert released[-1].usage is not None
    assert released[-1].usage.completion_tokens == 6


def test_async_hooks_rewind_as_well() -> None:
    class Later(Forbid):
        async def __call__(self, chunk: Chunk) -> Verdict:  # type: ignore[override]
            await asyncio.sleep(0)
            return super().__call__(chunk)

    assert text_of(run(Teller(BIRDS), Later("project bluebird"))) == "Our project is secret."


@pytest.mark.parametrize("sizes", [[], [2] * 20, [30] * 5])
def test_parsers_begin_anew_as_well(sizes: list[int]) -> None:
    teller = Teller(
        follow(
            "<think>|I know| bluebird|</think>|It is bluebird.",
            "<think>|I know| nothing|</think>|It is| bluebird.",
            "<think>|I know| nothing|</think>|It is| hidden.",
        ),
        sizes,
        parsers=Parsers(reasoning="qwen3"),
    )
    released = run(teller, Forbid(" bluebird"))
    assert text_of(released, "reasoning") == "I know nothing"
    assert text_of(released) == "It is hidden."
    assert finish_of(released) == ("stop", None)
    assert len(teller.rewinds) == 2


TOOLS = ({"type": "function", "function": {"name": "mail", "parameters": {}}},)
CALL = 'Yes.|<tool_call>|{"name": "mail", |"arguments": |{"to": "|'


@pytest.mark.parametrize("sizes", [[], [3] * 20, [30] * 5])
def test_a_call_goes_on_with_other_arguments(sizes: list[int]) -> None:
    """Contract 5.4: a client sees one call, by one name, and arguments that are whole."""
    ways = [f'{CALL}{whom}|"}}|}}</tool_call>' for whom in ("ann", "bob", "us")]
    teller = Teller(follow(*ways), sizes, parsers=Parsers(tool_calls="hermes"))
    pipeline = pipeline_of(Forbid("ann"), Forbid("bob"))
    request = make_request(tools=TOOLS)
    released = asyncio.run(guard_all(pipeline, teller, request, can_rewind=True))
    assert (text_of(released), text_of(released, "tool_call")) == ("Yes.", '{"to": "us"}')
    assert {d.tool_call.name for d in released if d.tool_call} == {"mail"}
    assert {d.tool_call.index for d in released if d.tool_call} == {0}
    assert finish_of(released)[0] == "tool_calls"
    assert len(teller.rewinds) == 2


def test_a_call_that_is_taken_back_whole_never_was() -> None:
    ways = [CALL + 'ann|"}|}</tool_call>', "Yes.| But| no."]
    teller = Teller(follow(*ways), parsers=Parsers(tool_calls="hermes"))
    hook = Rewinder(lambda c: rewind("x") if c.channel == "tool_call" and not c.aborted else emit(c.pending))
    request = make_request(tools=TOOLS)
    released = asyncio.run(guard_all(pipeline_of(hook), teller, request, can_rewind=True))
    assert (text_of(released), finish_of(released)) == ("Yes. But no.", ("stop", None))
    assert not [d for d in released if d.tool_call]
    assert [r.num_tokens for r in teller.rewinds] == [1]


def test_what_lies_before_another_channels_text_that_was_given_cannot_be_taken_back() -> None:
    way = "<think>|I know|</think>|It| is| so."
    teller = Teller(follow(way, way + "| More."), parsers=Parsers(reasoning="qwen3"))

    def judge(chunk: Chunk) -> Verdict:
        if chunk.channel == "content" or chunk.aborted:
            return emit(chunk.pending)
        return rewind("late") if chunk.is_final else hold()

    released = run(teller, Rewinder(judge))
    assert (text_of(released), text_of(released, "reasoning")) == ("It is so.", "")
    assert (finish_of(released), teller.rewinds) == (("content_filter", "late"), [])


def test_where_it_terminates_it_does_as_terminate_would() -> None:
    hook = Forbid("bad", text="Sorry.", scope="output")
    released = run(Teller(follow("good |bad")), hook, n=2, max_rewinds=0)
    assert [text_of(released, index=i) for i in (0, 1)] == ["good Sorry."] * 2
    assert [finish_of(released, i) for i in (0, 1)] == [("content_filter", "phrase")] * 2


def test_alternatives_of_what_it_releases_can_be_withheld() -> None:  # contract 3.13
    released = run(Teller(follow("good | bad", "good | end"), [2]), Forbid(" bad", alternatives=False))
    tops = [bool(token.top) for delta in released for token in delta.tokens if token.text]
    assert (text_of(released), tops) == ("good  end", [False, True])
    released = run(Teller(follow("good | bad"), [2]), Forbid(" bad", alternatives=False), max_rewinds=0)
    assert [token.top for delta in released for token in delta.tokens] == [()]


def words_of(seed: int) -> Callable[[tuple[str, ...]], Sequence[str]]:
    """A model of its own for each seed: some order of a few words, whatever was said."""

    def tell(said: tuple[str, ...]) -> Sequence[str]:
        words = ["a", "b", "ab", "ba", "c😀", "b", ""] if said else ["a", "b", "ba"]
        return sorted(words, key=lambda word: hashlib.sha256(f"{seed} {said} {word}".encode()).digest())

    return tell


class Redact(Script):
    """Replaces every "b" by "B"; invariant, as the others."""

    def __init__(self) -> None:
        super().__init__(
            lambda c: (
                redact([(i, i + 1, "B") for i, x in enumerate(c.pending) if x == "b"])
                if not c.aborted
                else emit(c.pending)
            )
        )


class Hold(Script):
    def __init__(self, n: int) -> None:
        super().__init__(lambda c: emit(c.pending) if c.is_final else hold(min(n, len(c.pending))))


HOOKS: dict[str, Callable[[], list[Any]]] = {
    "alone": lambda: [Forbid("aba")],
    "held": lambda: [Forbid("aba"), Hold(2)],
    "held before": lambda: [Hold(3), Forbid("aba")],
    "two": lambda: [Forbid("aba"), Forbid("bb")],
    "redacted": lambda: [Forbid("aba"), Redact()],
    "redacted before": lambda: [Redact(), Forbid("aBa"), Hold(1)],
}


@pytest.mark.parametrize("hooks", HOOKS)
@examples(60)
@given(seed=st.integers(0, 2**20), sizes=st.lists(st.integers(1, 5), max_size=30), n=st.integers(1, 2))
@example(seed=0, sizes=[], n=1)
def test_however_it_is_cut_a_client_gets_the_same_and_nothing_forbidden(
    hooks: str, seed: int, sizes: list[int], n: int
) -> None:
    outcomes = [played(hooks, seed, cut, n) for cut in ([], sizes)]
    # With several outputs, whose turn it is to rewind depends on the cut, and the times are counted together.
    assert n > 1 or outcomes[0] == outcomes[1]


def played(hooks: str, seed: int, sizes: list[int], n: int) -> Any:
    made = HOOKS[hooks]()
    teller = Teller(words_of(seed), sizes, max_tokens=12)
    released = run(teller, *made, n=n)
    without_last_call = [len({id(c.state) for c in hook.chunks}) - len(hook.finals) for hook in made]
    assert sorted(without_last_call) in ([0] * len(made), [0] * (len(made) - 1) + [1])
    # Contract 2.6: only the hook that itself ended the request gets no last call for that stream.
    assert not any(without_last_call) or "content_filter" in [finish_of(released, i)[0] for i in range(n)]
    outcome = []
    for i in range(n):
        text, finish = text_of(released, index=i), finish_of(released, i)
        assert not any(hook.phrase in text for hook in made if isinstance(hook, Forbid))
        words = [teller.words[j] for j in ids_of(released, i) if j]
        if finish[0] == "content_filter":
            assert finish[1] == "phrase"
        else:
            said = "".join(teller.said[i])
            assert text == (said.replace("b", "B") if "redacted" in hooks else said)
            assert "redacted" in hooks or "".join(words) == text
        outcome.append((text, finish, words))
    return outcome
