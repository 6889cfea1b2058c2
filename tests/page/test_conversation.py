"""The conversation: edited, recalled, undone, kept over a reload, saved, and answered twice side by side."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.streams.recording import Recording
from tests.page.conftest import Open, faults
from tests.page.fake_server import FakeServer, Wire
from tests.page.test_chat import ask, ask_and_wait, error, panel, redacting
from tests.weir import run_weir

pytestmark = pytest.mark.slow


async def echoes(wire: Wire) -> None:
    """Says the last message again, in two pieces."""
    said = wire.body["messages"][-1]["content"]
    await wire.text(f"You said {said[:2]}")
    await wire.text(f"{said[2:]}.")
    await wire.end()


def message(page: Any) -> Any:
    return page.get_by_label("Message", exact=True)


def texts(page: Any) -> list[str]:
    return page.locator(".said, .content .text").all_inner_texts()


def test_a_message_is_edited_and_sent_again_without_what_followed(fake: FakeServer, open_page: Open) -> None:
    fake.script = echoes
    page = open_page(fake.url)
    for text in ("one", "two", "three"):
        ask_and_wait(page, text)
    page.get_by_role("button", name="Edit this message").nth(1).click()
    assert message(page).input_value() == "two"
    assert page.get_by_text("This replaces your message and all that follows it.").is_visible()
    assert faults(page) == []
    page.keyboard.press("Escape")
    assert message(page).input_value() == ""
    page.get_by_role("button", name="Edit this message").nth(1).click()
    ask_and_wait(page, "2")
    assert texts(page) == ["one", "You said one.", "2", "You said 2."]
    assert [one["content"] for one in fake.bodies[-1]["messages"]] == ["one", "You said one.", "2"]
    assert not page.get_by_text("This replaces your message").is_visible()


def test_the_arrows_bring_earlier_messages_back(fake: FakeServer, open_page: Open) -> None:
    fake.script = echoes
    page = open_page(fake.url)
    for text in ("one", "two"):
        ask_and_wait(page, text)
    box = message(page)
    found = []
    for key in ("ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown", "ArrowDown"):
        box.press(key)
        found.append(box.input_value())
    assert found == ["two", "one", "one", "two", ""]
    box.fill("my own")
    box.press("ArrowUp")
    assert box.input_value() == "my own"


def test_a_new_chat_can_be_undone_until_a_message_is_sent(fake: FakeServer, open_page: Open) -> None:
    fake.script = redacting
    page = open_page(fake.url)
    ask_and_wait(page, "one")
    page.get_by_role("button", name="New chat").click()
    assert texts(page) == []
    assert page.get_by_role("heading", name="Watch a guard work").is_visible()
    assert faults(page) == []
    page.get_by_role("button", name="Undo").click()
    assert texts(page) == ["one", "Write to [EMAIL], please."]
    page.get_by_role("button", name=re.compile("Redacted by pii")).click()  # its marks work still
    assert page.get_by_role("dialog", name="Redacted").is_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="New chat").click()
    ask_and_wait(page, "two")
    assert not page.get_by_role("button", name="Undo").is_visible()
    assert [one["content"] for one in fake.bodies[-1]["messages"]] == ["two"]


def test_reasoning_folds_unless_a_guard_acted_in_it_or_the_reader_opened_it(
    fake: FakeServer, open_page: Open
) -> None:
    async def with_mark(wire: Wire) -> None:
        await wire.text("Let me ", "reasoning")
        await wire.decision(action="suppress", channel="reasoning", offset=7, num_withheld=3)
        await wire.text("see.", "reasoning")
        await wire.text("So.")
        await wire.end()

    seen, opened = asyncio.Event(), []

    async def slow(wire: Wire) -> None:
        opened.append(asyncio.get_running_loop())
        await wire.text("Hm, hm.", "reasoning")
        await seen.wait()
        await wire.text("So.")
        await wire.end()

    fake.script = with_mark
    page = open_page(fake.url)
    assert ask_and_wait(page).locator(".reasoning .mark").is_visible()
    fake.script = slow
    ask(page)
    reasoning = page.locator(".reasoning").last
    reasoning.get_by_text("Hm, hm.").wait_for()  # while it comes, it is read
    reasoning.get_by_text("Reasoning").click()
    reasoning.get_by_text("Reasoning").click()
    opened[0].call_soon_threadsafe(seen.set)
    page.get_by_role("button", name="Send").wait_for()
    assert reasoning.get_by_text("Hm, hm.").is_visible()


def test_a_reader_who_scrolled_up_jumps_to_the_newest(fake: FakeServer, open_page: Open) -> None:
    async def long(wire: Wire) -> None:
        await wire.text("A line.\n\n" * 100)
        await wire.end()

    fake.script = long
    page = open_page(fake.url)
    ask_and_wait(page)
    jump = page.get_by_role("button", name="Jump to the newest")
    jump.wait_for(state="hidden")
    page.locator("#transcript").evaluate("one => { one.scrollTop = 0; }")
    jump.wait_for()
    assert faults(page) == []
    jump.click()
    jump.wait_for(state="hidden")
    distance = "one => one.scrollHeight - one.scrollTop - one.clientHeight"
    assert page.locator("#transcript").evaluate(distance) < 2


def test_who_scrolled_up_stays_there_while_text_comes(fake: FakeServer, open_page: Open) -> None:
    more = asyncio.Event()
    loops = []

    async def long(wire: Wire) -> None:
        loops.append(asyncio.get_running_loop())
        await wire.text("A line.\n\n" * 100)
        await more.wait()
        await wire.text("A line.\n\n" * 100)
        await wire.end()

    fake.script = long
    page = open_page(fake.url)
    ask(page)
    page.locator(".answer .paragraph").nth(99).wait_for()
    page.locator("#transcript").evaluate("one => { one.scrollTop = 0; }")
    page.get_by_role("button", name="Jump to the newest").wait_for()
    loops[0].call_soon_threadsafe(more.set)
    page.get_by_role("button", name="Send").wait_for()
    assert page.locator("#transcript").evaluate("one => one.scrollTop") == 0


def test_a_conversation_survives_a_reload(fake: FakeServer, open_page: Open) -> None:
    async def tells(wire: Wire) -> None:
        await wire.text("Hm.", "reasoning")
        token = {"token": "Hi ", "logprob": -0.5, "bytes": [], "top_logprobs": []}
        await wire.chunk({"content": "Hi "}, logprobs={"content": [token], "refusal": None})
        await wire.decision(
            reason="email",
            offset=3,
            num_withheld=15,
            num_released=7,
            held_seconds=0.25,
            withheld="ann@initech.org",
        )
        await wire.text("[EMAIL].")
        await wire.end()

    fake.script = tells
    page = open_page(fake.url)
    ask_and_wait(page, "one")
    facts = page.locator(".facts").inner_text()
    fake.refusal = lambda _: error(503, "Not now.")
    ask_and_wait(page, "two")
    before = page.locator("#turns").inner_text()
    page.reload()
    assert page.locator("#turns").inner_text() == before
    assert page.locator(".facts").first.inner_text() == facts
    mark = page.get_by_role("button", name=re.compile("Redacted by pii"))
    assert mark.inner_text() == "[EMAIL]"
    mark.click()
    assert "250 ms" in page.get_by_role("dialog", name="Redacted").inner_text()
    page.keyboard.press("Escape")
    # The browser may write it to its disk.
    assert "ann@initech.org" not in page.evaluate("JSON.stringify(sessionStorage)")
    page.get_by_role("button", name="Raw stream").first.click()
    assert "61 %" in page.locator("#raw-rows").inner_text()
    if page.get_by_role("button", name="Close the panel").is_visible():
        page.get_by_role("button", name="Close the panel").click()
    fake.refusal = lambda _: None
    ask_and_wait(page, "three")
    assert [one["content"] for one in fake.bodies[-1]["messages"]] == ["one", "Hi [EMAIL].", "three"]
    assert faults(page) == []


def test_an_answer_that_a_reload_cut_says_so(fake: FakeServer, open_page: Open) -> None:
    async def endless(wire: Wire) -> None:
        await wire.text("One and ")
        await asyncio.Event().wait()

    fake.script = endless
    page = open_page(fake.url)
    ask(page)
    page.locator(".answer").get_by_text("One and").wait_for()
    page.reload()
    answer = page.get_by_role("article").last
    assert "One and" in answer.inner_text()
    assert "The stream was cut." in answer.inner_text()


def test_a_conversation_that_the_browser_has_no_room_for_loses_tokens_and_then_old_turns(
    fake: FakeServer, open_page: Open
) -> None:
    top = [{"token": "x" * 1000, "logprob": -0.5, "bytes": []}] * 3

    async def heavy(wire: Wire) -> None:
        token = {"token": "word ", "logprob": -0.5, "bytes": [], "top_logprobs": top}
        for _ in range(2000):
            await wire.chunk({"content": "word "}, logprobs={"content": [token], "refusal": None})
        await wire.end()

    fake.script = heavy
    page = open_page(fake.url)
    page.set_default_timeout(60_000)
    ask_and_wait(page, "one")
    page.reload()
    assert page.locator(".content .text").evaluate("one => one.textContent") == "word " * 2000

    async def huge(wire: Wire) -> None:
        for _ in range(60):
            await wire.text("y" * 100_000)
        await wire.end("content_filter")

    fake.script = huge
    ask_and_wait(page, "two")
    fake.script = echoes
    ask_and_wait(page, "three")
    page.reload()
    assert texts(page) == ["three", "You said three."]


def test_a_conversation_is_saved_as_json(fake: FakeServer, open_page: Open, tmp_path: Path) -> None:
    fake.script = redacting
    page = open_page(fake.url)
    panel(page, "Setup")
    page.get_by_label("System prompt").fill("Be brief.")
    if page.get_by_role("button", name="Close the panel").is_visible():
        page.get_by_role("button", name="Close the panel").click()
    ask_and_wait(page, "one")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as JSON").click()
    assert download.value.suggested_filename == "weir-chat.json"
    file = tmp_path / "weir-chat.json"
    download.value.save_as(file)
    (turn,) = json.loads(file.read_text())["turns"]
    (answer,) = turn["answers"]
    assert (turn["message"], answer["content"]) == ("one", "Write to [EMAIL], please.")
    assert (answer["model"], answer["system"], answer["finish_reason"]) == ("m", "Be brief.", "stop")
    assert [one["action"] for one in answer["decisions"]] == ["redact", "hold"]
    ended = run_weir("replay", file)
    assert "this is a conversation that the page saved, and no recording" in ended.stderr


def test_an_answer_is_saved_as_a_recording_that_weir_replay_reads(
    fake: FakeServer, open_page: Open, tmp_path: Path
) -> None:
    async def script(wire: Wire) -> None:
        await wire.text("Let me see.", "reasoning")
        await wire.text("Write to ann@ini")
        await wire.text("tech.org")
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": "look", "arguments": '{"a":'}}
        await wire.chunk({"tool_calls": [call]})
        await wire.chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]})
        await wire.end()

    fake.script = echoes
    page = open_page(fake.url)
    ask_and_wait(page, "one")
    fake.script = script
    answer = ask_and_wait(page, "two")
    with page.expect_download() as download:
        answer.get_by_role("button", name="Save a recording for weir replay").click()
    assert download.value.suggested_filename == "chatcmpl-1.jsonl"
    file = tmp_path / "answer.jsonl"
    download.value.save_as(file)
    recording = Recording.load(file)
    assert [one["content"] for one in recording.request.messages] == ["one", "You said one.", "two"]
    assert recording.request.sampling.temperature == 0
    deltas = [timed.delta for timed in recording.deltas]
    assert [(one.channel, one.text) for one in deltas] == [
        ("reasoning", "Let me see."),
        ("content", "Write to ann@ini"),
        ("content", "tech.org"),
        ("tool_call", '{"a":'),
        ("tool_call", "1}"),
        ("content", ""),
    ]
    assert (deltas[3].tool_call.name, deltas[-1].finish_reason) == ("look", "stop")
    told = subprocess.run(
        [sys.executable, "-m", "proxy", "replay", str(file), "--hook", "pii"],
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )
    assert "client | Write to [EMAIL_ADDRESS]" in told.stdout


def test_two_answers_to_one_message_stream_at_once_side_by_side(
    fake: FakeServer, open_page: Open, size: tuple[int, int]
) -> None:
    both: list[Wire] = []
    here = asyncio.Event()

    async def script(wire: Wire) -> None:
        both.append(wire)
        if len(both) == 2:
            here.set()
        await here.wait()  # each waits for the other: they run at once
        await wire.text(f"I am {wire.body['model']}.")
        await wire.end()

    fake.script = script
    page = open_page(fake.url)
    panel(page, "Setup")
    page.get_by_role("switch", name="repetition").check()
    page.get_by_label("Side by side with").select_option("other")
    page.get_by_text("Policy strict: pii, trial.").wait_for()
    page.get_by_label("Key of the second answer").fill("k2")
    page.get_by_label("Key of the second answer").press("Tab")
    page.get_by_text("Policy strict: pii, trial.").wait_for()  # it is asked for anew, with the key
    assert faults(page) == []
    if page.get_by_role("button", name="Close the panel").is_visible():
        page.get_by_role("button", name="Close the panel").click()
    ask_and_wait(page, "Hello")
    answers = page.locator(".answer")
    assert answers.get_by_role("heading", level=2).all_inner_texts() == [
        "m, policy strict, repetition",
        "other, policy strict",
    ]
    assert answers.locator(".content .text").all_inner_texts() == ["I am m.", "I am other."]
    sent = {
        body["model"]: (body.get("hooks"), headers.get("Authorization"))
        for body, headers in zip(fake.bodies, fake.headers, strict=True)
    }
    assert sent == {"m": (["repetition"], None), "other": (None, "Bearer k2")}
    first, second = (one.bounding_box() for one in answers.all())
    assert (second["x"] > first["x"]) == (second["y"] == first["y"]) == (size[0] > 1000)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert faults(page) == []
    fake.script = echoes
    ask_and_wait(page, "Again")
    histories = {body["model"]: body["messages"][1]["content"] for body in fake.bodies[-2:]}
    assert histories == {"m": "I am m.", "other": "I am other."}
    page.get_by_role("button", name="Keys", exact=True).click()
    page.get_by_label("Admin key").fill("boss")
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Keys").wait_for(state="hidden")
    ask_and_wait(page, "With other keys")
    assert fake.bodies[-1]["model"] != fake.bodies[-2]["model"]  # the choice stays
    page.reload()
    assert page.locator(".answer").count() == 6


async def is_cut_by_two(wire: Wire) -> None:
    await wire.text("Half an ")
    await wire.decision(action="hold", reason="aborted", offset=4, num_withheld=4, hook="pii")
    await wire.decision(action="terminate", offset=8, num_withheld=2, hook="phrases")
    await wire.end("content_filter")


def test_an_answer_that_one_guard_ended_is_one_decision_and_one_mark(
    fake: FakeServer, open_page: Open
) -> None:
    fake.script = is_cut_by_two
    page = open_page(fake.url)
    answer = ask_and_wait(page)
    assert [one.strip() for one in answer.locator(".mark").all_inner_texts()] == ["ended by phrases"]
    assert answer.get_by_text("1 decision").is_visible()
    assert page.get_by_role("status").inner_text() == "A guard ended the answer. 1 decision of guards in it."


async def breaks(wire: Wire) -> None:
    await wire.text("Half an ")
    await wire.error("The upstream engine broke off.", "server_error")


def test_an_answer_whose_upstream_dies_broke_off(fake: FakeServer, open_page: Open) -> None:
    fake.script = breaks
    page = open_page(fake.url)
    answer = ask_and_wait(page)
    assert "The answer broke off. The upstream engine broke off." in answer.inner_text()
    assert "refused" not in answer.inner_text()


async def guard_fails(wire: Wire) -> None:
    await wire.text("Half an ")
    await wire.decision(
        action="error", reason="ValueError at acme.py:7", offset=8, num_withheld=3, hook="acme"
    )
    await wire.error("A hook failed.")


@pytest.mark.parametrize("is_streamed", [True, False], ids=["in the answer", "before it"])
def test_a_failed_guards_cause_stands_above_the_composer_once(
    fake: FakeServer, open_page: Open, is_streamed: bool
) -> None:
    decision = {
        "action": "error",
        "hook": "acme",
        "mode": "enforce",
        "channel": "prompt",
        "output_index": None,
    }
    failure = {"message": "A hook failed.", "type": "guardrail_error", "param": None, "code": None}
    body = {"error": failure, "weir_decisions": [decision | {"reason": "ValueError at acme.py:7"}]}
    fake.script = guard_fails
    fake.refusal = lambda _: None if is_streamed else (500, body, {})
    page = open_page(fake.url)
    ask_and_wait(page)
    ask_and_wait(page)
    cause = page.get_by_text("ValueError at acme.py:7").locator("visible=true")
    assert cause.count() == 1
    assert (
        page.get_by_role("alert").locator("visible=true").inner_text()
        == "The guard acme failed: ValueError at acme.py:7"
    )
    assert "A guard failed, so the answer ended." in page.get_by_role("article").last.inner_text()
    assert faults(page) == []
    fake.script, fake.refusal = redacting, lambda _: None
    ask_and_wait(page)
    assert not page.get_by_text("The guard acme failed").is_visible()
