"""The agent programs that people run, with Weir: `make test-frontends`. `docs/clients.md` has the results.

Each program does a task with its own tools. Weir is between it and a scripted model, with guards that let
pass, redact, end or refuse. Then the program goes on with the same session.
"""

import re
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.clients.programs.cases import CASES, CITY, NOTES, Case
from tests.clients.programs.programs import PROGRAMS, Program
from tests.clients.programs.sandbox import Ran, ran
from tests.clients.programs.scripted_model import (
    FIRST,
    SECOND,
    STILL_HERE,
    ScriptedModel,
    serving_model,
    text_of,
)
from tests.serving import serving

MOST_REQUESTS_AFTER_AN_END = 3
TRIED = [
    pytest.param(program, case, id=f"{name}-{case.name}")
    for name, program in PROGRAMS.items()
    for case in CASES
    if not (case.calls and program.by_text)
]


@pytest.mark.slow
@pytest.mark.parametrize(("program", "case"), TRIED)
def test_a_program_works_with_guards(program: Program, case: Case, tmp_path: Path) -> None:
    if not program.is_installed:
        pytest.skip("make test-frontends installs it")
    home, folder, config = (tmp_path / one for one in ("home", "work", "weir.yaml"))
    folder.mkdir()
    (folder / "notes.txt").write_text(NOTES)
    config.write_text(yaml.safe_dump({"hooks": list(case.hooks), **case.settings}))
    with (
        serving_model(ScriptedModel(case.turns, str(folder), approves=bool(case.approves))) as model,
        serving(
            *("--engine", "openai", "--upstream", f"{model.url}/v1", "--config", str(config)),
            *("--approval-webhook", f"{model.url}/person"),
        ) as url,
    ):
        for path, text in program.files(url).items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(text)
        first = ran(
            [*program.command, *program.start, f"{FIRST}.{case.prompt}"], home, folder, program.env(url)
        )
        num_asked, num_answered = len(model.bodies), num_requests(url) - len(model.others)
        second = ran([*program.command, *program.resume, SECOND], home, folder, program.env(url))
    print(first.output, second.output, sep="\n\n--- the second prompt ---\n")
    wrong = [
        *wrong_in_output(first, program, case),
        *wrong_in_files(folder, program, case),
        *wrong_in_requests(num_asked, num_answered, program, case),
        *([] if STILL_HERE in second.output else ["the session does not go on"]),
        *(
            []
            if not program.has_server or was_told_of_weather(model, case)
            else ["the MCP server was not asked"]
        ),
    ]
    assert not wrong, "\n".join(wrong)


def num_requests(url: str) -> int:
    """The requests to Weir's endpoints of models, whatever became of them."""
    with urllib.request.urlopen(f"{url}/metrics") as response:
        metrics = response.read().decode()
    paths = "chat/completions|responses|messages"
    found = re.findall(rf'^weir_http_responses_total{{path="/v1/(?:{paths})".*}} (\S+)$', metrics, re.M)
    return sum(int(float(count)) for count in found)


def wrong_in_output(ended: Ran, program: Program, case: Case) -> list[str]:
    shown = program.instead.get(case.name, case.shown)
    wrong = [f"the output does not show {shown!r}"] if not re.search(shown, ended.output) else []
    if case.name in program.instead and re.search(case.shown, ended.output):
        wrong.append(f"the output shows {case.shown!r}, which is noted as not shown")
    wrong += [f"the output shows {text!r}" for text in case.withheld if text in ended.output]
    return [*wrong, "the program did not end"] if ended.returncode is None else wrong


def wrong_in_files(folder: Path, program: Program, case: Case) -> list[str]:
    wrong = []
    for name, text in case.files.items():
        path = folder / name
        if program.by_text and name == "said.txt":  # it runs nothing
            continue
        if not path.exists():
            wrong.append(f"there is no {name}")
        elif path.read_bytes() != text.encode():
            wrong.append(f"{name} is {path.read_bytes()!r}")
    expected = {"notes.txt", *case.files}
    return wrong + [
        f"there is {path.name}"
        for path in sorted(folder.iterdir())
        if path.name not in expected and not path.name.startswith(".")
    ]


def wrong_in_requests(num_asked: int, num_answered: int, program: Program, case: Case) -> list[str]:
    """`num_asked`: requests that the model got. `num_answered`: requests that Weir got."""
    wrong = []
    if case.ends_after is None:
        turns = 1 if program.by_text else len(case.turns) - (case.asks_server and not program.has_server)
        if (num_asked, num_answered) != (turns, turns):
            wrong.append(f"{turns} answers took {num_answered} requests, of which the model got {num_asked}")
    else:
        before = min(case.ends_after, 1) if program.by_text else case.ends_after
        after = max(num_asked, num_answered) - before
        if after > program.asks_again.get(case.name, MOST_REQUESTS_AFTER_AN_END):
            wrong.append(f"{after} requests came after a guard had ended an answer")
    return wrong


def was_told_of_weather(model: ScriptedModel, case: Case) -> bool:
    told = [text_of(one) for body in model.bodies for one in body["messages"] if one["role"] == "tool"]
    return not case.asks_server or any(f"21 degrees in {CITY}" in text for text in told)
