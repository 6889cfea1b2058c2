"""Hooks by import path (contract 1.1, 1.4)."""

import logging
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hooks.loading.alarm import interrupting
from hooks.loading.loader import HookLoadError, HookSpec, load_hook
from hooks.pipeline.pipeline import Pipeline

GUARD = """
import time
from hooks import emit

class Guard:
    def __init__(self, word="none"):
        self.word = word

    def __call__(self, chunk):
        return emit(chunk.pending)

class Slow(Guard):
    async def __call__(self, chunk):
        return emit(chunk.pending)

class Deaf:
    pass

class PromptsAlone:
    def on_request(self, request):
        return request

class Broken:
    def __init__(self):
        raise RuntimeError("no model here")

class Hangs(Guard):
    def __init__(self):
        time.sleep(60)

not_a_class = Guard()
"""


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "acme_guards.py").write_text(GUARD)
    (tmp_path / "broken_guards.py").write_text("import no_such_module")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    monkeypatch.delitem(sys.modules, "acme_guards", raising=False)
    return tmp_path


@pytest.mark.parametrize("path", ["acme_guards.Guard", "acme_guards:Guard", "acme_guards.py:Guard"])
def test_a_hook_is_found_by_each_form_of_path(folder: Path, path: str) -> None:
    hook = load_hook(HookSpec(path, {"word": "x"}))
    guard: Any = hook.call
    assert hook.name == path
    assert guard.word == "x"
    assert not hook.is_async


def test_an_async_hook_is_known_as_such(folder: Path) -> None:
    assert load_hook(HookSpec("acme_guards.Slow")).is_async


@pytest.mark.parametrize(
    ("arguments", "takes_state"),
    [
        ("self, request", False),
        ("self, request, state", True),
        ("self, request, state, more=1", True),
        ("self, request, language='en'", False),
        ("self, request, *more", False),
        ("self, request, *, state=None", False),
    ],
)
def test_a_hook_on_prompts_gets_a_state_if_it_needs_a_second_argument(
    arguments: str, takes_state: bool, tmp_path: Path
) -> None:
    source = (
        f"class Hook:\n    def on_request({arguments}): return request\n    def __call__(self, chunk): ...\n"
    )
    (tmp_path / "one.py").write_text(source)
    assert load_hook(HookSpec(f"{tmp_path}/one.py:Hook")).takes_state is takes_state


def test_classes_of_one_file_share_their_module(folder: Path) -> None:
    first, second = (load_hook(HookSpec(f"acme_guards.py:{name}")) for name in ("Guard", "Slow"))
    assert type(first.call).__module__ == type(second.call).__module__


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (HookSpec("no_such_package.Guard"), "No module named 'no_such_package'"),
        (HookSpec("missing.py:Guard"), "no file"),
        (HookSpec("acme_guards.Nothing"), "has no class 'Nothing'"),
        (HookSpec("acme_guards.not_a_class"), "has no class"),
        (HookSpec("acme_guards.Deaf"), "__call__"),
        (HookSpec("acme_guards.Broken"), "no model here"),
        (HookSpec("acme_guards.Guard", {"wrong": 1}), "unexpected keyword argument 'wrong'"),
        (HookSpec("broken_guards.py:Guard"), "No module named 'no_such_module'"),
        (HookSpec("broken_guards.Guard"), "No module named 'no_such_module'"),
        (HookSpec("Guard"), "names no class"),
        (HookSpec("acme_guards:"), "names no class"),
        (HookSpec("acme_guards.PromptsAlone"), r"has no __call__\(self, chunk\); .* emit\(chunk.pending\)"),
    ],
    ids=lambda value: value.path if isinstance(value, HookSpec) else "",
)
def test_what_cannot_be_loaded_is_refused_with_its_reason(folder: Path, spec: HookSpec, reason: str) -> None:
    with pytest.raises(HookLoadError, match=reason) as caught:
        load_hook(spec)
    assert spec.path in str(caught.value)


def test_a_hook_that_hangs_is_named_before_it_is_loaded_and_interrupted(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:  # contract 1.4, 1.8
    load_hook(HookSpec("acme_guards.Slow"))  # imports the module, so that only the hook takes time
    with caplog.at_level(logging.INFO):
        with pytest.raises(HookLoadError, match="could not be built: TimeoutError"):
            load_hook(HookSpec("acme_guards.Hangs"), timeout=0.1)
    assert caplog.messages == ["loading hook acme_guards.Hangs"]


def test_an_alarm_that_was_set_before_still_comes() -> None:
    heard: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    earlier = signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(TimeoutError), interrupting(0.1):
            time.sleep(60)
        assert signal.getsignal(signal.SIGALRM) is not handler
        while not heard:
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *earlier)


def test_a_deployments_hooks_folder_is_part_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "acme.py").write_text(GUARD)
    code = "from hooks.loading.loader import *; print(load_hook(HookSpec('hooks.acme.Guard')).name)"
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout.strip(), ran.stderr) == ("hooks.acme.Guard", "")


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("def __call__(self): ...", "called as __call__(chunk), and is written as __call__()"),
        ("def __call__(self, chunk, more): ...", "written as __call__(chunk, more)"),
        ("def on_request(self): ...", "called as on_request(request), and is written as on_request()"),
        ("async def on_request(self, a, b, c): ...", "written as on_request(a, b, c)"),
        ("def on_decision(self): ...", "called as on_decision(decision), and is written as on_decision()"),
    ],
)
def test_a_method_with_a_wrong_number_of_arguments_is_named_with_its_line(
    method: str, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "one.py"
    file.write_text(f"class Hook:\n    def __call__(self, chunk): ...\n    {method}\n")
    with pytest.raises(HookLoadError) as raised:
        load_hook(HookSpec(f"{file}:Hook"))
    assert reason in str(raised.value)
    assert str(raised.value).endswith(f" ({file}:3)")


def test_missing_arguments_are_told_with_the_line_of_the_init(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text("class Hook:\n    def __init__(self, word): ...\n    def __call__(self, chunk): ...\n")
    with pytest.raises(HookLoadError, match=r"missing 1 required .*one\.py:2\)$"):
        load_hook(HookSpec(f"{file}:Hook"))


@pytest.mark.parametrize("value", ['"ten"', "True", "-1", "2.5"])
def test_a_max_hold_that_is_no_number_of_characters_is_refused(value: str, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        f"class Hook:\n    max_hold = {value}\n    def __call__(self, chunk): ...\n"
    )
    with pytest.raises(HookLoadError, match="max_hold is a number of characters, 0 or more, not"):
        load_hook(HookSpec(f"{tmp_path}/one.py:Hook"))


async def test_a_failed_self_test_is_told_once_at_the_authors_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "one.py"
    file.write_text("class Hook:\n    max_hold = 3\n    def __call__(self, chunk):\n        return None\n")
    pipeline = Pipeline([load_hook(HookSpec(f"{file}:Hook"))])
    with pytest.raises(HookLoadError) as raised:
        await pipeline.start()
    assert str(raised.value).endswith(f"it returned NoneType, which is not a verdict ({file}:3)")
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
