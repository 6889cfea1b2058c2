"""The chat, against answers that are scripted event by event."""

import asyncio
import re
from typing import Any

import pytest

from tests.page.conftest import Open, faults
from tests.page.fake_server import FakeServer, Script, Wire

pytestmark = pytest.mark.slow


WATCH_TASKS = """() => {
    window.longest = 0;
    new PerformanceObserver((list) => {
        const tasks = list.getEntries().map((one) => one.duration);
        window.longest = Math.max(window.longest, ...tasks);
    }).observe({ type: "longtask" });
}"""
"""Notes the longest task of the page, in milliseconds."""


def ask(page: Any, text: str = "Hello") -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_label("Message", exact=True).press("Enter")


def ask_and_wait(page: Any, text: str = "Hello") -> Any:
    ask(page, text)
    page.get_by_role("button", name="Send").wait_for()
    return page.get_by_role("article").last


def panel(page: Any, name: str) -> None:
    """Open a tab of the panel."""
    if not page.get_by_role("tab", name=name).is_visible():
        page.get_by_role("button", name="Setup", exact=True).click()
    page.get_by_role("tab", name=name).click()


async def redacting(wire: Wire) -> None:
    await wire.text("Write ")
    await wire.held(15)
    await wire.decision(reason="email", offset=9, num_withheld=15, num_released=7, held_seconds=0.25)
    await wire.text("to [EMAIL], ")
    await wire.decision(action="hold", offset=26, held_seconds=0.3)
    await wire.text("please.")
    await wire.end()


def test_a_redaction_stands_in_its_place_and_tells_its_details(fake: FakeServer, open_page: Open) -> None:
    fake.script = redacting
    page = open_page(fake.url)
    answer = ask_and_wait(page)
    assert answer.locator(".content .text").inner_text() == "Write to [EMAIL], please."
    mark = answer.get_by_role("button", name=re.compile("Redacted by pii"))
    assert mark.inner_text() == "[EMAIL]"
    mark.focus()
    page.keyboard.press("Enter")
    details = page.get_by_role("dialog", name="Redacted")
    assert details.is_visible()
    for text in ("pii", "email", "15 characters withheld", "250 ms"):
        assert text in details.inner_text()
    assert faults(page) == []
    page.keyboard.press("Escape")
    assert not details.is_visible()
    assert mark.evaluate("one => one === document.activeElement")
    answer.get_by_text("2 decisions").click()
    assert faults(page) == []


def test_the_end_the_withheld_and_the_taken_back_are_seen(fake: FakeServer, open_page: Open) -> None:
    async def script(wire: Wire) -> None:
        await wire.text("One ")
        await wire.decision(action="suppress", offset=4, num_withheld=8, hook="secrets")
        await wire.text("two ")
        await wire.decision(action="rewind", offset=8, num_withheld=5, hook="toxic", reason="insult")
        await wire.text("three")
        await wire.decision(action="redact", mode="shadow", offset=4, num_withheld=3, hook="trial")
        await wire.decision(action="terminate", offset=13, num_withheld=2, hook="phrases", reason="banned")
        await wire.end("content_filter")

    fake.script = script
    page = open_page(fake.url)
    answer = ask_and_wait(page)
    marks = answer.locator(".text .mark")
    assert [one.inner_text().strip() for one in marks.all()] == [
        "withheld by secrets",
        "rewound by toxic",
        "",
        "ended by phrases",
    ]
    assert "Would have redacted by trial" in marks.nth(2).get_attribute("aria-label")
    assert "ended by a guard" in answer.inner_text()
    assert faults(page) == []
    assert page.get_by_role("status").inner_text() == "A guard ended the answer. 3 decisions of guards in it."


