"""The result of a replay: the part that must not change, the lines that differ, and the report."""

from typing import Any

from engine.protocol import Delta, Token, ToolCall
from hooks.decisions.failure import HookError
from hooks.testing import Judgement, Released
from proxy.cli.replays.snapshot import VERSION, changes, failure_of, outputs_of, report, snapshot

SAID = Released(
    (Delta(text="My secret", tokens=(Token(1, "My"), Token(2, " secret"))), Delta(finish_reason="stop"))
)


def judged(action: str, pending: str = "secret", start: int = 3, **fields: Any) -> Judgement:
    return Judgement("Guard", 0, "content", None, action, pending, start, **fields)


def released(text: str, *judgements: Judgement, **fields: Any) -> Released:
    return Released(
        (Delta(text=text, tokens=(Token(1, text),)), Delta(finish_reason="stop")), judgements, **fields
    )


def test_each_output_has_its_streams_its_tokens_and_its_end() -> None:
    call = ToolCall(0, "send")
    deltas = (
        Delta(text="a", channel="reasoning", tokens=(Token(1, "a"),)),
        Delta(text="b", index=1, tokens=(Token(2, "b"),)),
        Delta(text="c", tokens=(Token(3, "c"),)),
        Delta(text="{}", channel="tool_call", tool_call=call),
        Delta(finish_reason="stop", stop_reason="END"),
    )
    first, second = outputs_of(Released(deltas))
    assert [(one["channel"], one["tool"], one["text"]) for one in first["streams"]] == [
        ("reasoning", None, "a"),
        ("content", None, "c"),
        ("tool_call", "send", "{}"),
    ]
    assert (first["num_tokens"], first["finish_reason"], first["stop_reason"]) == (2, "stop", "END")
    assert (second["num_tokens"], second["finish_reason"]) == (1, None)


def test_a_snapshot_has_only_verdicts_that_change_the_text() -> None:
    hidden = judged("redact", spans=((3, 9, "***"),), num_held=2)
    result = snapshot(released("My ***", judged("hold", num_held=6), hidden, judged("emit")))
    assert result["version"] == VERSION
    (verdict,) = result["verdicts"]
    assert verdict["spans"] == [[3, 9, "***"]]
    assert not {"pending", "held"} & verdict.keys()


def test_cuts_and_holds_are_no_change() -> None:
    before = snapshot(released("My ***", judged("redact", spans=((3, 9, "***"),))))
    held = judged("redact", "My secret", 0, spans=((3, 9, "***"),), num_held=1)
    assert changes(before, snapshot(released("My ***", judged("hold"), held))) == []


def test_old_and_new_lines_are_marked() -> None:
    before = snapshot(released("My ***", judged("redact", spans=((3, 9, "***"),), reason="key")))
    assert changes(before, snapshot(released("My secret"))) == [
        "- | My ***",
        "+ | My secret",
        "- Guard, content: redact 3-9 → '***' key",
    ]


def test_a_failure_names_its_cause_by_type() -> None:
    error = HookError("Guard")
    assert failure_of(released("")) is None
    assert failure_of(released("", failure=error)) == str(error)
    error.__cause__ = KeyError("a secret")
    assert failure_of(released("", failure=error)) == f"{error} (KeyError)"


def test_a_report_shows_both_texts_and_joins_quiet_verdicts() -> None:
    verdicts = (
        judged("hold", "My", 0, num_held=2),
        judged("hold", "My s", 0, num_held=4),
        judged("redact", spans=((3, 9, "***"),), reason="key"),
        judged("suppress", is_shadow=True),
    )
    assert list(report(SAID, released("My ***", *verdicts))) == [
        "output 0, content",
        "  model  | My secret",
        "  client | My ***",
        "output 0 ended: stop; 1 of 2 tokens",
        "Guard, content of output 0",
        "  hold      0-4  ×2, at most 4 characters",
        "  redact    3-9  'secret' → '***'  key",
        "  would suppress 3-9",
    ]


def test_an_output_that_was_withheld_is_reported_as_cut_short() -> None:
    lines = list(report(SAID, Released((), failure=HookError("Guard"))))
    assert lines[1:3] == ["  model  | My secret", "  client | "]
    assert lines[3] == "output 0 ended: cut short; 0 of 2 tokens"
    assert lines[-1].startswith("failed: ")
