"""Answers that are not streamed."""

import pytest

from engine.protocol import Delta
from proxy.wire.openai.answer import ChoicesAnswer
from tests.helpers import ScriptedEngine, make_deltas
from tests.proxy.conftest import CHAT, Serve


@pytest.mark.parametrize("text", ["a", "b"], ids=["first", "later"])
async def test_a_delta_that_cannot_be_added_fails_the_request(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A second try could succeed with half of the delta added twice."""
    fold, failed = ChoicesAnswer.fold, list[Delta]()

    def fail_once(self: ChoicesAnswer, delta: Delta) -> None:
        if delta.text == text and not failed:
            failed.append(delta)
            raise ValueError
        fold(self, delta)

    monkeypatch.setattr(ChoicesAnswer, "fold", fail_once)
    client = await serve(ScriptedEngine(lambda _: make_deltas(["a", "b", "c"])))
    status, _, _ = await client.post("/v1/chat/completions", CHAT)
    assert (status, len(failed)) == (500, 1)
