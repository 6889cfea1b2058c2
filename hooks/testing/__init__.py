"""The kit that guards are tested with. The pytest plugin (`pytest_weir`) has the same as fixtures.

    from hooks.testing import assert_chunk_invariant, assert_never_released, play

    def test_the_name_is_withheld():
        said = "Its name is Project Bluebird."
        assert play(NoName, said).content == "Its name is [withheld]."
        assert_chunk_invariant(NoName, said)
        assert_never_released(NoName, said, "Bluebird")

Hooks are an import path, a `HookSpec` (a path with arguments), a class, an instance, or several of these as a
pipeline. The model's words are a text, a list of tokens, the `Path` of a recording, or a stream of
`stream_of`.
"""

from engine.streams.recording import Recording
from hooks.loading.loader import HookSpec
from hooks.testing.assertions import assert_chunk_invariant, assert_never_released
from hooks.testing.play import PlayedCall, Released, play
from hooks.testing.probe import Judgement
from hooks.testing.streams import stream_of
from hooks.testing.ways import WAYS

__all__ = [
    "WAYS",
    "HookSpec",
    "Judgement",
    "PlayedCall",
    "Recording",
    "Released",
    "assert_chunk_invariant",
    "assert_never_released",
    "play",
    "stream_of",
]
