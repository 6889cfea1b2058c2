"""README.md and the pages in docs/: their blocks are run, and their links lead somewhere.

A page's blocks run in order, in one temporary folder with `examples/`, `tests/recordings/` and README.md.

- `python`: a block that begins with a comment `# name.py` is written to that file. A block that is a part of
  a file in `examples/` is left to the tests of examples; a line `...` stands for lines that are not shown.
  Any other block is executed.
- `console`: each line after `$` is run. The lines shown below it must be in its output, in that order; a
  decimal number stands for any, and `...` for what is left out. With nothing shown, the command must succeed.
  `weir serve` is started only if a client comes after it; otherwise its options are read. `weir hooks fuzz`
  draws the same texts in each run. `make` is not carried out; its target must exist. `NAME=value` before
  `weir` sets a variable for it.
- `yaml`: the block is read as the configuration of `weir serve`.
- `text`, `json` and no name: the block is not run.

`<!-- not run: REASON -->` right above a block keeps it from being run.
"""

import inspect
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import pytest

from engine.protocol.import_path import find_class
from hooks.loading.arguments import check_arguments
from hooks.loading.loader import SHORT_NAMES
from hooks.testing import play
from proxy.http.admission import Exchange
from proxy.settings.serve import ServeSettings, load_settings
from tests.weir import ROOT, run_weir
from tools.docs.generate import updated

