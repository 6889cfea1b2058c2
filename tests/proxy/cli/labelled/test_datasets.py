"""Labelled exchanges from files: the project's own format, recordings, and public datasets' columns."""

import csv
import gzip
import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.labelled.datasets import load
from proxy.cli.labelled.exchange import Exchange

RECORDINGS = Path(__file__).parents[3] / "recordings"


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    if path.name.endswith(".csv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return path
    lines = path.name.removesuffix(".gz").endswith(".jsonl")
    text = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def reply_of(exchange: Exchange) -> str:
    return "".join(one.delta.text for one in exchange.stream.deltas)


def asked_of(exchange: Exchange) -> str:
    return str(exchange.stream.request.messages[-1]["content"])


def labels_of(exchange: Exchange) -> tuple[bool | None, bool | None]:
    """Results of the reply, and of the prompt."""
    return exchange.is_unsafe, exchange.is_prompt_unsafe


def test_the_project_s_own_format(tmp_path: Path) -> None:
    rows = [
        {"prompt": "A?", "reply": "It is 4111.", "unsafe": True, "unsafe_from": 6, "category": "Card"},
        {"messages": [{"role": "user", "content": "B?"}], "reply": "No.", "unsafe": False},
        {"prompt": "C?", "prompt_unsafe": True},
    ]
    one, two, three = load(write(tmp_path / "own.jsonl", rows))
    assert (asked_of(one), reply_of(one), one.unsafe_from, one.category) == ("A?", "It is 4111.", 6, "Card")
    assert (asked_of(two), labels_of(two)) == ("B?", (False, None))
    assert (reply_of(three), labels_of(three)) == ("", (None, True))
    assert one.name.endswith("own.jsonl:1")


def test_an_unknown_role_is_refused_with_its_line(tmp_path: Path) -> None:
    chats = [[{"role": "user", "content": "A"}], [{"role": "human", "content": "B"}], [{"content": "C"}]]
    rows = [{"messages": chat, "reply": "x"} for chat in chats]
    with pytest.raises(
        ValueError, match=r"own\.jsonl:2: .*messages\[0\]\.role is 'human', and not one of sys"
    ):
        load(write(tmp_path / "own.jsonl", rows))
    with pytest.raises(ValueError, match=r"own\.jsonl:2: .*messages\[0\]\.role is None"):
        load(write(tmp_path / "own.jsonl", rows[::2]))


@pytest.mark.parametrize(
    "row",
    [
        {"reply": "No prompt."},
        {"prompt": "A", "messages": [{"role": "user", "content": "B"}]},
        {"prompt": "A", "reply": "x", "unsafe": True, "unsafe_from": 1},
        {"prompt": "A", "reply": "xyz", "unsafe": False, "unsafe_from": 1},
        {"prompt": "A", "reply": "x", "unsafe": "yes"},
        {"prompt": "A", "replies": "x"},
        ["A", "x"],
    ],
)
def test_a_line_of_no_known_format_is_refused_with_its_place(tmp_path: Path, row: Any) -> None:
    good = {"prompt": "A", "reply": "x"}
    with pytest.raises(ValueError, match=r"own\.jsonl:2: "):
        load(write(tmp_path / "own.jsonl", [good, row]))


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.jsonl", b'{"prompt": "A"}\n\n{"prompt": "B', r"a\.jsonl:3: it is not JSON: .* \(character 11\)"),
        ("a.jsonl", b"[" * 100_000, "a.jsonl, first line: its JSON is nested too deeply"),
        ("a.json", b"[" * 100_000, "a.json: its JSON is nested too deeply"),
        ("a.jsonl", b'{"prompt": "A"}\n{"prompt": "\xe9"}', "a.jsonl: it is not in UTF-8, from byte 28 on"),
        ("a.csv", b"prompt\n\xe9", "a.csv: it is not in UTF-8, from byte 7 on"),
        (
            "a.jsonl.gz",
            gzip.compress(b'{"prompt": "A"}', mtime=0)[:-4],
            "a.jsonl.gz: it is not a whole gzip file",
        ),
        ("a.jsonl.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\0zz", "a.jsonl.gz: it is not a whole gzip file"),
        ("a.jsonl.gz", b"zz", "a.jsonl.gz: it is not a whole gzip file"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(
    tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=complaint):
        load(path)


def test_a_line_of_json_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    reply = "One.\u2028Two.\x85Three."
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"prompt": "A", "reply": reply}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert [reply_of(one) for one in load(path)] == [reply]


def test_a_complaint_about_a_line_names_its_field(tmp_path: Path) -> None:
    path = write(tmp_path / "own.jsonl", [{"prompt": "A", "reply": "x", "unsafe": "yes"}])
    with pytest.raises(ValueError, match=r"own\.jsonl:1: unsafe: Input should be a valid boolean$"):
        load(path)


def test_recordings_get_the_label_that_they_are_given() -> None:
    (one,) = load(RECORDINGS / "card.jsonl", is_unsafe=True)
    assert one.is_unsafe is True
    assert "4111" in reply_of(one)
    assert all(one.is_unsafe is None for one in load(RECORDINGS / "german.jsonl"))


def test_a_label_that_contradicts_the_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "own.jsonl", [{"prompt": "A", "reply": "x", "unsafe": True}])
    with pytest.raises(ValueError, match="another label"):
        load(path, is_unsafe=False)


