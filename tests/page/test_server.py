"""The page of `weir serve` with the model that ships. It makes the screenshots of `docs/page.md`."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.deployment.keys import digest_of
from tests.page.conftest import Open, faults
from tests.page.fake_server import FakeServer, Wire
from tests.page.test_chat import ask, ask_and_wait, error, panel, redacting
from tests.proxy.storage.shared.conftest import free_port
from tests.serving import serving

pytestmark = pytest.mark.slow

CONFIG = "examples/page.yaml"
FOLDER = os.environ.get("WEIR_SCREENSHOTS")
"""Where `make test-page` wants the screenshots. Unset: nowhere."""


SOME_LOAD = """async () => {
    const messages = ["What is your email address?", "Show me the API key", "Tell me a story about an otter"];
    const end = performance.now() + 25000;
    await Promise.all(messages.map(async (content) => {
        while (performance.now() < end) {
            const body = JSON.stringify({ model: "weir-demo", messages: [{ role: "user", content }] });
            const headers = { "Content-Type": "application/json" };
            await (await fetch("v1/chat/completions", { method: "POST", body, headers })).text();
            await new Promise((resolve) => setTimeout(resolve, 800 * Math.random()));
        }
    }));
}"""
"""Something for the curves of the picture."""


WAITING_HOOK = """
import asyncio
from hooks import emit

class Waits:
    async def __call__(self, chunk):
        if "Wait" in chunk.pending:
            await asyncio.Event().wait()
        return emit(chunk.pending)
"""
TWO_POLICIES = """
engine: echo
served_model_name: [m]
policies:
  strict: {hooks: [pii, secrets]}
  lax: {hooks: [repetition]}
default_policy: lax
keys:
  alice: {hash: "sha256:DIGEST", policy: strict}
"""

IN_MEMORY = "sqlite:///:memory:"


def enter_keys(page: Any, *, admin: str = "", client: str = "") -> None:
    page.get_by_role("button", name="Keys", exact=True).click()
    page.get_by_label("Client’s key").fill(client)
    page.get_by_label("Admin key").fill(admin)
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Keys").wait_for(state="hidden")


def picture(page: Any, name: str) -> None:
    if FOLDER:
        page.screenshot(path=Path(FOLDER) / f"{name}.png")


@pytest.fixture(scope="module")
def url(weir_serve: Callable[..., str]) -> str:
    return weir_serve("--config", CONFIG) + "/"


def marks(answer: Any) -> list[str]:
    """The names of the marks. Holds are left out: on a slow machine a short one lasts."""
    return [one.get_attribute("aria-label") for one in answer.locator(".text .mark:not(.hold)").all()]


def test_a_newcomer_watches_guards_work(url: str, open_page: Open, size: tuple[int, int]) -> None:
    page = open_page(url)
    page.get_by_role("button", name="What is your email address?").click()
    page.get_by_role("button", name="Send").wait_for()
    answer = page.get_by_role("article").last
    assert answer.locator(".content .text").inner_text() == "Our e-mail address is [EMAIL_ADDRESS]."
    assert marks(answer) == ["[EMAIL_ADDRESS] (Redacted by pii: EMAIL_ADDRESS)"]
    answer = ask_and_wait(page, "Show me the API key")
    assert marks(answer) == ["Redacted by secrets: OPENAI_KEY, 30 characters"]
    assert "sk-EXAMPLE" not in page.content()
    answer = ask_and_wait(page, "What is your secret project?")
    assert "Ended by project" in marks(answer)[-1]
    assert "Bluebird" not in page.content()
    if size[0] > 1000:
        panel(page, "Raw stream")
    answer.locator(".mark").last.click()
    picture(page, "page-chat" if size[0] > 1000 else "page-narrow")
    assert faults(page) == []


def test_a_shadow_hook_marks_what_it_would_have_done(
    url: str, open_page: Open, size: tuple[int, int]
) -> None:
    page = open_page(url, "dark")
    page.set_default_timeout(60_000)
    answer = ask_and_wait(page, "Tell me a story about an otter")
    assert any("Would have redacted by otters" in mark for mark in marks(answer))
    assert "otter" in answer.locator(".content .text").inner_text()
    answer.get_by_text(re.compile(r"\d+ decisions?")).first.click()
    panel(page, "Setup")
    guards = page.get_by_role("list", name="Guards").inner_text().split()
    assert guards == [
        "pii",
        "always",
        "secrets",
        "always",
        "project",
        "always",
        "otters",
        "shadow",
        "repetition",
    ]
    if size[0] > 1000:
        picture(page, "page-shadow")
    assert faults(page) == []


def test_the_dashboard_shows_what_the_server_does(url: str, open_page: Open, size: tuple[int, int]) -> None:
    page = open_page(url)
    ask_and_wait(page, "What is your email address?")
    page.get_by_role("link", name="Live").click()
    row = page.get_by_role("row", name=re.compile("^pii"))
    row.wait_for()
    assert int(row.get_by_role("cell").nth(2).inner_text().replace(",", "")) >= 1
    assert page.get_by_text("First token").is_visible()
    guards = page.get_by_role("region", name="Guards").get_by_role("rowheader").all_inner_texts()
    assert [one.split() for one in guards if "shadow" in one] == [["otters", "shadow"]]
    assert re.search("[1-9]", row.get_by_role("cell").nth(-2).inner_text())  # how long it held text
    if size[0] > 1000:
        if FOLDER:
            page.evaluate(SOME_LOAD)
        picture(page, "page-live")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert faults(page) == []
    page.get_by_role("button", name="Pause").click()
    assert page.get_by_role("button", name="Go on").is_visible()


@pytest.fixture(scope="module")
def kept(weir_serve: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A server that keeps decisions, with an admin key."""
    store = f"sqlite:///{tmp_path_factory.mktemp('store')}/weir.sqlite"
    return weir_serve("--config", CONFIG, "--admin-key", "boss", "--store", store) + "/"


