"""The assertions that a guard's tests make."""

from collections.abc import Collection
from contextlib import aclosing

from engine.streams.recording import Recording
from hooks.decisions.failure import HookError
from hooks.loading.coroutines import run
from hooks.loading.given import Hooks, load
from hooks.loading.loader import LoadedHook
from hooks.pipeline.admission import RefusedError
from hooks.testing import leaks
from hooks.testing.difference import Difference, cut_at, failure_of
from hooks.testing.play import Released, opened, play_once, started
from hooks.testing.run_modes import Cut, Mode, Places, all_cuts, logged_once, modes
from hooks.testing.streams import Source, cut, scored, stream_of
from hooks.testing.ways import Attempt, attempts, check_ways, missed_ways


def assert_chunk_invariant(hooks: Hooks, source: Source, *, num_random: int = 50, seed: int = 0) -> None:
    """Fail unless the hooks release the same text and the same end, wherever the stream is cut.

    The measure is the run in which each output, channel and tool call is one chunk. The stream is cut into
    its tokens, into characters, in two at every place (at 400 places if it is longer), and in `num_random`
    ways drawn with `seed`. Each cut is run streaming, not streaming, and behind the protocol of hook workers.
    The message shows the smallest cut that makes a difference.
    """
    __tracebackhide__ = True
    stream = stream_of(source)
    cuts = list(all_cuts(stream, num_random=num_random, seed=seed))
    try:
        with logged_once():
            difference = run(_first_difference(load(hooks), stream, cuts))
    except HookError as error:
        raise AssertionError("a hook fails on the whole stream") from error.__cause__
    except RefusedError as error:
        raise AssertionError(f"{error}, so this proves nothing") from None
    if difference:
        failure = difference.got.failure
        message = f"not the same wherever the stream is cut\n{difference}"
        raise AssertionError(message) from (failure and failure.__cause__)


async def _first_difference(hooks: list[LoadedHook], stream: Recording, cuts: list[Cut]) -> Difference | None:
    """Run every cut in every mode, and return the first difference, with no place more than it needs.
    Raises `HookError` if a hook fails on the whole text, and `RefusedError` if a hook refuses the prompt."""
    whole: Released | None = None
    async with aclosing(modes(hooks, stream)) as all_modes:
        async for mode in all_modes:
            whole = whole or await mode.play(())
            if isinstance(whole.failure, HookError):
                raise whole.failure
            if whole.refused is not None:
                raise RefusedError(whole.refused, stream.request)
            if difference := await _difference(mode, whole, cuts):
                return difference
    return None


async def _difference(mode: Mode, whole: Released, cuts: list[Cut]) -> Difference | None:
    def differs(got: Released) -> bool:
        return got.outcome != whole.outcome

    for places in cuts:
        got = await mode.play(places)
        # If a hook ends the request, the order of the outputs decides how much text the other outputs have.
        if differs(got) and (places is not None or not (_is_ended(whole) or _is_ended(got))):
            places = await mode.smallest(places, differs)
            return Difference(mode.stream, places, mode.where, whole, await mode.play(places))
    return None


def _is_ended(released: Released) -> bool:
    return any(reason == "content_filter" for reason, _ in released.outcome.finishes.values())


def assert_never_released(
    hooks: Hooks,
    source: Source,
    *secrets: str,
    num_random: int = 50,
    seed: int = 0,
    not_tried: Collection[str] = (),
) -> None:
    """Fail if one of `secrets` shows in anything that a client gets, wherever the stream is cut.

    A secret may show in the text of any channel, a closing text, tokens' texts or bytes, a spelling by their
    top alternatives, a tool's name, or a reason. The stream is cut and run as in `assert_chunk_invariant`.
    Then each secret is tried in all `hooks.testing.ways.WAYS`: on the other channels, with escapes, in other
    characters, and over two requests. `not_tried` names ways to leave out.

    The test also fails if it would prove nothing: the stream does not contain a secret, a hook fails, or a
    hook refuses the prompt. Raises `TypeError` without a secret, and `ValueError` for an empty one and for an
    unknown way.
    """
    __tracebackhide__ = True
    if not secrets:
        raise TypeError("assert_never_released() needs one secret or more, after the hooks and the stream")
    if "" in secrets:
        raise ValueError("a secret is empty")
    check_ways(not_tried)
    stream = stream_of(source)
    for secret in secrets:
        if leaks.find(secret, [timed.delta for timed in stream.deltas]) is None:
            raise AssertionError(f"the stream does not contain {secret!r}, so this proves nothing")
    cuts = list(all_cuts(stream, num_random=num_random, seed=seed))
    tried = [one for secret in secrets for one in _attempts(secret, stream, not_tried)]
    with logged_once():
        fault = run(_first_leak(load(hooks), stream, cuts, secrets)) or run(_missed(load(hooks), tried))
    if fault:
        raise fault


def _attempts(secret: str, stream: Recording, not_tried: Collection[str]) -> list[Attempt]:
    """The attempts to get the secret past the hooks. Each hides the secret in another way, in the first text
    of the stream that contains it. There are none if no text contains the whole secret."""
    texts = (timed.delta.text for timed in cut(stream, ()).deltas)
    text = next((text for text in texts if secret in text), None)
    return [] if text is None else attempts(secret, text, request=stream.request, without=not_tried)


async def _missed(hooks: list[LoadedHook], tried: list[Attempt]) -> AssertionError | None:
    """Play all attempts. Returns an error that lists those that delivered a secret to the client, or None."""
    async with started(hooks), opened(hooks) as opener:

        async def play(stream: Recording, places: Places) -> Released:
            return await play_once(opener, cut(scored(stream, hooks), places))

        missed = await missed_ways(play, tried, hooks)
    if not missed:
        return None
    ways = ", ".join(dict.fromkeys(repr(one.attempt.way) for one in missed))
    lines = "\n".join(map(str, missed))
    cause = next((e.__cause__ for one in missed if (e := one.failure)), None)
    return _error(f"{lines}\n(not_tried=[{ways}] leaves these ways out)", cause)


async def _first_leak(
    hooks: list[LoadedHook], stream: Recording, cuts: list[Cut], secrets: tuple[str, ...]
) -> AssertionError | None:
    """The error for the first cut that releases a secret, or proves nothing. None: there is no such cut."""

    def leak_of(released: Released) -> str | None:
        places = ((secret, leaks.find(secret, released.deltas)) for secret in secrets)
        return next((f"{secret!r} is released: in {place}" for secret, place in places if place), None)

    async with aclosing(modes(hooks, stream)) as all_modes:
        async for mode in all_modes:
            for places in cuts:
                released = await mode.play(places)
                if leak := leak_of(released):
                    fewer = await mode.smallest(places, leak_of)
                    return AssertionError(f"{leak}, {cut_at(fewer)} ({mode.where})")
                if fault := _incomplete(released, f"{cut_at(places)} ({mode.where})"):
                    return fault
    return None


def _incomplete(released: Released, how: str) -> AssertionError | None:
    """The error for a run that ended before the stream did. None: it did not."""
    if isinstance(released.failure, HookError):
        message = f"a hook fails, {how}, so this proves nothing: {failure_of(released)}"
        return _error(message, released.failure.__cause__)
    if released.refused is not None:
        return AssertionError(f"the prompt was refused: {released.refused}, so this proves nothing")
    return None


def _error(message: str, cause: BaseException | None) -> AssertionError:
    error = AssertionError(message)
    error.__cause__ = cause
    return error
