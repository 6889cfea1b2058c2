"""Every view, in every way that it is seen: axe-core finds no fault, and the address says what is shown."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.page.conftest import Open, faults
from tests.page.test_chat import ask_and_wait, panel
from tests.page.test_server import CONFIG, IN_MEMORY

pytestmark = pytest.mark.slow

SIZES = [(1440, 900), (390, 844)]
WAYS = [("light", "none"), ("dark", "none"), ("light", "active")]


@pytest.fixture(scope="module")
def url(weir_serve: Callable[..., str]) -> str:
    """A server as a newcomer starts it: without a store and without keys."""
    return weir_serve("--config", CONFIG) + "/"


@pytest.fixture(params=SIZES, ids=["wide", "390"])
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    return request.param


@pytest.mark.parametrize(("scheme", "forced"), WAYS, ids=["light", "dark", "forced colours"])
def test_axe_finds_nothing_in_any_view(
    url: str, open_page: Open, scheme: str, forced: Any, size: tuple[int, int]
) -> None:
    page = open_page(url, scheme, forced_colors=forced)
    page.set_default_timeout(60_000)
    assert faults(page) == []
    ask_and_wait(page, "Show me the API key")
    answer = ask_and_wait(page, "What is your secret project?")
    answer.get_by_text(re.compile(r"\d decision")).click()
    assert faults(page) == []
    answer.locator(".mark").last.click()
    assert faults(page) == []
    page.keyboard.press("Escape")
    panel(page, "Raw stream")
    assert faults(page) == []
    panel(page, "Setup")
    page.get_by_label("Side by side with").select_option("weir-demo")
    page.get_by_text("Policy default: pii").wait_for()
    assert faults(page) == []
    if size[0] < 1000:
        page.get_by_role("button", name="Close the panel").click()
    ask_and_wait(page, "What is your email address?")
    assert faults(page) == []
    page.get_by_role("button", name="Keys", exact=True).click()
    assert faults(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Live").click()
    page.get_by_text("First token").wait_for()
    assert faults(page) == []
    page.get_by_role("link", name="Decisions").click()
    page.get_by_role("table", name="Decisions, the newest first").wait_for()
    assert faults(page) == []
    page.get_by_role("link", name="Shadow").click()
    page.locator("#shadow").get_by_text(re.compile("No guard was seen|It saw")).wait_for()
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_decisions_and_shadow_reports_work_with_the_first_command(url: str, open_page: Open) -> None:
    page = open_page(url)
    page.set_default_timeout(60_000)
    ask_and_wait(page, "Show me the API key")
    ask_and_wait(page, "Tell me a story about an otter")
    page.get_by_role("link", name="Decisions").click()
    page.get_by_role("row", name=re.compile("secrets OPENAI_KEY")).first.wait_for()
    page.get_by_role("link", name="Shadow").click()
    assert "Would have redacted" in page.get_by_role("region", name="otters, policy default").inner_text()


def test_a_mark_leads_to_its_decision_and_that_to_all_of_its_request(url: str, open_page: Open) -> None:
    page = open_page(url)
    page.set_default_timeout(60_000)
    ask_and_wait(page, "Show me the API key")
    ask_and_wait(page, "Tell me a story about an otter").locator(".mark").first.click()
    page.get_by_role("link", name="This decision in Decisions").click()
    table = page.get_by_role("table", name="Decisions, the newest first")
    table.wait_for()
    found = table.get_by_role("row").all_inner_texts()[1:]
    assert len(found) == 4  # the guard did the same four times in this answer
    assert all("Would have redacted" in row and "otters" in row for row in found)
    assert page.get_by_label("Guard", exact=True).input_value() == "otters"
    table.get_by_role("button").first.click()
    page.get_by_role("link", name="All decisions of this request").click()
    page.wait_for_function("!location.hash.includes('otters')")
    assert page.get_by_label("Guard", exact=True).input_value() == ""
    assert page.get_by_label("Request", exact=True).input_value().startswith("chatcmpl-")


def test_filters_live_in_the_address(url: str, open_page: Open) -> None:
    page = open_page(url)
    page.set_default_timeout(60_000)
    ask_and_wait(page, "Show me the API key")
    ask_and_wait(page, "What is your email address?")
    page.get_by_role("link", name="Decisions").click()
    page.get_by_role("row", name=re.compile("secrets")).first.wait_for()
    page.get_by_label("Time", exact=True).locator("visible=true").select_option("all")
    page.get_by_label("Guard", exact=True).fill("pii")
    page.keyboard.press("Enter")
    page.get_by_role("row", name=re.compile("secrets")).first.wait_for(state="detached")
    assert page.evaluate("location.hash") == "#decisions?last=all&hook=pii"
    page.reload()
    page.get_by_role("row", name=re.compile("pii")).first.wait_for()
    assert page.get_by_label("Guard", exact=True).input_value() == "pii"
    assert page.get_by_role("row", name=re.compile("secrets")).count() == 0
    page.go_back()
    page.get_by_role("row", name=re.compile("secrets")).first.wait_for()
    page.goto(f"{url}#shadow?last=3600&length=x")
    page.wait_for_function("document.querySelector('#shadow-last').value === '3600'")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("decisions?action=bogus", "there is no action 'bogus'"),
        ("decisions?mode=bogus", "there is no mode 'bogus'"),
        ("decisions?last=bogus", "since: a time is needed"),
        ("decisions?colour=red", "colour: results are found by"),
        ("shadow?last=bogus", "since: a time is needed"),
    ],
)
def test_a_filter_that_there_is_not_is_refused_in_the_view(
    url: str, open_page: Open, address: str, told: str
) -> None:
    page = open_page(url)
    page.set_default_timeout(60_000)
    ask_and_wait(page, "Tell me a story about an otter")
    page.goto(f"{url}#{address}")
    view = page.locator("section.view:visible")
    view.locator(".notice").get_by_text(told).wait_for()
    assert view.locator("table").count() == 0
    assert faults(page) == []
    if "colour" not in address:  # the form has it, too, and there it can be changed
        assert view.locator("select").evaluate_all("all => all.map((one) => one.value)").count("bogus") == 1
        view.locator("select:has(option[data-added])").select_option(index=0)
        view.locator("table, .empty").first.wait_for()
        assert view.locator("option[data-added]").count() == 0
        assert view.locator(".notice").count() == 0


LIMITED = """
engine: echo
policies:
  strict:
    hooks: [pii]
    limits: {requests_per_minute: 1}
