"""Exchanges from files: the project's own format, recordings, and public datasets as they are published.

A dataset is known by its columns: BeaverTails, ToxicChat, Aegis 2, WildGuardMix, and lists of behaviours in
the form of HarmBench and JailbreakBench. A file is CSV, JSON (a list), JSON lines, each also packed by gzip,
or parquet if pyarrow is installed.
"""

import csv
import gzip
import importlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.streams.recording import Recording
from hooks.testing.streams import stream_of
from proxy.cli.labelled.exchange import Exchange, own_exchange

Row = Mapping[str, Any]
_YES = {"1", "1.0", "true", "yes", "unsafe", "harmful"}
_NO = {"0", "0.0", "false", "no", "safe", "unharmful"}


def _beavertails(name: str, row: Row) -> Exchange:
    # https://huggingface.co/datasets/PKU-Alignment/BeaverTails
    categories = row["category"] if isinstance(row["category"], Mapping) else {}
    is_safe = _label(row["is_safe"])
    return Exchange(
        name,
        stream_of(_text(row["response"]), prompt=_text(row["prompt"])),
        is_unsafe=None if is_safe is None else not is_safe,
        category=next((one for one, holds in categories.items() if holds), None),
    )


def _toxicchat(name: str, row: Row) -> Exchange:
    # https://huggingface.co/datasets/lmsys/toxic-chat: its labels are about the prompt.
    labels = [_label(row["toxicity"]), _label(row.get("jailbreaking"))]
    stream = stream_of(_text(row.get("model_output")), prompt=_text(row["user_input"]))
    return Exchange(name, stream, is_prompt_unsafe=any(labels))


def _aegis_or_wildguard(name: str, row: Row) -> Exchange:
    # https://huggingface.co/datasets/nvidia/Aegis-AI-Content-Safety-Dataset-2.0 has several categories a row.
    # https://huggingface.co/datasets/allenai/wildguardmix
    kind = "label" if "response_label" in row else "harm_label"
    return Exchange(
        name,
        stream_of(_text(row.get("response")), prompt=_text(row["prompt"])),
        is_unsafe=_label(row[f"response_{kind}"]),
        is_prompt_unsafe=_label(row[f"prompt_{kind}"]),
        category=_text(row.get("violated_categories") or row.get("subcategory")).partition(",")[0] or None,
    )


def _behaviour(name: str, row: Row) -> Exchange:
    # https://github.com/centerforaisafety/HarmBench, https://jailbreakbench.github.io: requests for something
    # harmful. JailbreakBench also has harmless ones, in a file of their own name.
    text = _text(row.get("Goal") or row["Behavior"])
    context = _text(row.get("ContextString"))
    category = _text(row.get("SemanticCategory") or row.get("Category")) or None
    return Exchange(
        name,
        stream_of("", prompt=f"{context}\n\n{text}" if context else text),
        is_prompt_unsafe="benign" not in name.lower(),
        category=category,
    )


_FORMATS: tuple[tuple[frozenset[str], Callable[[str, Row], Exchange]], ...] = (
    (frozenset({"prompt", "response", "category", "is_safe"}), _beavertails),
    (frozenset({"user_input", "toxicity"}), _toxicchat),
    (frozenset({"prompt", "prompt_label", "response_label"}), _aegis_or_wildguard),
    (frozenset({"prompt", "prompt_harm_label", "response_harm_label"}), _aegis_or_wildguard),
    (frozenset({"Behavior", "Category", "Goal"}), _behaviour),
    (frozenset({"Behavior", "SemanticCategory"}), _behaviour),
)
"""The columns that mark a dataset, and the function that makes an exchange of its row."""


