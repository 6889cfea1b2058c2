"""The test strings of Presidio's recognizers of patterns, read from a checkout of its repository."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.cases.case import Case

_NO_PATTERN = (
    "ahds azure_ai_language azure_openai_langextract basic_langextract lm medical_ner entity gliner date url"
    " huggingface_ner pattern spacy stanza transformers"
)
"""Recognizers of other kinds: models, and dates and addresses of pages, which are no personal data alone."""
_OTHER_NAMES = {
    "DE_TAX_ID_NUMBER": "DE_TAX_ID",
    "FI_PERSONAL_IDENTITY_CODE": "FI_HETU",
    "IN_AADHAAR_NUMBER": "IN_AADHAAR",
    "SG_NRIC_FIN": "SG_NRIC",
}
"""Names of Presidio for what Weir names otherwise."""
_FIRST = frozenset(
    [
        "AU_TFN",
        "BE_NISS",
        "BR_CPF",
        "CA_SIN",
        "CH_AHV",
        "CN_RIC",
        "CREDIT_CARD",
        "DE_TAX_ID",
        "EMAIL_ADDRESS",
        "ES_NIE",
        "ES_NIF",
        "FI_HETU",
        "FR_INSEE",
        "IBAN_CODE",
        "IN_AADHAAR",
        "IN_PAN",
        "IP_ADDRESS",
        "IT_FISCAL_CODE",
        "MAC_ADDRESS",
        "NL_BSN",
        "PHONE_NUMBER",
        "PL_PESEL",
        "PT_NIF",
        "SE_PERSONNUMMER",
        "SG_NRIC",
        "UK_NHS",
        "UK_NINO",
        "US_SSN",
    ]
)
"""The entities that Weir had first. Their values are a group."""


def cases(checkout: Path) -> Iterator[Case]:
    """Return a case of each value, and of each text without one."""
    skipped = {f"test_{name}_recognizer.py" for name in _NO_PATTERN.split()}
    for path in sorted((checkout / "presidio-analyzer/tests").glob("test_*_recognizer.py")):
        if path.name in skipped:
            continue
        tree = ast.parse(path.read_text())
        entity = _entity(tree, path)
        for columns, row in _rows(tree):
            yield from _cases_of(entity, columns, row)


def _entity(tree: ast.Module, path: Path) -> str:
    """The only entity that the fixture `entities` returns, or the one of the recognizer's name."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name == "entities":
            for node in ast.walk(function):
                if isinstance(node, ast.Return) and isinstance(node.value, ast.List):
                    value = _literal(node.value)
                    if value:
                        return str(value[0])
    name = path.name.removeprefix("test_").removesuffix("_recognizer.py").upper()
    return {"PHONE": "PHONE_NUMBER"}.get(name, name)


def _rows(tree: ast.Module) -> Iterator[tuple[list[str], tuple[Any, ...]]]:
    """Return the parameters of the tests, with the names of their columns."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "parametrize" or len(node.args) < 2:
            continue
        columns = [name.strip() for name in str(_literal(node.args[0])).split(",")]
        given = node.args[1]
        for element in given.elts if isinstance(given, (ast.List, ast.Tuple)) else ():
            row = _literal(element)
            if isinstance(row, tuple) and len(row) == len(columns):
                yield columns, row


def _literal(node: ast.AST) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        if isinstance(node, ast.Tuple):
            return tuple(_literal(element) for element in node.elts)
        return None


def _cases_of(entity: str, columns: list[str], row: tuple[Any, ...]) -> Iterator[Case]:
    cells = dict(zip(columns, row, strict=True))
    text = cells.get("text", cells.get("iban"))
    count = cells.get("expected_len", 1)
    if not isinstance(text, str) or not isinstance(count, int) or "expected" in cells:
        return
    if count == 0:
        yield Case("no value, pii", entity, text)
        return
    name = _OTHER_NAMES.get(entity, entity)
    group = "entities that Weir had first" if name in _FIRST else "other entities"
    for start, end in _spans(cells, text, count):
        if 0 <= start < end <= len(text):
            yield Case(group, name, text, text[start:end], start, end)


def _spans(cells: dict[str, Any], text: str, count: int) -> list[tuple[int, int]]:
    for name in ("expected_positions", "expected_position", "expected_res"):
        spans = _pairs(cells.get(name))
        if spans:
            return spans
    start, end = cells.get("expected_start"), cells.get("expected_end")
    if isinstance(start, int) and isinstance(end, int):
        return [(start, end)]
    is_alone = count == 1 and not any(char.isalpha() and char.islower() for char in text)
    return [(0, len(text))] if is_alone else []


def _pairs(value: Any) -> list[tuple[int, int]]:
    """All pairs of numbers in nested tuples and lists."""
    if not isinstance(value, (tuple, list)):
        return []
    if len(value) == 2 and all(type(item) is int for item in value):
        return [(value[0], value[1])]
    return [pair for item in value for pair in _pairs(item)]
