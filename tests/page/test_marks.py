"""The marks of decisions stand on the words that they speak of, whatever other guards do to the text."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.page.conftest import WIDE, Open, faults
from tests.page.fake_server import DECISION, FakeServer, Wire
from tests.page.test_chat import ask_and_wait, panel
from tests.processes import WAIT_LIMIT, killed_at_end

pytestmark = pytest.mark.slow

ANSWER_JS = Path(__file__).parents[2] / "proxy/http/page/static/answer.js"
TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
TEXT = f"key {TOKEN} for otters, then mail ann@initech.com now"

Hook = tuple[str, str, str]
"""A pattern, its template, and the guard's action."""

HOOKS: dict[str, Hook] = {
    "short": ("alphabet", "<A>", "redact"),
    "long": ("beta", "<BBBBBBBBBB>", "redact"),
    "gone": ("gamma ", "", "suppress"),
    "inner": ("A|BBB", "<C>", "redact"),
    "outer": ("delta <[^>]{1,20}>", "<D>", "redact"),
    "shadow": ("epsilon", "<E>", "redact"),
}
WORDS = ["alphabet", "beta", "gamma", "delta", "epsilon", "zeta", "😀", "."]


def allowed() -> list[dict[str, Any]]:
    hooks = []
    for name, (pattern, template, action) in HOOKS.items():
        args = {"patterns": [pattern], "action": action, **({"template": template} if template else {})}
        mode = "shadow" if name == "shadow" else "enforce"
        hooks.append({"path": "patterns", "name": name, "mode": mode, "args": args})
    return hooks


LABELS = "found => found.map((one) => one.getAttribute('aria-label'))"
BEFORE = "found => found.map((one) => one.previousSibling?.data ?? '')"
WORDS_ALONE = """one => [...one.querySelectorAll('.paragraph')].flatMap((part) => [...part.childNodes])
    .map((node) => node.data ?? '').join('')"""

Cell = tuple[str, str | None]
"""A character, and the hook that wrote it."""
Pieces = list[list[Any]]
"""Pieces of text, each with the number of the decision whose mark covers it. A sign is an empty piece."""
Marked = Callable[[list[Any]], list[tuple[str, Pieces]]]