def load(path: Path, *, is_unsafe: bool | None = None) -> list[Exchange]:
    """The exchanges of a file, or of each file of a folder, in the order of their names. `is_unsafe`: the
    label of replies that have none. Raises `ValueError` for a file of no known format, and `OSError`."""
    files = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]
    found = [one for file in files for one in _load_file(file)]
    if not found:
        raise ValueError(f"{path}: there is no exchange")
    if is_unsafe is None:
        return found
    return [_labelled(one, is_unsafe) for one in found]


def _labelled(exchange: Exchange, is_unsafe: bool) -> Exchange:
    if exchange.is_unsafe is not None and exchange.is_unsafe != is_unsafe:
        raise ValueError(f"{exchange.name} has another label")
    return replace(exchange, is_unsafe=is_unsafe)


def _load_file(path: Path) -> Iterator[Exchange]:
    if path.name.removesuffix(".gz").endswith(".jsonl") and _is_recording(path):
        yield Exchange(str(path), Recording.load(path))
        return
    make: Callable[[str, Row], Exchange] | None = None
    for number, row in _rows(path):
        name = f"{path}:{number}"
        if not isinstance(row, Mapping):
            raise ValueError(f"{name}: it is not an object with columns")
        make = make or next((one for columns, one in _FORMATS if columns <= row.keys()), own_exchange)
        try:
            yield make(name, row)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{name}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"there is no column {error}"
    if isinstance(error, ValidationError):
        return "; ".join(
            ": ".join([*map(str, one["loc"]), one["msg"].removeprefix("Value error, ")])
            for one in error.errors()
        )
    return " ".join(str(error).split())


def _is_recording(path: Path) -> bool:
    if path.suffix == ".gz":
        return False
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"{}")
    fields = _json(first, f"{path}, first line")
    return isinstance(fields, Mapping) and {"version", "request"} <= fields.keys()


def _rows(path: Path) -> Iterable[tuple[int, Any]]:
    """The rows of a table, each with its number; the number of JSON lines is the line's. Raises `ValueError`
    for a file of another kind."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        return enumerate(_parquet_rows(path), start=1)
    text = _text_of(path)
    if name.endswith(".csv"):
        try:
            return [*enumerate(csv.DictReader(io.StringIO(text, newline=""), strict=True), start=1)]
        except csv.Error as error:
            raise ValueError(f"{path}: {error}") from error
    if name.endswith(".jsonl"):
        # Not `splitlines`: a string of JSON may have U+2028 and other ends of lines.
        lines = enumerate(text.split("\n"), start=1)
        return [(number, _json(line, f"{path}:{number}")) for number, line in lines if line.strip()]
    if name.endswith(".json"):
        rows = _json(text, str(path))
        return enumerate(rows if isinstance(rows, list) else [rows], start=1)
    raise ValueError(f"{path}: it is not a .jsonl, .json, .csv or .parquet file")


def _text_of(path: Path) -> str:
    data = path.read_bytes()
    try:
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: it is not in UTF-8, from byte {error.start} on") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: it is not a whole gzip file") from error


def _json(text: str | bytes, place: str) -> Any:
    """Raises `ValueError`, with the place, for a text that is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: it is not JSON: {error.msg} (character {error.pos})") from error
    except ValueError as error:  # such as an integer of thousands of digits
        raise ValueError(f"{place}: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{place}: its JSON is nested too deeply") from error


def _parquet_rows(path: Path) -> Iterable[Row]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ValueError(f"{path}: parquet files need pyarrow (pip install pyarrow)") from error
    with path.open("rb") as file:
        try:
            rows: list[Row] = parquet.read_table(file).to_pylist()
        except (ValueError, OSError) as error:
            raise ValueError(f"{path}: it is not a whole parquet file") from error
    return rows


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _label(value: Any) -> bool | None:
    """Whether a cell says yes. None: it is empty. Raises `ValueError` for any other word."""
    word = "" if value is None else str(value).strip().lower()
    if word in _YES or word in _NO:
        return word in _YES
    if word in ("", "none", "null", "nan"):
        return None
    raise ValueError(f"{word!r} is not a label")
