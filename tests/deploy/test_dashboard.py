"""The dashboard and the alerts name metrics and labels that `/metrics` has."""

import json
import re

import pytest
import yaml

from tests.serving import ROOT

DASHBOARD = ROOT / "deploy" / "grafana" / "weir.json"
ALERTS = ROOT / "deploy" / "alerts.yaml"


def expressions() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return [*queries, *(rule["expr"] for rule in rules)]


def test_there_is_something_to_check() -> None:
    assert len(expressions()) > 30


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_names_what_there_is(expression: str, labels: dict[str, set[str]]) -> None:
    names = re.findall(r"\bweir_\w+", expression)
    assert names or "up{" in expression
    for name, matchers in re.findall(r"\b(weir_\w+)(?:\{([^}]*)\})?", expression):
        assert name in labels
        asked = re.findall(r"(\w+)(?:=~|!=|=)\"", matchers)
        grouped = [
            label.strip() for by in re.findall(r"\bby \(([^)]*)\)", expression) for label in by.split(",")
        ]
        assert {*asked, *grouped} <= labels[name], name
    assert expression.count("(") == expression.count(")")


def test_the_variables_are_labels_that_there_are(labels: dict[str, set[str]]) -> None:
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    queries = [one["query"] for one in variables if one["type"] == "query"]
    found = [re.fullmatch(r"label_values\((\w+), (\w+)\)", query) for query in queries]
    assert len(found) == 3
    for one in found:
        assert one is not None
        assert one[2] in labels[one[1]]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not taken & cells
        assert at["x"] + at["w"] <= 24
        taken |= cells
