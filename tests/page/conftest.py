"""The page in Chromium, as people use it. `make test-page` runs these tests. They skip without Chromium."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.page.fake_server import FakeServer, running

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
ASSETS = Path(__file__).parents[2] / "docs" / "assets"
WIDE, NARROW = (1440, 900), (360, 740)

Open = Callable[..., Any]


@pytest.fixture(scope="module")  # while it runs, no other event loop can
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome")
    installed = next(filter(None, map(shutil.which, names)), None)
    with api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=installed, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(f"Chromium does not start: {error.message.splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture(params=[WIDE, NARROW], ids=["wide", "narrow"])
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    return request.param


@pytest.fixture
def open_page(browser: Any, size: tuple[int, int]) -> Iterator[Open]:
    """`open_page(url)`: the page in a window of its own. The test fails if a script does."""
    failures: list[str] = []
    contexts = []

    def open_(url: str, scheme: str = "light", **options: Any) -> Any:
        width, height = size
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
            device_scale_factor=1,
            **options,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.on("console", lambda told: "Content Security Policy" in told.text and failures.append(told.text))
        page.on(
            "request",
            lambda asked: asked.url.startswith((page_origin, "data:")) or failures.append(asked.url),
        )
        page_origin: str = "/".join(url.split("/")[:3])
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert failures == []


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with running(FakeServer()) as server:
        yield server


def faults(page: Any) -> list[tuple[str, str, list[str]]]:
    """The faults that axe finds, each with its rule, its impact and the elements."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make test-page installs it")
    page.evaluate(AXE.read_text())  # by the debugger, which the page's policy does not concern
    found = page.evaluate("async () => (await axe.run(document)).violations")
    return [(one["id"], one["impact"], [node["html"][:200] for node in one["nodes"]]) for one in found]
