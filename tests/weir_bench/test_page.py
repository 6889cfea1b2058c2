"""Results as one HTML page."""

import math
from html.parser import HTMLParser

import pytest

from tests.weir_bench.conftest import NASTY, make_record, make_results
from weir_bench.client import Failure
from weir_bench.page import page
from weir_bench.plan import Level, Plan, Run, Target
from weir_bench.prompts import WordPrompts
from weir_bench.results import Results
from weir_bench.tables import tables


class Checker(HTMLParser):
    """Parses a page, fails at a tag that is not closed, and keeps tags, attributes and text."""

    VOID = ("meta", "br", "hr", "img", "link", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: dict[str, list[str]] = {}
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data


def test_the_page_is_whole_html_with_an_svg_for_every_plot() -> None:
    text = page(make_results())
    assert text.startswith("<!DOCTYPE html>\n<html")
    found = Checker(text)
    num_plots = found.tags.count("figure")
    assert num_plots == 3 + 2 * 6  # three over all loads, six for each load
    assert found.attributes["role"] == ["img"] * num_plots
    assert found.tags.count("svg") == num_plots + 3 * 2  # the legends have one svg for each target
    numbers = " ".join(found.attributes["points"] + found.attributes["cx"] + found.attributes["cy"])
    assert all(math.isfinite(float(number)) for number in numbers.replace(",", " ").split())


def test_names_cannot_break_out_of_the_page() -> None:
    results = make_results()
    results.runs[0].records.append(make_record(failure=Failure(NASTY, NASTY)))
    found = Checker(page(results))
    assert "script" not in found.tags
    assert found.text.count(NASTY) >= 4


def test_the_page_needs_no_other_file() -> None:
    text = page(make_results())
    assert not {"src", "href", "srcset", "action"} & set(Checker(text).attributes)
    assert "url(" not in text
    assert "@import" not in text


@pytest.mark.parametrize("level", [Level(concurrency=2), Level(request_rate=2.0)])
def test_a_page_of_failures_only_is_still_whole(level: Level) -> None:
    plan = Plan([Target("a", "http://a/v1", "m")], [level], WordPrompts(1, 3), seed=1)
    failed = make_record(failure=Failure("HTTP 500", "The engine has failed."))
    results = Results(plan, [Run(plan.targets[0], level, records=[failed], duration=1.0)])
    found = Checker(page(results))
    assert "1 × HTTP 500: The engine has failed." in found.text
    assert found.tags.count("figure") == 6
    assert " -" in tables(results)[1].text()