ROOT_PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*ROOT_PAGES, *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BLOCK = re.compile(r"^(?:<!-- not run: ([^\n]+) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXTS = (".md", ".py", ".yaml", ".toml", ".service", ".gpu", "")
"""The ends of names of files that people read."""
NOT_CODE = ("", "text", "json")
ADDRESS = "127.0.0.1:8000"
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
OPERATIONS = ROOT / "docs" / "operations.md"
"""Its blocks need a shell and several servers: tests/test_walk.py."""
each_page = pytest.mark.parametrize("page", PAGES, ids=NAMES)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    place: str
    reason: str | None
    """Why it is not run."""


def blocks(page: Path) -> Iterator[Block]:
    content = page.read_text()
    for found in BLOCK.finditer(content):
        reason, language, text = found.groups()
        yield Block(language, text, f"{page.name}:{content.count(chr(10), 0, found.start()) + 1}", reason)


class Reader:
    """Follows a page as a reader would, in one folder."""

    def __init__(self, folder: Path, start_server: Callable[..., str]) -> None:
        self._folder = folder
        self._start_server = start_server
        self._options: list[str] = []
        """The options of the last `weir serve`."""

    def run(self, block: Block) -> None:
        {"python": self._python, "console": self._console, "yaml": self._yaml}[block.language](block)

    def _python(self, block: Block) -> None:
        if name := re.match(r"# (\w+\.py)\n", block.text):
            (self._folder / name[1]).write_text(block.text)
        elif not is_excerpt(block.text):
            exec(compile(self._addressed(block.text), block.place, "exec"), {"__name__": "example"})

    def _yaml(self, block: Block) -> None:
        name = re.match(r"# (\w+\.yaml)", block.text)
        file = self._folder / (name[1] if name else "block.yaml")
        file.write_text(block.text)
        check_guards(load_settings(["--config", str(file)]))

    def _console(self, block: Block) -> None:
        text = block.text.replace("\\\n", "")
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            output, code = self._output_of(re.sub(r"\s+# .*", "", command))
            if shown.strip():
                assert_shows(output, shown, f"{block.place}: {command}")
            else:
                assert code == 0, f"{block.place}: {command}\n{output}"

    def _output_of(self, command: str) -> tuple[str, int]:
        words = shlex.split(command)
        variables = list(takewhile(re.compile(r"[A-Z_]+=").match, words))
        program, *arguments = words[len(variables) :]
        environment = dict(word.split("=", 1) for word in variables)
        if program == "make":
            return self._make(arguments)
        if Path(program).name == "weir":
            return self._weir(*arguments, **environment)
        if program == "curl" and shutil.which(program) is None:
            pytest.skip("there is no curl here")
        known = {"pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"], "curl": ["curl"]}
        return self._outcome([*known[program], *map(self._addressed, arguments)])

    def _weir(self, command: str, *arguments: str, **environment: str) -> tuple[str, int]:
        if command == "serve":
            check_guards(load_settings(list(arguments)))
            own = {file.name: str(file) for file in self._folder.glob("*.yaml")}
            self._options = [own.get(argument, argument) for argument in arguments]
            return "", 0
        if command in ("chat", "bench"):
            arguments = (*arguments, "--url", self._addressed(f"http://{ADDRESS}/v1"))
        if arguments[:1] == ("fuzz",):
            arguments = (*arguments, "--seed", "1")
        ended = run_weir(command, *arguments, cwd=self._folder, env={**ENVIRONMENT, **environment})
        return ended.stdout + ended.stderr, ended.returncode

    def _make(self, arguments: list[str]) -> tuple[str, int]:
        planned = subprocess.run(
            ["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for line in planned.stdout.splitlines():
            if " serve" in line and "/weir" in line:
                return self._output_of(line)
        return "", 0

    def _outcome(self, command: list[str]) -> tuple[str, int]:
        ended = subprocess.run(
            command,
            cwd=self._folder,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return ended.stdout, ended.returncode

    def _addressed(self, text: str) -> str:
        """The text, with the address of a running server."""
        if ADDRESS not in text:
            return text
        return text.replace(ADDRESS, self._start_server(*self._options).removeprefix("http://"))


def is_excerpt(code: str) -> bool:
    """Whether it is made of whole lines of one file in `examples/`."""
    parts = re.split(r"^ *\.\.\.\n", code, flags=re.MULTILINE)
    files = [file.read_text() for file in (ROOT / "examples").glob("*.py")]
    return any(all(f"\n{part.strip(chr(10))}\n" in file for part in parts) for file in files)


def check_guards(settings: ServeSettings) -> None:
    """The arguments of guards that ship. Other hooks that pages name are made up."""
    for hook in (*settings.base_policy.hooks, *settings.base_policy.allowed_hooks):
        if path := SHORT_NAMES.get(hook.path):
            check_arguments(cast(Any, find_class(path)).__init__, hook.args)


def assert_shows(output: str, shown: str, command: str) -> None:
    """Every shown line is in the output, in that order."""
    lines = iter(plain(output))
    for wanted in plain(shown):
        whole = re.compile(".*".join(map(re.escape, wanted.split("..."))))
        assert any(whole.search(line) for line in lines), (
            f"{command}\ndoes not print\n{wanted}\nbut\n{output}"
        )


def plain(text: str) -> list[str]:
    """The lines, with single spaces, and decimal numbers as one sign; without `...`."""
    lines = (" ".join(re.sub(r"\d+\.\d+", "#", line).split()) for line in text.splitlines())
    return [line for line in lines if line not in ("", "...")]


@each_page
def test_every_block_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weir_serve: Callable[..., str]
) -> None:
    if page == OPERATIONS:
        pytest.skip("tests/test_walk.py follows it")
    (tmp_path / "tests").mkdir()
    for name in ("examples", "tests/recordings", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path, weir_serve)
    for block in blocks(page):
        if block.reason is None and block.language not in NOT_CODE:
            reader.run(block)


@each_page
def test_the_generated_tables_are_those_of_the_code(page: Path) -> None:
    written = page.read_text()
    assert updated(written) == written, "run python -m tools.docs.generate"


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        if not path.startswith("http"):
            linked = (page.parent / path).resolve() if path else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), target


def anchors(page: Path) -> set[str]:
    """The names of headings in links."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_timeline_of_the_readme_is_true() -> None:
    """Three chunks: the first two end in what may become the phrase, the third completes it."""
    said = ["Our secret project", " is called Pro", "ject Bluebird."]
    readme = (ROOT / "README.md").read_text()
    released = play(f"{ROOT}/examples/banned_phrase.py:BannedPhrase", said)
    verdicts = [(one.pending, one.action, one.num_held) for one in released.judgements]
    assert verdicts == [
        ("Our secret project", "hold", 7),
        ("project is called Pro", "hold", 3),
        ("Project Bluebird.", "terminate", 0),
    ]
    assert released.content == "Our secret project is called "
    for pending, *_ in verdicts:
        assert re.search(rf"pending +{pending}", readme)


def test_the_picture_of_the_life_of_a_request_is_the_function_that_composes_it() -> None:
    readme = (ROOT / "README.md").read_text()
    (picture,) = re.findall(r"^ client (.*)client$", readme, re.MULTILINE)
    _read, *steps, _answer = re.findall(r"\w+", picture)
    first_line = (Exchange.flow.__doc__ or "").partition("\n")[0]
    assert first_line == f"The way of the answer's deltas: {', '.join(steps)}."
    calls = ["_admit(", "ChatEcho(", "Rewindable(", "Parsing(", "Guarding(", "engine_feed"]
    places = [inspect.getsource(Exchange.flow).index(call) for call in calls]
    assert places == sorted(places)


def test_the_architecture_and_the_site_list_every_decision() -> None:
    decisions = {f"decisions/{page.name}" for page in (ROOT / "docs" / "decisions").iterdir()}
    for page in ("docs/architecture.md", "mkdocs.yml"):
        assert set(re.findall(r"decisions/[\w-]+\.md", (ROOT / page).read_text())) == decisions


def test_the_readme_names_the_versions_of_python_that_the_package_names() -> None:
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    *first, last = classifiers
    assert f"CPython {', '.join(first)} and {last}" in (ROOT / "README.md").read_text()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 250


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_make_lists_every_target_that_people_name() -> None:
    listed = re.findall(r"^  make ([\w-]+)", make("help").stdout, re.MULTILINE)
    (targets,) = re.findall(r"^\.PHONY: help (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(targets.split())
    assert make().stdout == make("help").stdout


def test_make_lists_the_benches_of_the_page_and_runs_each() -> None:
    listed = re.findall(r"^  (\w+) +\S", make("bench").stdout, re.MULTILINE)
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    (rows,) = re.findall(r"^\| `NAME=` \|.*\n\|.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert sorted(listed) == sorted(re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE))
    for name in listed:
        assert re.search(
            rf"python -m benchmarks\.{name}\b|/{name}-bench run ", make("-n", "bench", f"NAME={name}").stdout
        )
    refused = make("-n", "bench", "NAME=no_such")
    assert refused.returncode != 0
    assert "There is no bench no_such" in refused.stderr


def test_no_page_and_no_message_installs_a_package_that_does_not_exist() -> None:
    """The distribution is on no package index: pip finds it in a checkout, or in a wheel's file."""
    files = [*PAGES, *(ROOT / "deploy").rglob("*"), *(ROOT / "examples").rglob("*")]
    files += [file for package in ("engine", "hooks", "proxy") for file in (ROOT / package).rglob("*.py")]
    bare = re.compile(r"pip3? install[^\n]*[ '\"]weir[-_]proxy(?!\S* @ )")
    found = [
        file for file in files if file.is_file() and file.suffix in TEXTS and bare.search(file.read_text())
    ]
    assert found == []
    assert bare.search("pip install 'weir-proxy[engine]'")
    assert not bare.search("pip install 'dist/weir_proxy-0.2.0-py3-none-any.whl[engine]'")