def test_held_text_is_shown_while_it_is_held(fake: FakeServer, open_page: Open) -> None:
    release = asyncio.Event()
    loops = []

    async def script(wire: Wire) -> None:
        loops.append(asyncio.get_running_loop())
        await wire.text("Our project is ")
        await wire.held(12)
        await release.wait()
        await wire.held(0)
        await wire.text("done.")
        await wire.end()

    fake.script = script
    page = open_page(fake.url)
    ask(page)
    held = page.locator(".held").get_by_text("12 characters held by pii")
    held.wait_for()
    loops[0].call_soon_threadsafe(release.set)
    page.get_by_role("button", name="Send").wait_for()
    assert not held.is_visible()


def test_reasoning_and_tool_calls_stand_apart(fake: FakeServer, open_page: Open) -> None:
    async def script(wire: Wire) -> None:
        await wire.text("Let me see.", "reasoning")
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": "look", "arguments": '{"a":'}}
        await wire.chunk({"tool_calls": [call]})
        await wire.chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]})
        await wire.end("tool_calls")

    fake.script = script
    page = open_page(fake.url)
    answer = ask_and_wait(page)
    assert not answer.get_by_text("Let me see.").is_visible()  # reasoning that is over makes room
    answer.get_by_text("Reasoning").click()
    assert answer.locator(".reasoning .text").inner_text() == "Let me see."
    assert answer.locator(".tool_call").inner_text().split("\n") == ["Call of look", '{"a":1}']
    assert faults(page) == []


HOSTILE = (
    '<img src=x onerror="document.title=1"><script>document.title=1</script>'
    "[a](javascript:alert(1)) \u202eright to left\u202c \u0000\u001b[31m"
)


def test_an_answer_full_of_html_stays_text(fake: FakeServer, open_page: Open) -> None:
    async def script(wire: Wire) -> None:
        await wire.decision(
            hook=HOSTILE, reason=HOSTILE, num_withheld=4, num_released=len(HOSTILE), withheld=HOSTILE
        )
        await wire.text(HOSTILE)
        await wire.text(HOSTILE, "reasoning")
        await wire.end()

    fake.script = script
    page = open_page(fake.url)
    answer = ask_and_wait(page, HOSTILE)
    assert answer.locator(".content .mark").evaluate("one => one.textContent") == HOSTILE
    assert page.locator("main img, main script").count() == 0
    answer.locator(".content .mark").click()
    assert page.locator("#details img, #details script").count() == 0
    assert page.locator(".withheld").evaluate("one => one.textContent") == HOSTILE
    assert page.title() != "1"


@pytest.mark.parametrize("line", ["word " * 20 + "\n", "x"], ids=["lines", "one long word"])
def test_an_answer_of_a_megabyte_stays_fast(fake: FakeServer, open_page: Open, line: str) -> None:
    piece = (line * 4000)[:4000]

    async def script(wire: Wire) -> None:
        for _ in range(260):
            await wire.text(piece)
        await wire.end()

    fake.script = script
    page = open_page(fake.url)
    page.evaluate(WATCH_TASKS)
    page.set_default_timeout(60_000)
    answer = ask_and_wait(page)
    assert answer.locator(".content .text").evaluate("one => one.textContent.length") == 260 * 4000
    assert page.evaluate("longest") < 2000  # milliseconds that the page did not answer, on a busy machine
    page.get_by_label("Message", exact=True).fill("still here")


def test_stop_ends_the_answer_and_the_servers_work(fake: FakeServer, open_page: Open) -> None:
    async def script(wire: Wire) -> None:
        await wire.text("One and ")
        await asyncio.sleep(60)

    fake.script = script
    page = open_page(fake.url)
    ask(page)
    page.locator(".answer").get_by_text("One and").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped.").wait_for()
    assert fake.closed.wait(10)
    assert page.get_by_role("button", name="Send").is_visible()


@pytest.mark.parametrize("text", ["Some text", ""])
def test_a_cut_stream_is_told_and_may_be_tried_again(fake: FakeServer, open_page: Open, text: str) -> None:
    async def cut(wire: Wire) -> None:
        if text:
            await wire.text(text)
        wire.cut()

    async def whole(wire: Wire) -> None:
        await wire.text("A whole answer.")
        await wire.end()

    fake.script = cut
    page = open_page(fake.url)
    answer = ask_and_wait(page)
    assert "The stream was cut." in answer.inner_text()
    fake.script = whole
    answer.get_by_role("button", name="Ask again").click()
    page.locator(".answer").get_by_text("A whole answer.").wait_for()
    assert page.get_by_role("article").count() == 2
    assert len(fake.bodies[-1]["messages"]) == 1