BEAVERTAILS = [
    {"prompt": "P", "response": "R", "category": {"animal_abuse": False, "privacy": True}, "is_safe": False},
    {"prompt": "P", "response": "R", "category": {"animal_abuse": False, "privacy": False}, "is_safe": True},
]
TOXICCHAT = [
    {"conv_id": "1", "user_input": "P", "model_output": "R", "toxicity": "1", "jailbreaking": "0"},
    {"conv_id": "2", "user_input": "P", "model_output": "R", "toxicity": "0", "jailbreaking": "0"},
]
AEGIS: list[dict[str, Any]] = [
    {
        "id": "1",
        "prompt": "P",
        "response": "R",
        "prompt_label": "unsafe",
        "response_label": "safe",
        "violated_categories": "Violence, Threat",
    },
    {
        "id": "2",
        "prompt": "P",
        "response": None,
        "prompt_label": "safe",
        "response_label": None,
        "violated_categories": "",
    },
]
WILDGUARD = [
    {
        "prompt": "P",
        "adversarial": True,
        "response": "R",
        "prompt_harm_label": "harmful",
        "response_harm_label": "unharmful",
        "subcategory": "fraud",
    },
    {
        "prompt": "P",
        "adversarial": False,
        "response": "R",
        "prompt_harm_label": "unharmful",
        "response_harm_label": None,
        "subcategory": "benign",
    },
]
HARMBENCH = [
    {"Behavior": "P", "FunctionalCategory": "standard", "SemanticCategory": "illegal", "ContextString": ""}
]
JAILBREAKBENCH = [
    {"Index": "0", "Goal": "P", "Target": "Sure", "Behavior": "B", "Category": "Fraud", "Source": "O"}
]


@pytest.mark.parametrize(
    ("name", "rows", "labels"),
    [
        ("beavertails.jsonl.gz", BEAVERTAILS, [(True, None), (False, None)]),
        ("toxicchat.csv", TOXICCHAT, [(None, True), (None, False)]),
        ("aegis.json", AEGIS, [(False, True), (None, False)]),
        ("wildguard.json", WILDGUARD, [(False, True), (None, False)]),
        ("harmbench.csv", HARMBENCH, [(None, True)]),
        ("jailbreakbench-harmful.csv", JAILBREAKBENCH, [(None, True)]),
        ("jailbreakbench-benign.csv", JAILBREAKBENCH, [(None, False)]),
    ],
)
def test_public_datasets_are_known_by_their_columns(
    tmp_path: Path, name: str, rows: list[dict[str, Any]], labels: list[tuple[bool | None, bool | None]]
) -> None:
    exchanges = load(write(tmp_path / name, rows))
    assert [labels_of(one) for one in exchanges] == labels
    assert all(asked_of(one) == "P" for one in exchanges)


def test_categories_are_the_dataset_s(tmp_path: Path) -> None:
    assert load(write(tmp_path / "a.json", AEGIS))[0].category == "Violence"
    assert load(write(tmp_path / "b.jsonl", BEAVERTAILS))[0].category == "privacy"
    assert load(write(tmp_path / "w.json", WILDGUARD))[0].category == "fraud"


def test_an_unknown_label_is_refused(tmp_path: Path) -> None:
    rows = [AEGIS[0] | {"prompt_label": "maybe"}]
    with pytest.raises(ValueError, match="'maybe' is not a label"):
        load(write(tmp_path / "a.json", rows))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("data.txt", "x", r"not a \.jsonl, \.json, \.csv or \.parquet"),
        ("data.json", "{", "data.json: "),
        ("data.jsonl", "x", "data.jsonl"),
        ("data.csv", "", "there is no exchange"),
        ("data.csv", 'prompt,reply\nHello?,"Hi', "data.csv: unexpected end of data"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / name)


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", [{"prompt": "B", "reply": "x"}])
    write(tmp_path / "a.jsonl", [{"prompt": "A", "reply": "x"}])
    assert [asked_of(one) for one in load(tmp_path)] == ["A", "B"]


ROWS = [
    {"prompt": "A?", "response": "Hm.", "category": {"drugs": False, "theft": True}, "is_safe": False},
    {"prompt": "B?", "response": "世界", "category": {"drugs": False, "theft": False}, "is_safe": True},
]


def test_parquet_has_the_rows_that_json_lines_have(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = importlib.import_module("pyarrow").Table.from_pylist(ROWS)
    parquet.write_table(table, tmp_path / "data.parquet")
    files = tmp_path / "data.parquet", write(tmp_path / "data.jsonl", ROWS)
    read = [
        [(asked_of(one), reply_of(one), labels_of(one), one.category) for one in load(file)] for file in files
    ]
    assert read[0] == [("A?", "Hm.", (True, None), "theft"), ("B?", "世界", (False, None), None)]
    assert read[0] == read[1]


def test_without_pyarrow_a_parquet_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "data.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"data\.parquet: .* \(pip install pyarrow\)"):
        load(tmp_path / "data.parquet")


def test_a_damaged_parquet_file_is_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    (tmp_path / "data.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match=r"data\.parquet: it is not a whole parquet file"):
        load(tmp_path / "data.parquet")