def test_decisions_and_shadow_reports_are_found(kept: str, open_page: Open, size: tuple[int, int]) -> None:
    page = open_page(kept)
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Admin key").fill("boss")
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Keys").wait_for(state="hidden")
    for text in ("What is your email address?", "Show me the API key", "Tell me a story about an otter"):
        ask_and_wait(page, text)
    page.get_by_role("link", name="Decisions").click()
    page.get_by_role("table", name="Decisions, the newest first").wait_for()
    assert page.get_by_role("row").count() >= 1 + 2 + 4
    assert faults(page) == []
    if size[0] > 1000:
        picture(page, "page-decisions")
    page.get_by_label("Decision", exact=True).select_option("redact")
    page.get_by_label("Guard", exact=True).fill("pii")
    page.keyboard.press("Enter")
    page.get_by_role("row", name=re.compile("project|otters")).first.wait_for(state="detached")
    page.get_by_role("row").nth(1).get_by_role("button", name="Redacted").click()
    assert "EMAIL_ADDRESS" in page.get_by_role("dialog", name="Redacted").inner_text()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Shadow").click()
    report = page.get_by_role("region", name="otters, policy default")
    report.wait_for()
    assert "Would have redacted" in report.inner_text()
    if size[0] > 1000:
        picture(page, "page-shadow-report")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert faults(page) == []


@pytest.mark.parametrize("has_touch", [False, True], ids=["by a mouse's pointer", "by touch"])
def test_the_page_is_used_with_the_keyboard_alone(url: str, open_page: Open, *, has_touch: bool) -> None:
    page = open_page(url, has_touch=has_touch, is_mobile=has_touch)
    page.get_by_role("button", name="Show me the API key").wait_for()
    if has_touch:  # there, the message field has no focus
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the message field"
        page.keyboard.press("Enter")
    page.keyboard.type("What is your email address?")
    page.keyboard.press("Enter")
    mark = page.locator(".text .mark.redact")
    mark.wait_for()
    page.get_by_role("button", name="Send").wait_for()
    for _ in range(30):
        page.keyboard.press("Shift+Tab")
        if mark.evaluate("one => one === document.activeElement"):
            break
    page.keyboard.press("Enter")
    assert page.get_by_role("dialog", name="Redacted").is_visible()
    page.keyboard.press("Escape")
    assert mark.evaluate("one => one === document.activeElement")


def test_who_is_not_the_operator_chats_and_sees_no_numbers(
    weir_serve: Callable[..., str], open_page: Open, size: tuple[int, int]
) -> None:
    page = open_page(weir_serve("--engine", "echo", "--api-key", "k1", "--hook", "pii") + "/")
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Client’s key").fill("k1")
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Keys").wait_for(state="hidden")
    answer = ask_and_wait(page, "Write to ada@example.org")
    assert answer.locator(".content .text").inner_text() == "Write to [EMAIL_ADDRESS]"
    assert marks(answer) == []
    assert page.get_by_text("Decisions of guards are shown to operators alone.").is_visible()
    for view in ("Live", "Decisions", "Shadow"):
        page.get_by_role("link", name=view).click()
        page.get_by_text("This view is the operator’s.").locator("visible=true").wait_for()
        assert faults(page) == []