default_policy: strict
"""


def test_requests_over_a_limit_are_found_and_named(
    weir_serve: Callable[..., str], open_page: Open, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = tmp_path_factory.mktemp("limited") / "weir.yaml"
    config.write_text(LIMITED)
    url = weir_serve("--config", str(config)) + "/"
    page = open_page(url)
    page.locator("#model option").first.wait_for(state="attached")
    ask_and_wait(page, "Write to ann@initech.com")
    assert "Too many requests" in ask_and_wait(page, "Again").inner_text()
    page.goto(f"{url}#decisions?action=limit")
    row = page.get_by_role("row", name=re.compile(r"requests_per_minute"))
    row.wait_for()
    assert page.get_by_label("Decision", exact=True).locator("option:checked").inner_text() == "Over a limit"
    assert page.get_by_role("row", name=re.compile("pii")).count() == 0
    row.get_by_role("button", name="Over a limit").click()
    details = page.get_by_role("dialog", name="Over a limit")
    assert "the prompt" not in details.inner_text()
    assert faults(page) == []
    page.goto("about:blank")
    page.goto(f"{url}#decisions?key=nobody")  # a filter of the server that the form has no place for
    page.get_by_text("No decision was found.").wait_for()


def test_forced_colours_show_the_current_view_the_current_tab_and_what_is_on(
    url: str, open_page: Open
) -> None:
    page = open_page(url, forced_colors="active")
    panel(page, "Setup")
    page.get_by_role("switch", name="repetition").wait_for()

    def colour(css: str, of: str) -> str:
        return str(page.locator(css).evaluate(f"one => getComputedStyle(one).{of}"))

    current, other = (colour(f'nav a[href="#{view}"]', "borderBottomColor") for view in ("chat", "live"))
    assert current != other == colour("body", "backgroundColor")
    assert colour("#tab-setup", "backgroundColor") != colour("#tab-raw", "backgroundColor")
    off = colour('[role="switch"]', "backgroundColor")
    page.get_by_role("switch", name="repetition").check()
    assert colour('[role="switch"]', "backgroundColor") != off


LEVELS = "found => found.filter((one) => one.checkVisibility()).map((one) => Number(one.tagName[1]))"


def test_each_view_has_one_first_heading_and_leaves_no_level_out(url: str, open_page: Open) -> None:
    page = open_page(url)
    page.set_default_timeout(60_000)
    ask_and_wait(page, "What is your email address?")
    for view in ("Chat", "Live", "Decisions", "Shadow"):
        page.get_by_role("link", name=view, exact=True).click()
        page.get_by_role("heading", name=view, exact=True, level=1).wait_for()
        if view == "Live":
            page.get_by_text("First token").wait_for()
        levels = page.locator("h1, h2, h3, h4, h5, h6").evaluate_all(LEVELS)
        assert levels.count(1) == 1
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))


def test_charts_begin_with_what_happened_before_anybody_watched(url: str, open_page: Open) -> None:
    page = open_page(url)
    page.set_default_timeout(60_000)
    ask_and_wait(page, "Tell me a story about an otter")
    page.wait_for_function(
        """async () => {
            const { data } = await (await fetch("admin/live/past")).json();
            return data.length > 2 && data.at(-1).samples.weir_generation_tokens_total[0][1] > 0;
        }"""
    )
    page.get_by_role("link", name="Live").click()
    chart = page.get_by_role("img", name=re.compile("Tokens a second, the last two minutes"))
    chart.wait_for()
    points = chart.locator("polyline").get_attribute("points")
    assert points is not None
    assert len(points.split()) >= 2
    assert "at most 0" not in (chart.get_attribute("aria-label") or "")


def test_a_key_that_the_server_does_not_know_is_named_in_the_dialog(
    weir_serve: Callable[..., str], open_page: Open
) -> None:
    page = open_page(
        weir_serve("--engine", "echo", "--api-key", "k1", "--admin-key", "boss", "--store", IN_MEMORY)
    )
    page.get_by_role("button", name="Keys", exact=True).click()
    keys = page.get_by_role("dialog", name="Keys")
    keys.get_by_label("Client’s key").fill("k2")
    keys.get_by_label("Admin key").fill("bos")
    page.keyboard.press("Enter")
    keys.get_by_text("The server does not know this key.").wait_for()
    assert keys.get_by_text("The server does not know this admin key.").is_visible()
    assert keys.get_by_label("Client’s key").get_attribute("aria-invalid") == "true"
    assert page.evaluate("sessionStorage.getItem('weir.key.client')") is None
    assert faults(page) == []
    keys.get_by_label("Client’s key").fill("k1")
    keys.get_by_label("Admin key").fill("boss")
    page.keyboard.press("Enter")
    keys.wait_for(state="hidden")
    assert page.evaluate("sessionStorage.getItem('weir.key.client')") == "k1"
