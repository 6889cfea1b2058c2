"""The texts that the fuzzer draws."""

from hypothesis import given
from hypothesis import strategies as st

from hooks.testing.fuzzing.texts import disguised, nearly, runs, texts


@given(texts(["hunter2"]))
def test_every_text_can_be_sent(text: str) -> None:
    text.encode()


@given(st.data())
def test_a_phrase_is_drawn_in_disguise_almost_and_repeated(data: st.DataObject) -> None:
    assert data.draw(disguised("word")) != "word"
    assert set(data.draw(nearly("word"))) <= set("wordx")
    assert set(data.draw(runs("word"))) <= set("word")
