"""After a rewind, an output comes again from its beginning, with positions on its tokens (contract 8.3)."""

from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, Rewind, Usage
from engine.streams.flow import Stage
from engine.streams.rewindable import Rewindable
from tests.engine.streams.stages import Answer
from tests.helpers import examples, make_token


class Before(Stage):
    """The stage before: keeps the rewinds."""

    def __init__(self) -> None:
        self.rewinds: list[Rewind] = []

    def rewind(self, rewind: Rewind) -> None:
        self.rewinds.append(rewind)


STEPS = st.tuples(
    st.integers(0, 1),
    st.lists(st.sampled_from(["", "a", "bc"]), max_size=3),
    st.lists(st.integers(0, 9), max_size=2),
)


@given(st.lists(STEPS, max_size=8))
@examples(300)
def test_the_kept_tokens_come_again_before_the_next_ones(
    steps: list[tuple[int, list[str], list[int]]],
) -> None:
    """Each step is a delta of an output, and rewinds of this output after the delta."""
    stage, before, answer = Rewindable(), Before(), Answer()
    stage.next, stage.source = answer, before
    said: tuple[list[str], list[str]] = [], []
    num_fed = [0, 0]  # tokens of the output that the next stage has, counted from its last start
    rewinds: list[Rewind] = []
    for index, texts, keeps in steps:
        answer.deltas.clear()
        tokens = tuple(make_token(text, 7) for text in texts)
        stage.feed(Delta(index=index, text="".join(texts), tokens=tokens, usage=Usage(1, 1)))
        said[index].extend(texts)
        fed = [(token.text, token.position) for delta in answer.deltas for token in delta.tokens]
        assert fed == [*zip(said[index], range(len(said[index])), strict=True)][num_fed[index] :]
        assert "".join(delta.text for delta in answer.deltas) == "".join(text for text, _ in fed)
        assert {delta.index for delta in answer.deltas} == {index}
        assert [delta.usage for delta in answer.deltas] == [*[None] * (len(answer.deltas) - 1), Usage(1, 1)]
        num_fed[index] = len(said[index])
        for keep in keeps:
            del said[index][keep:]
            num_fed[index] = 0
            rewinds.append(Rewind(index, len(said[index])))
            stage.rewind(rewinds[-1])
        assert before.rewinds == rewinds
