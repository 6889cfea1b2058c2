"""Promises of every guard that ships."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.guards import PROSE
from engine.protocol import Delta, SamplingParams, Token, TopLogprob
from engine.protocol.import_path import find_class
from hooks import builtin
from hooks.api import Chunk, StreamContext
from hooks.detect.span_guard import SpanGuard
from hooks.loading.loader import SHORT_NAMES, HookSpec, load_hook
from hooks.testing.check import check
from tests.helpers import guard_all, make_request, pipeline_of, slow, text_of
from tests.hooks.builtin.streams import Watch, said

FOLDER = Path(builtin.__file__).parent
ARGUMENTS: dict[str, dict[str, Any]] = {
    "links": {"allow": ["example.org"]},
    "names": {"entities": ["PERSON", "LOCATION", "ORGANIZATION"]},
    "patterns": {
        "patterns": [r"\bproject \w{1,12}", r"\d{4}(?: ?\d{4}){3}", "a{2,9}", r"[\w.]{1,64}@[\w.]{1,64}"]
    },
    "phrases": {"phrases": ["project bluebird", "hunter2", "tea tea", "e-mail", "世界"]},
    "pii": {},
    "repetition": {"min_repeats": 3, "min_length": 13, "max_period": 8},
    "secrets": {},
}


@pytest.fixture(autouse=True)
def mode() -> str:
    """The check runs them here and in a worker."""
    return "both"


def test_all_have_a_short_name() -> None:
    files = {f"hooks.builtin.{file.stem}": file.stem for file in FOLDER.glob("[!_]*.py")}
    assert {path.rpartition(".")[0]: name for name, path in SHORT_NAMES.items()} == files


def test_all_that_find_spans_are_tested_here() -> None:
    names = SHORT_NAMES.keys() - {"presidio"}  # a large library
    finding = {name for name in names if issubclass(find_class(SHORT_NAMES[name]), SpanGuard)}
    assert finding == ARGUMENTS.keys(), "give them arguments in ARGUMENTS"


OTHER_ACTIONS = ("suppress", "terminate", "rewind")
"""In the check, `suppress` redacts to nothing, and `rewind` terminates: no model can go on."""


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("pii", "redact"),
        *(
            slow(name, action)
            for name in ARGUMENTS
            for action in ("redact", *OTHER_ACTIONS)
            if (name, action) != ("pii", "redact")
        ),
    ],
)
async def test_each_passes_the_hook_check_and_holds_at_most_what_it_says(name: str, action: str) -> None:
    spec = HookSpec(name, {**ARGUMENTS[name], "action": action, "prompt": "redact"})
    results = await check(spec)
    assert results[-1].name == "prompts"
    assert [result for result in results if not result.is_good] == []
    most_held = max(result.num_held for result in results)
    assert most_held > 5 or name == "repetition"
    guard: Any = load_hook(spec).call
    assert most_held <= guard.max_hold


@pytest.mark.parametrize("action", ["redact", *map(slow, OTHER_ACTIONS)])
async def test_the_one_about_the_prompt_passes_the_hook_check_too(action: str) -> None:
    results = await check(HookSpec("prompt_leak", {"roles": ["user"], "min_words": 1, "action": action}))
    assert [result for result in results if not result.is_good] == []


@pytest.mark.slow
async def test_those_for_agents_pass_the_hook_check_too() -> None:
    rules = [{"tools": ["send_mail"], "asked": "hello", "when": {"/to": {"pattern": ".*"}}}]
    for spec in (HookSpec("tools", {"rules": rules}), HookSpec("wrap")):
        results = await check(spec)
        assert results[-1].name == "prompts"
        assert [result for result in results if not result.is_good] == []


@pytest.mark.slow
async def test_the_one_that_reads_scores_passes_the_hook_check_too() -> None:
    args = {"threshold": 2.0, "smoothing": "max_of_means", "span": 3, "action": "redact"}
    results = await check(HookSpec("probe", args))
    assert [result for result in results if not result.is_good] == []


def test_what_it_says_covers_phrases_that_json_writes_in_escapes() -> None:
    guard: Any = load_hook(HookSpec("phrases", {"phrases": ["\U0001f600" * 40 + "."]})).call
    watch = Watch(guard)
    said(watch, list('{"a": "' + r"\ud83d\ude00" * 40 + '"}'), "tool_call")
    assert 39 * 12 <= watch.most_held <= guard.max_hold


@pytest.mark.parametrize("name", ["pii", "secrets"])
def test_prose_waits_for_no_more_than_a_word(name: str) -> None:
    watch = Watch(load_hook(HookSpec(name)).call)
    assert said(watch, list(PROSE)) == PROSE
    assert watch.most_held <= max(map(len, PROSE.split())) + 1


ALIKE = Token(0, "hunter1", b"hunter1", -0.5, (TopLogprob(1, b"hunter2", -0.75),))
OF_ANY_LENGTH = Token(2, " on", b" on", -0.5, (TopLogprob(3, b" an", -0.75),))


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_each_withholds_alternatives_unless_told_to_keep_them(name: str) -> None:
    deltas = [Delta(text=one.text, tokens=(one,)) for one in (ALIKE, OF_ANY_LENGTH)]
    for kept, num_kept in (("withhold", 0), ("keep", 1)):
        hook = load_hook(HookSpec(name, {**ARGUMENTS[name], "alternatives": kept}))
        assert hook.withholds_alternatives is (not num_kept)
        guard = hook.call
        released = await guard_all(pipeline_of(guard), [*deltas, Delta(finish_reason="stop")], make_request())
        assert text_of(released) == "hunter1 on"
        assert [len(token.top) for delta in released for token in delta.tokens] == [num_kept] * 2


def test_without_logprobs_text_passes_by_the_shorter_way() -> None:
    guard = load_hook(HookSpec("phrases", ARGUMENTS["phrases"])).call
    request = replace(make_request(), sampling=SamplingParams())
    for asked, is_kept in ((request, True), (make_request(), False)):
        context = StreamContext(asked)
        context.text_diffs.append("well. ")
        assert guard(Chunk(context, "well. ")).alternatives is is_kept


@pytest.mark.parametrize("name", ARGUMENTS)
def test_each_passes_what_it_does_not_look_for(name: str) -> None:
    guard = load_hook(HookSpec(name, ARGUMENTS[name])).call
    text = "A heron stood at the weir, and waited. 你好! Grüße; 3 of 4.\n"
    assert said(guard, list(text)) == text
    assert said(guard, list(text), "tool_call") == text
