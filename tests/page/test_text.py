"""An answer's text: Markdown and code, marks in it, and what is copied."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.page.conftest import Open, faults
from tests.page.fake_server import FakeServer, Script, Wire
from tests.page.test_chat import WATCH_TASKS, ask, ask_and_wait

pytestmark = pytest.mark.slow

MARKDOWN = """# A title

Some **bold** and *slanted* words, `code`, ~~gone~~ and [a link](https://example.org/a?b=c).
A second line.

### Deeper than it may be

1. first
   - inside
   - too
2. second

   with a paragraph

> said by
> somebody

| name | value |
|------|-------|
| a    | `1`   |
| b    | 2     |

```python
def f(x):
    return "*x*"
```

---
The end, 2 * 3 * 4, snake_case_name and \\*stars\\*.
"""

STRUCTURE = """(root) => {
    const isText = (one) => typeof one === "string";
    const joined = (all, one) => isText(one) && isText(all.at(-1))
        ? [...all.slice(0, -1), all.at(-1) + one] : [...all, one];
    const shown = (node) => node.nodeType === Node.TEXT_NODE ? node.data
        : [{ tag: node.tagName }, ...[...node.childNodes].map(shown).reduce(joined, [])];
    return shown(root);
}"""
"""Elements and texts. Text nodes side by side are one."""

WRITE = """async ([texts, isPlain]) => {
    const { StreamedText } = await import("/page/markdown.js");
    const root = document.createElement("div");
    const text = new StreamedText(root, { isPlain });
    for (const one of texts) {
        if (one === null) text.insert(document.createElement("i"));
        else text.append(one);
        text.draw();
    }
    return (STRUCTURE)(root);
}""".replace("STRUCTURE", STRUCTURE)
TAGS = "found => found.map((one) => [one.tagName, one.textContent])"


def says(*texts: str) -> Script:
    async def script(wire: Wire) -> None:
        for text in texts:
            await wire.text(text)
        await wire.end()

    return script


def shape(page: Any, texts: list[str | None], is_plain: bool = False) -> Any:
    return page.evaluate(WRITE, [texts, is_plain])


def test_markdown_becomes_headings_lists_tables_and_code(fake: FakeServer, open_page: Open) -> None:
    fake.script = says(*MARKDOWN.splitlines(keepends=True))
    page = open_page(fake.url)
    text = ask_and_wait(page).locator(".content .text")
    levels = text.get_by_role("heading").evaluate_all(TAGS)
    assert levels == [["H3", "A title"], ["H4", "Deeper than it may be"]]
    assert text.locator("strong").inner_text() == "bold"
    assert text.locator("em").inner_text() == "slanted"
    assert text.locator("del").inner_text() == "gone"
    link = text.get_by_role("link")
    assert link.get_attribute("href") == "https://example.org/a?b=c"
    assert link.get_attribute("rel") == "noopener noreferrer nofollow"
    assert text.locator("ol > li").count() == 2
    assert text.locator("ol > li").first.locator("ul > li").all_inner_texts() == ["inside", "too"]
    assert text.locator("ol > li").last.inner_text().split() == ["second", "with", "a", "paragraph"]
    assert text.locator("blockquote").inner_text() == "said by\nsomebody"
    assert text.get_by_role("cell").all_inner_texts() == ["a", "1", "b", "2"]
    assert text.get_by_role("columnheader").all_inner_texts() == ["name", "value"]
    assert text.locator("pre code").evaluate("one => one.textContent") == 'def f(x):\n    return "*x*"\n'
    assert text.locator("hr").count() == 1
    assert "The end, 2 * 3 * 4, snake_case_name and *stars*." in text.inner_text()
    assert faults(page) == []


def test_links_lead_only_to_the_web_and_pictures_are_not_loaded(fake: FakeServer, open_page: Open) -> None:
    fake.script = says(
        "[a](javascript:alert(1)) [b](data:text/html,x) [c](/admin/keys) [d](//evil.example) ",
        "![picture](https://evil.example/x.png) [mail](mailto:ann@initech.org)",
    )
    page = open_page(fake.url)  # it fails if the page asks another server
    text = ask_and_wait(page).locator(".content .text")
    links = text.locator("a").evaluate_all("found => found.map((one) => [one.textContent, one.href])")
    assert links == [["picture", "https://evil.example/x.png"], ["mail", "mailto:ann@initech.org"]]
    assert page.locator("img:not(.brand img)").count() == 0
    assert "[a](javascript:alert(1)) [b](data:text/html,x) [c](/admin/keys)" in text.inner_text()


def test_a_mark_stands_inside_code_and_is_not_copied(fake: FakeServer, open_page: Open) -> None:
    async def script(wire: Wire) -> None:
        await wire.text('```sh\nexport KEY="')
        await wire.decision(offset=18, num_withheld=10, num_released=5, hook="secrets", reason="KEY")
        await wire.text("[KEY]")
        await wire.decision(action="suppress", offset=23, num_withheld=4, hook="other")
        await wire.text('"\n```\nDone **')
        await wire.decision(action="suppress", offset=40, num_withheld=4, hook="other")
        await wire.text("now**.")
        await wire.end()

    fake.script = script
    page = open_page(fake.url, permissions=["clipboard-read", "clipboard-write"])
    answer = ask_and_wait(page)
    code = answer.locator("pre code")
    assert code.locator(".mark").first.inner_text() == "[KEY]"
    assert answer.locator("strong .mark").count() == 1
    assert faults(page) == []
    answer.get_by_role("button", name="Copy code").click()
    answer.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == 'export KEY="[KEY]"\n'
    answer.get_by_role("button", name="Copy the answer").click()
    page.get_by_role("status").get_by_text("Copied.").wait_for()
    page.wait_for_function("navigator.clipboard.readText().then((text) => text.endsWith('**now**.'))")


def test_a_mark_that_has_the_focus_keeps_it_while_text_comes(fake: FakeServer, open_page: Open) -> None:
    more = asyncio.Event()
    loops = []

    async def script(wire: Wire) -> None:
        loops.append(asyncio.get_running_loop())
        await wire.text("Write **to ")
        await wire.decision(num_withheld=10, num_released=7, offset=11)
        await wire.text("[EMAIL] ")
        await more.wait()
        await wire.text("or** `call`.")
        await wire.end()

    fake.script = script
    page = open_page(fake.url)
    ask(page)
    mark = page.locator(".text .mark")
    mark.get_by_text("[EMAIL]").wait_for()
    mark.focus()
    loops[0].call_soon_threadsafe(more.set)
    page.locator("strong .mark").wait_for()
    assert mark.evaluate("one => one === document.activeElement")


SIGNS = [
    "*",
    "**",
    "`",
    "```",
    "\n",
    "\n\n",
    "- ",
    "1. ",
    "# ",
    "> ",
    "|",
    "---",
    "[",
    "](https://x.y)",
    "_",
    "~~",
    "\\",
    "  ",
    "!",
    "a",
    "word ",
    None,
]


def test_however_the_text_is_cut_it_becomes_the_same(fake: FakeServer, open_page: Open) -> None:
    page = open_page(fake.url)

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.sampled_from(SIGNS), max_size=30), st.data())
    def check(parts: list[str | None], data: st.DataObject) -> None:
        whole: list[str | None] = []
        for part in parts:
            if part is not None and whole and whole[-1] is not None:
                whole[-1] += part
            else:
                whole.append(part)
        cut: list[str | None] = []
        for part in whole:
            if part is None:
                cut.append(None)
                continue
            places = sorted(data.draw(st.sets(st.integers(0, len(part)), max_size=6)) | {0, len(part)})
            cut += [part[a:b] for a, b in pairwise(places)]
        assert shape(page, cut) == shape(page, whole)

    check()
    cut_marks = [*MARKDOWN]
    assert shape(page, list(cut_marks)) == shape(page, [MARKDOWN])


def test_a_text_full_of_signs_without_ends_is_drawn_at_once(fake: FakeServer, open_page: Open) -> None:
    page = open_page(fake.url)
    for sign in ("*a ", "_a ", "`a ``", "[a](", "~~a ", "**a *b ", "> ", "- ", "| a "):
        page.evaluate(WRITE, [[sign * 3000], False])


def test_an_answer_of_a_thousand_marks_stays_fast(fake: FakeServer, open_page: Open) -> None:
    async def script(wire: Wire) -> None:
        for i in range(1000):
            await wire.held(3)
            await wire.text("*to* ")
            await wire.decision(offset=5 * i + 5, num_withheld=3, num_released=3)
            await wire.held(0)
            await wire.text("[x]")
        await wire.end()

    fake.script = script
    page = open_page(fake.url)
    page.set_default_timeout(60_000)
    page.evaluate(WATCH_TASKS)
    answer = ask_and_wait(page)
    assert answer.locator(".text .mark").count() == 1000
    assert answer.locator(".text .held").count() == 0
    assert page.evaluate("longest") < 2000  # milliseconds that the page did not answer, on a busy machine
