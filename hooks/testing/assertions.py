"""What a guard's tests assert."""

from engine.recording import Recording
from hooks.admission import RefusedError
from hooks.loader import LoadedHook
from hooks.stage import HookError
from hooks.testing import leaks
from hooks.testing.cuts import all_cuts
from hooks.testing.difference import cut_at, first_difference
from hooks.testing.play import Hooks, closing, load, opened, play_once
from hooks.testing.streams import Source, cut, stream_of
from hooks.testing.sync import run


def assert_chunk_invariant(hooks: Hooks, source: Source, *, num_random: int = 50, seed: int = 0) -> None:
    """Fails unless the hooks release the same, and end it the same, wherever the stream is cut, as where each
    output, channel and tool call is one chunk.

    It is cut in two at every place, into its tokens, into characters and in `num_random` ways drawn with
    `seed`; each is run streaming and not, and behind the protocol of hook workers. The message shows the
    smallest cut that tells.
    """
    __tracebackhide__ = True
    stream = stream_of(source)
    cuts = all_cuts(stream, num_random=num_random, seed=seed)
    try:
        difference = run(first_difference(load(hooks), stream, cuts))
    except HookError as error:
        raise AssertionError("a hook fails on the whole stream") from error.__cause__
    except RefusedError as error:
        raise AssertionError(f"{error}, so this proves nothing") from None
    if difference:
        failure = difference.got.failure
        message = f"not the same wherever the stream is cut\n{difference}"
        raise AssertionError(message) from (failure and failure.__cause__)


def assert_never_released(hooks: Hooks, source: Source, *secrets: str) -> None:
    """Fails if one of `secrets` shows in anything that a client gets, wherever the stream is cut: in the text
    of any channel, a closing text, tokens' texts or bytes, what their alternatives could spell, a tool's
    name, or a reason. Fails as well if the stream itself never says it: that would prove nothing.
    """
    __tracebackhide__ = True
    stream = stream_of(source)
    for secret in secrets:
        if leaks.find(secret, [timed.delta for timed in stream.deltas]) is None:
            raise AssertionError(f"the stream never says {secret!r}, so this proves nothing")
    if leak := run(_first_leak(load(hooks), stream, secrets)):
        raise AssertionError(leak)


async def _first_leak(hooks: list[LoadedHook], stream: Recording, secrets: tuple[str, ...]) -> str | None:
    async with closing(hooks), opened(hooks) as opener:
        for places in all_cuts(stream):
            released = await play_once(opener, cut(stream, places))
            if released.refused is not None:
                return f"the prompt was refused: {released.refused}, so this proves nothing"
            for secret in secrets:
                if place := leaks.find(secret, released.deltas):
                    return f"{secret!r} is released: in {place}, {cut_at(places)}"
    return None
