"""The comparison with other systems counts what a client received, and counts it rightly."""

from typing import Any

import pytest

from benchmarks.peers.client import Received
from benchmarks.peers.upstream import CHANNELS, VALUES, Answer, deltas_of, message_of


def received(answer: Answer, *, is_streaming: bool) -> Received:
    """What a client gets if nothing stands between it and the upstream."""
    client = Received()
    if is_streaming:
        for choice in deltas_of(answer):
            client.add(choice, choice["delta"])
    else:
        choice = message_of(answer)
        client.add(choice, choice["message"])
    return client


@pytest.mark.parametrize("is_streaming", [True, False])
@pytest.mark.parametrize("channel", [channel for channel in CHANNELS if channel != "n=2"])
@pytest.mark.parametrize("value", [value for value in VALUES if value != "none"])
def test_an_unguarded_value_reaches_the_client_whole(value: str, channel: str, is_streaming: bool) -> None:
    for cut in range(5):
        answer = Answer(value, channel, cut)
        assert received(answer, is_streaming=is_streaming).outcome(answer) == "whole"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Here is [redacted] .", "none"),
        ("Here is Project Blue", "part"),
        ("Here is Proje", "none"),
        ("Here is Project Bluebird .", "whole"),
        ("", "absent"),
    ],
)
def test_the_longest_part_of_the_value_counts(text: str, outcome: str) -> None:
    client = Received()
    client.add({"index": 0}, {"content": text})
    assert client.outcome(Answer("phrase", "content", 0)) == outcome


def test_a_value_on_another_channel_counts_too() -> None:
    client = Received()
    logprobs: dict[str, Any] = {"content": [{"token": piece} for piece in ("Project ", "Blue", "bird")]}
    client.add({"index": 0, "logprobs": logprobs}, {"content": "Here is [redacted] ."})
    assert client.outcome(Answer("phrase", "logprobs", 0)) == "whole"
    assert client.outcome(Answer("card", "logprobs", 0)) == "none"


def test_both_outputs_must_come() -> None:
    client = Received()
    client.add({"index": 0}, {"content": "Here is [redacted] ."})
    assert client.outcome(Answer("phrase", "n=2", 0)) == "absent"
    client.add({"index": 1}, {"content": "Here is [redacted] ."})
    assert client.outcome(Answer("phrase", "n=2", 0)) == "none"