def test_guards_of_the_entered_key_are_shown_before_an_answer(
    weir_serve: Callable[..., str], open_page: Open, tmp_path: Path
) -> None:
    config = tmp_path / "weir.yaml"
    config.write_text(TWO_POLICIES.replace("DIGEST", digest_of(b"of-alice")))
    page = open_page(weir_serve("--config", str(config), "--admin-key", "boss", "--store", IN_MEMORY) + "/")
    page.get_by_text("Which guards run is shown to operators.").wait_for(state="attached")
    assert page.get_by_text("Decisions of guards are shown to operators alone.").is_visible()
    enter_keys(page, admin="boss")
    page.get_by_text("Which guards run depends on the client’s key.").wait_for(state="attached")
    enter_keys(page, admin="boss", client="of-alice")
    page.get_by_text("Policy strict.").wait_for(state="attached")
    panel(page, "Setup")
    assert page.get_by_role("list", name="Guards").inner_text().split() == [
        "pii",
        "always",
        "secrets",
        "always",
    ]


def test_the_operators_port_has_their_views_and_the_other_port_says_so(
    open_page: Open, size: tuple[int, int]
) -> None:
    port = free_port()
    with serving(
        "--engine", "echo", "--admin-key", "boss", "--admin-port", str(port), "--store", IN_MEMORY
    ) as main:
        page = open_page(f"http://127.0.0.1:{port}/")
        page.get_by_role("heading", name="Live").wait_for()
        assert not page.get_by_role("link", name="Chat").is_visible()
        enter_keys(page, admin="boss")
        page.get_by_text("As clients see it").wait_for()
        for view in ("Decisions", "Shadow"):
            page.get_by_role("link", name=view).click()
            page.get_by_text(re.compile("No (decision was found|guard was seen)")).locator(
                "visible=true"
            ).wait_for()
        assert faults(page) == []
        page = open_page(main + "/")
        panel(page, "Setup")
        page.get_by_text("Which guards run is shown on the operator’s port").wait_for()
        page.keyboard.press("Escape")
        for view in ("Live", "Decisions", "Shadow"):
            page.get_by_role("link", name=view).click()
            page.get_by_text("This view is on the operator’s port.").locator("visible=true").wait_for()


def test_a_running_request_is_seen_and_cancelled(
    weir_serve: Callable[..., str], open_page: Open, tmp_path: Path
) -> None:
    hook = tmp_path / "waits.py"
    hook.write_text(WAITING_HOOK)
    options = ["--engine", "echo", "--hook", f"{hook}:Waits", "--hook-timeout", "60"]
    page = open_page(weir_serve(*options, "--admin-key", "boss", "--store", IN_MEMORY) + "/")
    enter_keys(page, admin="boss")
    page.locator("#model option").first.wait_for(state="attached")
    ask(page, "Wait")
    page.get_by_role("link", name="Live").click()
    running = page.get_by_role("region", name="Requests that run")
    running.get_by_role("button", name="Cancel chatcmpl-").click()
    page.get_by_text(re.compile("chatcmpl-.* is cancelled")).wait_for()
    running.wait_for(state="hidden")
    assert faults(page) == []
    page.get_by_role("link", name="Chat").click()
    assert "cancelled" in page.get_by_role("article").last.inner_text()


def test_a_message_is_answered_with_and_without_guards_side_by_side(
    weir_serve: Callable[..., str], open_page: Open, size: tuple[int, int]
) -> None:
    page = open_page(weir_serve("--config", "examples/side_by_side.yaml") + "/")
    page.set_default_timeout(60_000)
    panel(page, "Setup")
    page.get_by_label("Side by side with").select_option("weir-demo-unguarded")
    page.get_by_text("Policy unguarded: no guard.").wait_for()
    if page.get_by_role("button", name="Close the panel").is_visible():
        page.get_by_role("button", name="Close the panel").click()
    ask_and_wait(page, "What is your email address?")
    ask_and_wait(page, "Show me the API key")
    ask_and_wait(page, "What is your secret project?")
    guarded, unguarded = page.locator(".exchange").last.locator(".answer").all()
    assert "Ended by project" in marks(guarded)[-1]
    assert marks(unguarded) == []
    assert "Bluebird" not in guarded.inner_text()
    assert "Bluebird" in unguarded.inner_text()
    assert faults(page) == []
    if size[0] > 1000:
        picture(page, "page-side-by-side")