async def fails(wire: Wire) -> None:
    await wire.text("Half an ")
    await wire.error("The hook failed.")


async def is_ended(wire: Wire) -> None:
    await wire.text("Half an ")
    await wire.decision(action="terminate", offset=8, num_withheld=2, hook="phrases")
    await wire.end("content_filter")


@pytest.mark.parametrize(("script", "told"), [(fails, "A guard failed"), (is_ended, "not in the history")])
def test_an_answer_that_failed_or_that_a_guard_ended_leaves_the_history(
    fake: FakeServer, open_page: Open, script: Script, told: str
) -> None:
    fake.script = script
    page = open_page(fake.url)
    answer = ask_and_wait(page, "first")
    assert told in answer.inner_text()
    assert faults(page) == []
    fake.script = redacting
    ask_and_wait(page, "second")
    ask_and_wait(page, "third")
    assert [one["content"] for one in fake.bodies[-1]["messages"]] == [
        "second",
        "Write to [EMAIL], please.",
        "third",
    ]


def error(status: int, message: str, **more: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
    told = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return status, {"error": told | more}, {"Retry-After": "7"} if status in (429, 503) else {}


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (error(429, "This key is over its limit."), ["Too many requests", "over its limit", "wait 7 s"]),
        (error(503, "The server is shutting down."), ["The server is not ready"]),
        (error(400, "no_secrets", code="content_filter"), ["A guard refused this message", "no_secrets"]),
        (error(500, "The server had an error."), ["The server had an error"]),
        ((502, {"no": "error"}, {}), ["status 502"]),
    ],
    ids=["429", "503", "refused", "500", "no error object"],
)
def test_an_error_is_told_in_words(fake: FakeServer, open_page: Open, refusal: Any, told: list[str]) -> None:
    fake.refusal = lambda _: refusal
    page = open_page(fake.url)
    answer = ask_and_wait(page)
    for text in told:
        assert text in answer.inner_text()
    assert faults(page) == []


def test_a_key_is_asked_for_kept_in_the_tab_alone_and_sent(fake: FakeServer, open_page: Open) -> None:
    fake.script = redacting
    fake.refusal = lambda http: (
        None if http.headers.get("Authorization") == "Bearer k1" else error(401, "A valid API key is needed.")
    )
    page = open_page(fake.url)
    answer = ask_and_wait(page)
    answer.get_by_role("button", name="Enter a key").click()
    keys = page.get_by_role("dialog", name="Keys")
    assert faults(page) == []
    keys.get_by_label("Client’s key").fill("k1")
    keys.get_by_label("Admin key").fill("boss")
    page.keyboard.press("Enter")
    keys.wait_for(state="hidden")
    answer.get_by_role("button", name="Ask again").click()
    page.locator(".answer").get_by_text("please.").wait_for()
    assert fake.headers[-1]["X-Weir-Admin-Key"] == "boss"
    assert page.evaluate("Object.values(localStorage)") == []
    assert page.evaluate("document.cookie") == ""
    conversation = page.evaluate("sessionStorage.getItem('weir.conversation')")
    assert "please." in conversation
    assert "k1" not in conversation
    assert "boss" not in conversation
    kept = page.evaluate("Object.values(sessionStorage)")
    assert sorted(one for one in kept if one != conversation) == ["boss", "k1"]