@pytest.fixture(scope="module")
def marked() -> Iterator[Marked]:
    """What the page shows of these events: `marked.mjs`."""
    if not (node := shutil.which("node")):
        pytest.skip("Node.js is not installed")
    command = [node, str(Path(__file__).with_name("marked.mjs")), str(ANSWER_JS)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with killed_at_end(subprocess.Popen(command, **pipes)) as process:

        def shown(events: list[Any]) -> list[tuple[str, Pieces]]:
            process.stdin.write(json.dumps(events) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield shown


@pytest.fixture(scope="module")
def url(weir_serve: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    config = tmp_path_factory.mktemp("marks") / "weir.yaml"
    config.write_text(json.dumps({"engine": "echo", "allowed_hooks": allowed()}))
    return weir_serve("--config", str(config))


def configuration(guards: dict[str, Any], orders: list[tuple[str, ...]]) -> dict[str, Any]:
    """A model for each order of guards and each action."""
    models, policies = {}, {}
    for order in orders:
        for action in ("redact", "suppress"):
            name = f"{'-'.join(order)}-{action}"
            models[name] = {"engine": "echo", "policy": name}
            hooks: list[dict[str, Any]] = [{"name": guard, **guards[guard]} for guard in order]
            acting = [{**one, "args": {**one.get("args", {}), "action": action}} for one in hooks]
            policies[name] = {"hooks": acting}
    return {"models": models, "policies": policies}


def content_of(marked: Marked, events: list[Any]) -> Pieces:
    return dict(marked(events)).get("content", [])


def events_of(url: str, text: str, hooks: list[str]) -> list[dict[str, Any]]:
    body = {"stream": True, "hooks": hooks, "messages": [{"role": "user", "content": text}]}
    headers = {"X-Weir-Decisions": "true", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=WAIT_LIMIT) as answer:
        said = answer.read().decode()
    events = []
    for one in said.strip().split("\n\n"):
        name = re.search(r"^event: (.*)$", one, re.M)
        data = re.search(r"^data: (.*)$", one, re.M)
        if data and data[1] != "[DONE]":
            events.append({"name": name[1] if name else "message", "value": json.loads(data[1])})
    return events


def expected(text: str, hooks: list[str]) -> list[Cell]:
    """Each character that is delivered, with the last hook that wrote it. An empty one: text is missing."""
    cells: list[Cell] = [(one, None) for one in text]
    for name in hooks:
        pattern, template, _ = HOOKS[name]
        if name == "shadow":
            continue
        places = [i for i, (one, _) in enumerate(cells) if one]
        for match in reversed(list(re.finditer(pattern, "".join(cells[i][0] for i in places)))):
            start, end = places[match.start()], places[match.end() - 1] + 1
            cells[start:end] = [(one, name) for one in template] or [("", name)]
    return cells


@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=14).map(" ".join),
    st.permutations([*HOOKS]),
    st.integers(1, len(HOOKS)),
)
def test_each_character_has_the_mark_of_the_guard_that_wrote_it(
    marked: Marked, url: str, text: str, hooks: list[str], num: int
) -> None:
    hooks = hooks[:num]
    events = events_of(url, text, hooks)
    decisions = [one["value"] for one in events if one["name"] == "weir.decision"]
    shown: list[Cell] = []
    for piece, number in content_of(marked, events):
        hook = None if number is None else decisions[number]["hook"]
        if hook == "shadow" and piece:
            hook = None
        shown += [(one, hook) for one in piece] or [("", hook)]
    right = expected(text, hooks)
    assert [one for one in shown if one[0]] == [one for one in right if one[0]]
    # What another guard took out as a whole has its sign beside what stands there now.
    if "outer" not in hooks:
        assert [one for one in shown if one[0] or one[1] == "gone"] == right


def decision(**fields: Any) -> dict[str, Any]:
    return {"name": "weir.decision", "value": {**DECISION, **fields}}


def said(**delta: Any) -> dict[str, Any]:
    return {"name": "message", "value": {"choices": [{"index": 0, "delta": delta}]}}


def called(index: int, arguments: str, name: str | None = None) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return said(tool_calls=[{"index": index, "function": function}])


def test_a_mark_behind_the_place_where_a_later_guard_ends_the_answer_stands_at_the_end(
    marked: Marked,
) -> None:
    events = [
        said(content="One "),
        decision(hook_index=0, offset=30, num_withheld=10, num_released=5),
        decision(hook_index=1, offset=8, num_withheld=20, action="terminate"),
        said(content="two Sorry."),
    ]
    assert content_of(marked, events) == [["One ", None], ["two ", None], ["", 0], ["", 1], ["Sorry.", None]]


def test_a_guard_behind_one_that_ends_the_answer_marks_its_closing_text(marked: Marked) -> None:
    events = [
        said(content="One "),
        decision(hook_index=0, offset=4, num_withheld=20, action="terminate"),
        decision(hook_index=1, offset=10, num_withheld=3, num_released=4),
        said(content="Sorry [it]!"),
    ]
    assert content_of(marked, events) == [["One ", None], ["", 0], ["Sorry ", None], ["[it]", 1], ["!", None]]


def test_a_rewind_takes_back_the_marks_of_the_withdrawn_text(marked: Marked) -> None:
    events = [
        said(content="One "),
        decision(hook_index=0, offset=8, num_withheld=2, num_released=9),
        decision(hook_index=1, offset=4, num_withheld=15, action="rewind"),
        said(content="two "),
        decision(hook_index=0, offset=8, num_withheld=5, num_released=3),
        decision(hook_index=1, offset=17, num_withheld=5, num_released=3),
        said(content="[x] then [y]."),
    ]
    assert content_of(marked, events) == [
        ["One ", None],
        ["", 0],
        ["", 1],
        ["two ", None],
        ["[x]", 2],
        [" then ", None],
        ["[y]", 3],
        [".", None],
    ]


def test_a_value_that_comes_back_is_marked_and_moves_what_follows(marked: Marked) -> None:
    events = [
        decision(hook_index=0, offset=3, num_withheld=9, num_released=2, action="restore"),
        decision(hook_index=1, offset=6, num_withheld=1, num_released=3),
        said(content="to ab [y]."),
    ]
    assert content_of(marked, events) == [["to ", None], ["ab", 0], [" ", None], ["[y]", 1], [".", None]]


def test_a_withheld_call_keeps_its_marks_and_a_later_call_gets_its_own(marked: Marked) -> None:
    tool: dict[str, Any] = {"channel": "tool_call", "num_withheld": 4}
    events = [
        decision(**tool, call_index=0, action="redact", num_released=3),
        called(0, "[x]!", "first"),
        decision(**tool, call_index=1, action="redact", mode="shadow"),
        decision(**tool, call_index=1, action="suppress"),
        decision(**tool, call_index=2, action="redact", num_released=3, offset=1),
        called(1, "a[y]!", "third"),
    ]
    assert marked(events) == [
        ["tool_call 0", [["[x]", 0], ["!", None]]],
        ["tool_call 1", [["", 2], ["", 1]]],
        ["tool_call 1", [["a", None], ["[y]", 3], ["!", None]]],
    ]


@pytest.mark.parametrize("size", [WIDE], ids=["wide"])
def test_marks_of_guards_in_any_order_stand_on_their_words(
    weir_serve: Callable[..., str], open_page: Open, tmp_path: Path, size: tuple[int, int]
) -> None:
    otters = {"path": "phrases", "args": {"phrases": ["otters"]}}
    guards: dict[str, Any] = {"pii": {"path": "pii"}, "secrets": {"path": "secrets"}, "otters": otters}
    orders = [*permutations(["pii", "secrets"]), *permutations(guards)]
    config = tmp_path / "weir.yaml"
    config.write_text(json.dumps(configuration(guards, orders)))
    page = open_page(weir_serve("--config", str(config)) + "/")
    for order in orders:
        for action in ("redact", "suppress"):
            panel(page, "Setup")
            page.get_by_label("Model", exact=True).select_option(f"{'-'.join(order)}-{action}")
            text = ask_and_wait(page, TEXT).locator(".content .text")
            found = text.locator(".mark:not(.hold)")
            labels = [one.split(":")[0] for one in found.evaluate_all(LABELS)]
            if action == "redact":
                assert found.all_inner_texts() == [
                    "[GITHUB_TOKEN]",
                    *(["[phrase]"] if "otters" in order else []),
                    "[EMAIL_ADDRESS]",
                ]
            else:
                assert "key  for" in text.evaluate(WORDS_ALONE)
            by = ["secrets", *(["otters"] if "otters" in order else []), "pii"]
            assert [one.split(" by ")[1] for one in labels] == by
            before = found.evaluate_all(BEFORE)
            assert before == ["key ", *([" for "] if "otters" in order else []), before[-1]]
            assert before[-1].endswith(", then mail ")


NARROW_CELL = """found => found.map((one) => [one.getBoundingClientRect().height,
    parseFloat(getComputedStyle(one).lineHeight), one.scrollWidth <= one.clientWidth])"""


def test_a_mark_in_a_tables_cell_is_one_line(fake: FakeServer, open_page: Open) -> None:
    head = "| name | mail | phone | more |\n|---|---|---|---|\n| Ann Example | "

    async def script(wire: Wire) -> None:
        await wire.text(head)
        await wire.decision(offset=len(head), num_withheld=30, num_released=15)
        await wire.text("[EMAIL_ADDRESS] | ")
        await wire.decision(action="suppress", offset=len(head) + 33, num_withheld=40)
        await wire.text("12345 | words that are many |\n")
        await wire.end()

    fake.script = script
    page = open_page(fake.url)
    marks = ask_and_wait(page).locator("td .mark")
    assert marks.all_inner_texts() == ["[EMAIL_ADDRESS]", "withheld by pii"]
    for height, line, fits in marks.evaluate_all(NARROW_CELL):
        assert height < 2 * line
        assert fits
    assert faults(page) == []


@pytest.mark.parametrize("size", [WIDE], ids=["wide"])
def test_a_paragraph_that_is_too_long_becomes_two_between_words(
    fake: FakeServer, open_page: Open, size: tuple[int, int]
) -> None:
    words = [f"word{i}" for i in range(3000)]

    async def script(wire: Wire) -> None:
        text = " ".join(words)
        for start in range(0, len(text), 700):
            await wire.text(text[start : start + 700])
        await wire.end()

    fake.script = script
    parts = ask_and_wait(open_page(fake.url)).locator(".content .paragraph").all_text_contents()
    assert len(parts) > 1
    assert [word for part in parts for word in part.split()] == words


@pytest.mark.parametrize("size", [WIDE], ids=["wide"])
def test_what_a_cut_left_open_is_not_called_redacted(
    weir_serve: Callable[..., str], open_page: Open, size: tuple[int, int]
) -> None:
    page = open_page(weir_serve("--engine", "echo", "--hook", "pii") + "/")
    panel(page, "Setup")
    page.get_by_label("Most tokens").fill("2")
    answer = ask_and_wait(page, "hello world this is text")
    mark = answer.locator(".text .mark:not(.hold)")
    assert mark.inner_text().strip() == "withheld at the cut"
    assert mark.get_attribute("aria-label") == "Withheld at the cut by pii, 5 characters"
    assert "edacted" not in answer.inner_text()