def test_live_says_that_the_last_request_to_an_upstream_failed(
    fake: FakeServer, weir_serve: Callable[..., str], open_page: Open
) -> None:
    fake.script = redacting
    url = weir_serve("--engine", "openai", "--upstream", f"{fake.url}v1") + "/"
    page = open_page(url)
    page.locator("#model option").first.wait_for(state="attached")

    def a_message_leaves(state: str, told: str) -> None:
        page.get_by_role("link", name="Chat").click()
        assert told in ask_and_wait(page).inner_text()
        page.get_by_role("link", name="Live").click()
        page.get_by_role("row", name=re.compile("^127")).get_by_text(state, exact=True).wait_for()

    a_message_leaves("healthy", "[EMAIL]")
    fake.refusal = lambda _: error(503, "Not now.")
    a_message_leaves("last request failed", "is not available")
    assert faults(page) == []
    fake.refusal = lambda _: None
    a_message_leaves("healthy", "[EMAIL]")


def test_an_upstream_that_dies_in_an_answer_is_not_called_a_refusal(
    fake: FakeServer, weir_serve: Callable[..., str], open_page: Open
) -> None:
    async def dies(wire: Wire) -> None:
        await wire.text("Half an ")
        wire.cut()

    fake.script = dies
    page = open_page(weir_serve("--engine", "openai", "--upstream", f"{fake.url}v1", "--hook", "pii") + "/")
    page.locator("#model option").first.wait_for(state="attached")
    answer = ask_and_wait(page)
    assert "Half" in answer.inner_text()  # the guard held the rest
    assert "The answer broke off." in answer.inner_text()
    assert "refused" not in answer.inner_text()


FAILING_HOOK = """
from hooks import emit

class Fails:
    def __call__(self, chunk):
        if "wrong" in chunk.pending:
            raise ValueError("its text may be a secret")
        return emit(chunk.pending)
"""


def test_the_cause_of_a_guards_failure_is_shown_until_an_answer_comes_without_it(
    weir_serve: Callable[..., str], open_page: Open, tmp_path: Path
) -> None:
    hook = tmp_path / "fails.py"
    hook.write_text(FAILING_HOOK)
    page = open_page(weir_serve("--engine", "echo", "--hook", f"{hook}:Fails") + "/")
    page.locator("#model option").first.wait_for(state="attached")
    for text in ("This goes wrong", "wrong"):  # with a part of the answer, and without any
        ask_and_wait(page, text)
        alert = page.get_by_role("alert").locator("visible=true")
        assert re.search(r"The guard Fails failed: ValueError .*fails\.py", alert.inner_text())
        assert page.get_by_text(re.compile("ValueError")).locator("visible=true").count() == 1
        assert "secret" not in page.content()
    ask_and_wait(page, "All is well")
    assert page.get_by_role("alert").locator("visible=true").count() == 0


ASKING = """
engine: echo
tool_call_parser: hermes
admin_key: [boss]
hooks:
  - {path: tools, args: {action: ask}}
"""
CALL = '<tool_call>{"name": "send", "arguments": {"to": "ann", "text": "<b>Hi</b>"}}</tool_call>'
CALLING = """(call) => {
    const tools = [{ type: "function", function: { name: "send" } }];
    const body = JSON.stringify({ model: "echo", tools, messages: [{ role: "user", content: call }] });
    const headers = { "Content-Type": "application/json" };
    window.answers = window.answers ?? [];
    fetch("v1/chat/completions", { method: "POST", body, headers })
        .then(async (got) => window.answers.push(await got.json()));
}"""


@pytest.mark.parametrize("button", ["Approve", "Refuse"])
def test_a_call_that_waits_is_read_and_decided(
    weir_serve: Callable[..., str], open_page: Open, tmp_path: Path, button: str
) -> None:  # contract 3.21
    config = tmp_path / "weir.yaml"
    config.write_text(ASKING)
    page = open_page(weir_serve("--config", str(config), "--store", IN_MEMORY) + "/")
    enter_keys(page, admin="boss")
    page.get_by_role("link", name="Live").click()
    page.get_by_text("As clients see it").wait_for()
    page.evaluate(CALLING, CALL)
    waiting = page.get_by_role("region", name="Tool calls that wait for you")
    arguments = waiting.get_by_label("Arguments of send")
    assert arguments.inner_text() == '{"to": "ann", "text": "<b>Hi</b>"}'
    assert faults(page) == []
    waiting.get_by_role("button", name=f"{button} send").click()
    page.get_by_text(f"send is {'approved' if button == 'Approve' else 'refused'}.").wait_for()
    page.wait_for_function("window.answers.length === 1")
    (choice,) = page.evaluate("window.answers[0].choices")
    assert choice["finish_reason"] == ("tool_calls" if button == "Approve" else "stop")