def test_who_is_no_operator_chats_without_decisions_and_is_told_so(fake: FakeServer, open_page: Open) -> None:
    def refuse(http: Any) -> Any:
        if "X-Weir-Decisions" in http.headers and http.headers.get("X-Weir-Admin-Key") != "boss":
            return error(403, "X-Weir-Decisions: only for the operator.", param="X-Weir-Decisions")
        return None

    fake.refusal, fake.script = refuse, redacting
    page = open_page(fake.url)
    answer = ask_and_wait(page)
    assert "Write to [EMAIL], please." in answer.inner_text()
    assert "X-Weir-Decisions" not in fake.headers[-1]
    assert page.get_by_text("Decisions of guards are shown to operators alone.").is_visible()
    ask_and_wait(page)
    assert len(fake.bodies) == 3  # it was refused once
    page.get_by_role("button", name="Enter the admin key").click()
    page.get_by_label("Admin key").fill("boss")
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Keys").wait_for(state="hidden")
    ask_and_wait(page)
    assert fake.headers[-1]["X-Weir-Decisions"] == "true"
    assert page.get_by_text("Decisions shown").is_visible()


def test_an_engine_without_logprobs_is_asked_without(fake: FakeServer, open_page: Open) -> None:
    fake.script = redacting
    refused = error(400, "logprobs: this engine has none.", param="logprobs")
    bodies = fake.bodies
    fake.refusal = lambda _: refused if "logprobs" in bodies[-1] else None
    page = open_page(fake.url)
    assert "please." in ask_and_wait(page).inner_text()
    ask_and_wait(page)
    assert ["logprobs" in body for body in bodies] == [True, False, False]


def test_the_raw_stream_shows_pieces_tokens_and_decisions(fake: FakeServer, open_page: Open) -> None:
    async def script(wire: Wire) -> None:
        top = [{"token": "Hi", "logprob": -0.5, "bytes": []}, {"token": "Yo", "logprob": -1.0, "bytes": []}]
        tokens = [{"token": "Hi", "logprob": -0.5, "bytes": [], "top_logprobs": top}]
        await wire.chunk({"content": "Hi"}, logprobs={"content": tokens, "refusal": None})
        await redacting(wire)

    fake.script = script
    page = open_page(fake.url)
    ask_and_wait(page)
    panel(page, "Raw stream")
    rows = page.locator("#raw-rows tr")
    assert "61 %" in rows.first.inner_text()
    assert "or Yo 37 %" in rows.first.inner_text()
    assert "Redacted by pii: email" in page.locator("#raw-rows").inner_text()
    assert faults(page) == []


def test_what_is_set_up_is_sent(fake: FakeServer, open_page: Open) -> None:
    fake.script = redacting
    page = open_page(fake.url)
    panel(page, "Setup")
    page.get_by_label("Model").select_option("other")
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.5")
    guards = page.get_by_role("list", name="Guards")
    assert guards.inner_text().split() == ["pii", "always", "trial", "shadow", "repetition"]
    page.get_by_role("switch", name="repetition").check()
    assert faults(page) == []
    page.get_by_label("Most tokens").fill("7")
    if page.get_by_role("button", name="Close the panel").is_visible():
        page.keyboard.press("Escape")
    ask_and_wait(page)
    body = fake.bodies[-1]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("other", 0.5, 7)
    assert body["hooks"] == ["repetition"]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}


def test_the_page_fits_its_window(fake: FakeServer, open_page: Open, size: tuple[int, int]) -> None:
    async def script(wire: Wire) -> None:
        await wire.text("x" * 500 + " " + "y" * 90)
        await wire.end()

    fake.script = script
    page = open_page(fake.url)
    ask_and_wait(page, "z" * 400)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.locator("#transcript").evaluate("one => one.scrollWidth - one.clientWidth") <= 0
    assert faults(page) == []


def test_the_colours_can_be_chosen_and_both_can_be_read(fake: FakeServer, open_page: Open) -> None:
    fake.script = redacting
    for scheme in ("light", "dark"):
        page = open_page(fake.url, scheme)
        ask_and_wait(page).get_by_text("2 decisions").click()
        assert faults(page) == []
    button = page.get_by_role("button", name="Colours: as the system has them")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    button.click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    page.reload()
    assert page.get_by_role("button", name="Colours: light").is_visible()
