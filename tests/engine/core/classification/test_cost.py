"""The cost of a judgement: its new tokens, as the engine counts them."""

import pytest

from tests.engine.core.classification.cores import Classified
from tests.engine.device.classifiers import GuardModel
from tests.engine.device.decoders import prompts_of
from tests.helpers import slow

LENGTH = 2048
BLOCK = 16


@pytest.mark.parametrize("window", [slow(1), 7, 16, 32])
def test_a_stream_of_2048_tokens_is_computed_once(window: int, guard: GuardModel) -> None:
    (ids,) = prompts_of(LENGTH)
    classifier = Classified(guard.path, block_size=BLOCK)
    text = classifier.open()
    for at in range(0, LENGTH, window):
        classifier.feed(text, ids[at : at + window])
    assert classifier.num_computed == LENGTH


def test_tokens_that_are_taken_back_cost_at_most_a_block_a_judgement(guard: GuardModel) -> None:
    """The last token of a text is often another one once the text goes on."""
    (ids,) = prompts_of(LENGTH)
    classifier = Classified(guard.path, block_size=BLOCK)
    text = classifier.open()
    num_fed = num_judgements = 0
    for at in range(0, LENGTH, 32):
        piece = [*ids[at : at + 32], 5, 6]
        classifier.feed(text, piece)
        classifier.core.truncate(text, at + len(piece) - 2)
        num_fed += len(piece)
        num_judgements += 1
    assert classifier.num_computed <= 1.05 * (num_fed + BLOCK * num_judgements)
    assert classifier.num_computed == num_fed


@pytest.mark.slow
def test_judging_from_scratch_every_32_tokens_computes_25_times_as_many(guard: GuardModel) -> None:
    (ids,) = prompts_of(LENGTH)
    growing = Classified(guard.path)
    from_scratch = Classified(guard.path, enable_prefix_caching=False)
    text = growing.open()
    for at in range(32, LENGTH + 1, 32):
        found = growing.feed(text, ids[at - 32 : at])
        whole = from_scratch.open()
        again = from_scratch.feed(whole, ids[:at])
        from_scratch.close(whole)
        assert (found[-1] - again[-1]).abs().max() < 1e-4
    assert from_scratch.num_computed >= 25 * growing.num_computed
