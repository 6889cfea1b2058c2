"""Answers on a terminal and in a pipe."""

import io
import os

import pytest

from proxy.cli.dialogue.client import ChatEvent, DecisionMade, Ended, Text, TextHeld, ToolCall
from proxy.cli.dialogue.screen import Screen
from proxy.cli.dialogue.terminal import harmless

RECORD = {
    "hook": "pii",
    "action": "redact",
    "reason": "email",
    "num_withheld": 11,
    "held_seconds": 0.31,
    "mode": "enforce",
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(*events: ChatEvent) -> str:
    """On a terminal without colours."""
    terminal = Terminal()
    screen = Screen(terminal, io.StringIO())
    for event in events:
        screen.show(event)
    return terminal.getvalue()


def piped(*events: ChatEvent) -> tuple[str, str]:
    out, notes = io.StringIO(), io.StringIO()
    screen = Screen(out, notes)
    for event in events:
        screen.show(event)
    return out.getvalue(), notes.getvalue()


@pytest.fixture(autouse=True)
def terminal_of_40_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")


END = Ended("stop", None)
CALL = (ToolCall(0, "c1", "look", '{"a"'), ToolCall(0, "", "", ": 1}"), ToolCall(1, "c2", "go", "{}"))


def test_everything_stands_in_its_place() -> None:
    assert (
        shown(
            Text("reasoning", "hm"),
            Text("content", "It is "),
            DecisionMade(RECORD),
            Text("content", "[x]"),
            END,
        )
        == "hm\nIt is [pii: redact 11 characters, email, held 0.3 s][x]\n"
    )


def test_tool_calls_stand_on_lines_of_their_own() -> None:
    assert shown(Text("content", "So:"), *CALL, Ended("tool_calls", None)) == 'So:\nlook({"a": 1})\ngo({})\n'


def test_a_pipe_gets_the_content_alone() -> None:
    out, notes = piped(
        Text("reasoning", "hm"),
        Text("content", "a\x1b[31m"),
        DecisionMade(RECORD),
        Text("content", "b"),
        *CALL,
        Ended("length", None),
    )
    assert out == "a\x1b[31mb\n"
    assert notes == ('hm\n[pii: redact 11 characters, email, held 0.3 s]\nlook({"a": 1})\ngo({})\n[length]\n')


def test_what_ended_an_answer_is_said_unless_it_is_the_model() -> None:
    assert shown(Text("content", "a"), Ended("content_filter", "toxic")) == "a\n[content_filter: toxic]\n"
    assert shown(Text("content", "a"), END) == "a\n"


def test_shadow_decisions_say_what_would_have_been() -> None:
    assert shown(DecisionMade({**RECORD, "mode": "shadow", "num_withheld": 1, "held_seconds": 0})) == (
        "[pii: would redact 1 character, email]"
    )


def test_a_hold_is_told_only_if_a_reader_can_notice_it() -> None:
    hold = {"hook": "pii", "action": "hold", "num_withheld": 0, "held_seconds": 0.01}
    assert shown(DecisionMade(hold)) == ""
    assert shown(DecisionMade({**hold, "held_seconds": 0.5})) == "[pii: hold, held 0.5 s]"
    assert shown(DecisionMade({**hold, "num_withheld": 3, "reason": "aborted"})) == (
        "[pii: hold 3 characters, aborted]"
    )


def test_judging_is_told_only_if_text_was_out_unjudged() -> None:
    judged = {"hook": "judge", "action": "judged", "num_judged": 9, "max_unjudged": 0, "held_seconds": 0}
    assert shown(DecisionMade(judged)) == ""
    assert (
        shown(DecisionMade({**judged, "max_unjudged": 4})) == "[judge: judged 9 tokens, up to 4 out unjudged]"
    )


def test_held_text_is_marked_until_something_follows() -> None:
    text = shown(Text("content", "a"), TextHeld("pii", 3), TextHeld("pii", 12), Text("content", "b"), END)
    assert text == "a[pii holds 3]\x1b[13D\x1b[K[pii holds 12]\x1b[14D\x1b[Kb\n"


@pytest.mark.parametrize("before", ["x" * 30, "中" * 15, "x" * 41 + "中" * 14])
def test_a_mark_that_has_no_room_on_its_line_is_not_shown(before: str) -> None:
    assert shown(Text("content", before), TextHeld("pii", 3)) == before


def test_characters_without_a_width_take_no_room() -> None:
    assert "holds" in shown(Text("content", "e\u0301" * 20), TextHeld("pii", 3))


def test_a_terminal_that_changed_its_width_gets_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    screen = Screen(terminal, io.StringIO())
    screen.show(Text("content", "abc"))
    monkeypatch.setenv("COLUMNS", "20")
    screen.show(TextHeld("pii", 3))
    assert terminal.getvalue() == "abc"
    screen.show(Text("content", "\nabc"))
    screen.show(TextHeld("pii", 3))
    assert terminal.getvalue().endswith("[pii holds 3]")


CLIPBOARD = "\x1b]52;c;cm0gLXJm\x07"


@pytest.mark.parametrize(
    "text", [CLIPBOARD, "\x9b2J", "\x1b[2J", "a\rb", "\x08\x08", "\x7f", "\x0e", "\x85", "\u202e", "\u2067"]
)
def test_a_terminal_is_sent_no_control_character_of_a_model(text: str) -> None:
    call = ToolCall(0, "c", text, text)
    decision = DecisionMade({**RECORD, "hook": text, "reason": text, "withheld": text})
    for event in (Text("content", text), Text("reasoning", text), call, decision, Ended(text, text)):
        written = shown(event)
        assert all(c == "\n" or c.isprintable() for c in written), repr(written)
    mark = shown(TextHeld(text, 3))
    assert all(c == "\n" or c.isprintable() for c in mark)


def test_ends_of_lines_tabs_and_every_script_stay() -> None:
    text = "a\n\tb é 中 👩‍👩‍👧 ‏שלום"
    assert harmless(text) == text


def test_colours_are_reset_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(os.environ, "NO_COLOR")
    assert shown(Text("reasoning", "hm"), END) == "\x1b[0;2mhm\x1b[0m\n"
