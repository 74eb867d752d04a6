"""Dashboards, alert rules and the autoscaler name only metrics and label values that a running server has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.live import run_service
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"
# Metrics that Prometheus itself adds to every target.
OF_PROMETHEUS = {"up"}
LABELS_OF_PROMETHEUS = {"job", "instance"}
# The values of every label of every series.
Series = dict[str, dict[str, set[str]]]
# Grafana replaces them before the query reaches Prometheus.
GRAFANA_VARIABLES = {"$__rate_interval": "1m", "$instance": ".*"}


def dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboards" / "dragoman.json").read_text())
    return content


def read_expressions() -> Iterator[tuple[str, str]]:
    """Yields (source, PromQL) of every query."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in GRAFANA_VARIABLES.items():
                expression = expression.replace(variable, value)
            yield f"panel {panel['title']}", expression
    for group in yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"]
    autoscaler = yaml.safe_load((DEPLOY / "kubernetes" / "kserve" / "horizontal-pod-autoscaler.yaml").read_text())
    for metric in autoscaler["spec"]["metrics"]:
        yield "autoscaler", metric["pods"]["metric"]["name"]


EXPRESSIONS = list(read_expressions())


@pytest.fixture(scope="module")
def series(bundle_path: Path) -> Series:
    with run_service(bundle_path) as service:
        text = service.get("/metrics").text
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


def selectors(expression: str) -> list[tuple[str, str]]:
    """Returns (metric, matchers) of every selector of an expression."""
    text = promql_parser.parse(expression).prettify()
    return re.findall(r"\b((?:dragoman|process)_\w+|up)\b(?:\{(.*?)\})?", text)


@pytest.mark.parametrize(("origin", "expression"), EXPRESSIONS, ids=[origin for origin, _ in EXPRESSIONS])
def test_metrics_and_label_values_are_those_of_a_server(origin: str, expression: str, series: Series) -> None:
    requested = selectors(expression)
    assert requested, f"{origin} asks for no metric"
    for name, matchers in requested:
        assert name in series.keys() | OF_PROMETHEUS
        for label, operator, value in re.findall(r'(\w+)(=~|=)"([^"]*)"', matchers):
            if label not in LABELS_OF_PROMETHEUS:
                values = set(value.split("|")) if operator == "=~" else {value}
                assert values <= series[name][label]


def test_grouping_labels_exist(series: Series) -> None:
    known = {label for labels in series.values() for label in labels} | LABELS_OF_PROMETHEUS
    for _, expression in EXPRESSIONS:
        for labels in re.findall(r"\bby\s*\(([^)]*)\)", expression):
            assert {label.strip() for label in labels.split(",")} <= known


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        cells = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken
        assert max(columns) < 24
        taken |= cells
