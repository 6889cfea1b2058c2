"""Subscribers hear the decisions of all requests, as records (contract 8.14)."""

import logging
from dataclasses import replace

import pytest

from hooks.api.decision import Decision
from proxy.storage.records import Asker, DecisionRecord
from proxy.telemetry.feed import DecisionFeed

ASKER = Asker("acme", "alice", "strict", "r1", "small")
DECISION = Decision(
    request_id="r1",
    user="u",
    model="as-asked",
    endpoint="chat",
    hook="pii",
    action="redact",
    reason="EMAIL",
    offset=3,
    num_withheld=6,
    held_seconds=0.25,
    withheld="zebra7",
)


def heard(feed: DecisionFeed, decision: Decision = DECISION) -> DecisionRecord:
    told: list[DecisionRecord] = []
    end = feed.subscribe(told.append)
    listener = feed.listener(ASKER)
    assert listener is not None
    listener(decision)
    end()
    (record,) = told
    return record


def test_a_record_tells_for_whom_and_under_which_policy() -> None:
    record = heard(DecisionFeed())
    assert record[2:7] == ASKER
    assert (record.hook, record.action, record.reason, record.num_withheld) == ("pii", "redact", "EMAIL", 6)
    assert record.json()["time"].endswith("Z")


def test_withheld_text_is_in_a_record_only_by_the_setting() -> None:
    assert heard(DecisionFeed()).withheld is None
    kept = heard(DecisionFeed(keeps_withheld_text=True))
    assert kept.withheld == "zebra7"
    assert "zebra7" not in str(kept.json())
    assert kept.json(with_text=True)["withheld"] == "zebra7"


def test_a_tools_name_that_the_model_made_up_is_not_told() -> None:
    own = replace(DECISION, channel="tool_call", tool_name="zebra7", is_own_tool=True)
    assert heard(DecisionFeed(keeps_withheld_text=True), own).tool_name is None
    assert heard(DecisionFeed(), replace(own, is_own_tool=False)).tool_name == "zebra7"


def test_while_nobody_subscribes_there_is_no_listener() -> None:
    feed = DecisionFeed()
    assert feed.listener(ASKER) is None
    end = feed.subscribe(lambda record: None)
    assert feed.listener(ASKER) is not None
    end()
    assert feed.listener(ASKER) is None


def test_a_request_may_hear_its_own_decisions_alone() -> None:
    feed, own = DecisionFeed(), list[DecisionRecord]()
    listener, other = feed.listener(ASKER, own.append), feed.listener(ASKER, lambda record: None)
    assert listener is not None
    assert other is not None
    listener(DECISION)
    other(DECISION)
    assert len(own) == 1


def test_a_subscriber_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    feed = DecisionFeed(keeps_withheld_text=True)

    def fails(record: DecisionRecord) -> None:
        raise ValueError(record.withheld)

    feed.subscribe(fails)
    with caplog.at_level(logging.DEBUG):
        heard(feed)
    assert "ValueError" in caplog.text
    assert "zebra7" not in caplog.text
