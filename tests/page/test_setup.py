"""The setup of the chat: kept over a reload, and refused where a field has a fault."""

import re
from typing import Any

import pytest

from tests.page.conftest import NARROW, Open, faults
from tests.page.fake_server import FakeServer
from tests.page.test_chat import ask, ask_and_wait, error, panel, redacting
from tests.page.test_conversation import echoes, message

pytestmark = pytest.mark.slow


def close_panel(page: Any) -> None:
    """On a narrow page, the panel covers the chat."""
    if page.get_by_role("button", name="Close the panel").is_visible():
        page.get_by_role("button", name="Close the panel").click()


def is_in_view(one: Any) -> bool:
    return bool(one.evaluate("one => one.getBoundingClientRect().bottom < innerHeight + 1"))


@pytest.mark.parametrize("has_messages", [True, False], ids=["with messages", "without a message"])
def test_the_setup_survives_a_reload(fake: FakeServer, open_page: Open, *, has_messages: bool) -> None:
    fake.script = echoes
    page = open_page(fake.url)
    if has_messages:
        ask_and_wait(page, "one")
    panel(page, "Setup")
    page.get_by_label("Model").select_option("other")
    page.get_by_role("switch", name="repetition").check()
    page.get_by_label("Side by side with").select_option("m")
    page.get_by_label("Key of the second answer").fill("k2")
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.55")
    page.get_by_label("Most tokens").fill("7")
    page.reload()
    page.locator("#second-note").get_by_text("Policy strict").wait_for(state="attached")
    page.locator("#guards input:checked").wait_for(state="attached")
    ask(page, "two")
    page.get_by_role("button", name="Send").wait_for()
    first, second = sorted(fake.bodies[-2:], key=lambda body: body["model"], reverse=True)
    assert (first["model"], second["model"]) == ("other", "m")
    assert (first["hooks"], "hooks" in second) == (["repetition"], False)
    for body in (first, second):
        assert (body["temperature"], body["max_tokens"]) == (0.55, 7)
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    sent = {
        body["model"]: headers.get("Authorization")
        for body, headers in zip(fake.bodies, fake.headers, strict=True)
    }
    assert sent["m"] == "Bearer k2"
    assert "k2" not in page.evaluate("sessionStorage.getItem('weir.conversation')")
    assert faults(page) == []


def test_a_choice_that_was_taken_back_stays_taken_back(fake: FakeServer, open_page: Open) -> None:
    fake.script = echoes
    page = open_page(fake.url)
    panel(page, "Setup")
    page.get_by_role("switch", name="repetition").check()
    page.get_by_label("Side by side with").select_option("m")
    page.reload()
    panel(page, "Setup")
    page.locator("#second-note").get_by_text("Policy strict").wait_for()
    page.get_by_role("switch", name="repetition").uncheck()
    page.get_by_label("Side by side with").select_option("")
    page.reload()
    page.locator("#guards input").wait_for(state="attached")
    ask_and_wait(page, "one")
    assert len(fake.bodies) == 1
    assert "hooks" not in fake.bodies[0]


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("Most tokens", "-3", "A whole number, at least 1. Empty: no limit."),
        ("Most tokens", "0", "A whole number, at least 1. Empty: no limit."),
        ("Most tokens", "1.5", "A whole number, at least 1. Empty: no limit."),
        ("Temperature", "2.5", "A number from 0 to 2."),
        ("Temperature", "", "A number from 0 to 2."),
    ],
)
def test_a_field_with_a_fault_says_so_and_nothing_is_sent(
    fake: FakeServer, open_page: Open, field: str, value: str, fault: str
) -> None:
    fake.script = echoes
    page = open_page(fake.url)
    panel(page, "Setup")
    box = page.get_by_label(field)
    box.fill(value)
    alert = page.get_by_role("alert").locator("visible=true")
    assert alert.inner_text() == fault
    assert is_in_view(alert)
    assert box.get_attribute("aria-invalid") == "true"
    assert faults(page) == []
    close_panel(page)
    if page.get_by_role("tab", name="Raw stream").is_visible():
        page.get_by_role("tab", name="Raw stream").click()
    ask(page, "one")
    assert box.evaluate("one => one === document.activeElement")  # in the open panel
    assert is_in_view(alert)
    assert message(page).input_value() == "one"
    assert fake.bodies == []
    box.fill("1")
    assert page.get_by_role("alert").locator("visible=true").count() == 0
    close_panel(page)
    message(page).press("Enter")
    page.get_by_role("button", name="Send").wait_for()
    page.locator(".answer").get_by_text("You said one.").wait_for()
    assert len(fake.bodies) == 1


def test_a_number_is_sent_as_it_is_written(fake: FakeServer, open_page: Open) -> None:
    fake.script = echoes
    page = open_page(fake.url)
    panel(page, "Setup")
    page.get_by_label("Most tokens").fill("1e3")
    close_panel(page)
    ask_and_wait(page, "one")
    assert fake.bodies[0]["max_tokens"] == 1000


def test_a_recording_is_offered_only_where_there_is_an_answer(fake: FakeServer, open_page: Open) -> None:
    fake.script = redacting
    fake.refusal = lambda _: error(400, "no_secrets", code="content_filter")
    page = open_page(fake.url)
    refused = ask_and_wait(page, "one")
    recording = re.compile("Save a recording")
    assert refused.get_by_role("button", name="Ask again").is_visible()
    assert refused.get_by_role("button", name=recording).count() == 0
    page.reload()
    assert page.get_by_role("button", name="Ask again").is_visible()
    assert page.get_by_role("button", name=recording).count() == 0
    fake.refusal = lambda _: None
    assert ask_and_wait(page, "two").get_by_role("button", name=recording).is_visible()


def test_who_comes_to_chat_types_at_once(fake: FakeServer, open_page: Open) -> None:
    fake.script = echoes
    page = open_page(fake.url)
    page.keyboard.type("one")
    page.keyboard.press("Enter")
    page.locator(".answer").get_by_text("You said one.").wait_for()
    page.get_by_role("link", name="Live").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Live", level=1).wait_for()
    page.get_by_role("link", name="Chat").focus()
    page.keyboard.press("Enter")
    page.locator("#view-chat").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Chat"  # who moves by keys is not moved


@pytest.mark.parametrize("size", [NARROW], ids=["narrow"], indirect=True)
def test_a_phone_shows_no_keyboard_before_it_is_asked_for(fake: FakeServer, open_page: Open) -> None:
    page = open_page(fake.url, has_touch=True, is_mobile=True)
    page.get_by_text("Policy strict.").wait_for(state="attached")
    assert page.evaluate("document.activeElement === document.body")
