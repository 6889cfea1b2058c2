"""The chart of `deploy/chart`, rendered by Helm itself: `make test-deploy`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import proxy
from proxy.settings.serve import load_settings
from tests.deploy.test_deploy import DEPLOY, KUBERNETES, documents, linter, run
from tests.serving import ROOT
from tests.weir import run_weir

CHART = DEPLOY / "chart"

INGRESS = {"enabled": True, "host": "weir.example", "tlsSecret": "weir-tls"}
SETS: dict[str, dict[str, Any]] = {
    "default": {},
    "ingress": {"ingress": INGRESS, "settings": {"trusted_forwarders": ["10.0.0.0/8"]}},
    "operator": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "streams": {"autoscaling": {"runningStreams": 200, "maxReplicas": 20}},
    "bare": {
        "autoscaling": {"enabled": False},
        "replicas": 3,
        "disruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "adminPort": 9001,
        "existingSecret": "keys-of-weir",
        "settings": {"shutdown_timeout": 300.5, "max_body_size": 20_000_000, "otlp_endpoint": None},
        "pod": {"nodeSelector": {"pool": "proxies"}, "tolerations": [{"key": "spot", "operator": "Exists"}]},
        "image": {"repository": "images.example/weir", "tag": "1.10"},
    },
}
WRONG: dict[str, dict[str, Any]] = {
    "/replicas": {"replicas": "two"},
    "'runningstreams'": {"autoscaling": {"runningstreams": 3}},
    "/ingress/host": {"ingress": {"enabled": True}},
    "/image/tag": {"image": {"tag": 1.1}},
    "/settings/port": {"settings": {"port": 80}},
    "/settings/api_key": {"settings": {"api_key": "k"}},
    "/settings/drain_delay": {"settings": {"drain_delay": "long"}},
    "/serviceMonitor/interval": {"serviceMonitor": {"interval": "soon"}},
    "'hostNetwork'": {"pod": {"hostNetwork": True}},
    "'ingres'": {"ingres": {"enabled": True}},
}


def in_page(beginning: str) -> dict[str, Any]:
    """The block of YAML in docs/deployment.md that begins so."""
    page = (ROOT / "docs" / "deployment.md").read_text()
    (block,) = re.findall(rf"```yaml\n({beginning}.*?)```", page, re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(block)
    return found


SETS["page"] = in_page("image:")


def told(values: Mapping[str, Any], folder: Path) -> Path:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    return file


def rendered(values: Mapping[str, Any], folder: Path) -> Path:
    file = folder / "rendered.yaml"
    values_file = told(values, folder)
    file.write_text(linter("helm", "template", "weir", CHART, "--namespace", "weir", "--values", values_file))
    return file


def by_kind(values: Mapping[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """The manifests by kind, and by name where a kind has several."""
    found = documents(rendered(values, folder))
    return {one["kind"] if one["kind"] != "Service" else one["metadata"]["name"]: one for one in found}


@pytest.mark.parametrize("name", SETS)
def test_what_it_renders_is_valid(name: str, tmp_path: Path) -> None:
    file = rendered(SETS[name], tmp_path)
    said = linter("kubernetes-validate", "--strict", "-k", "1.37", file)
    unknown = re.findall(r"Couldn't find schema for kind (\w+)", said)
    assert unknown == (["ServiceMonitor"] if "serviceMonitor" in SETS[name] else [])
    assert said.count(" passed ") == len(documents(file)) - len(unknown)


@pytest.mark.parametrize("name", SETS)
def test_helm_finds_no_fault(name: str, tmp_path: Path) -> None:
    linter("helm", "lint", "--strict", "--quiet", CHART, "--values", told(SETS[name], tmp_path))


@pytest.mark.parametrize("name", SETS)
def test_weir_accepts_the_settings_and_the_pod_waits_for_them(name: str, tmp_path: Path) -> None:
    manifests = by_kind(SETS[name], tmp_path)
    file = tmp_path / "weir.yaml"
    file.write_text(manifests["ConfigMap"]["data"]["weir.yaml"])
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    settings = load_settings(["--config", str(file), *pod["containers"][0]["args"]])
    assert pod["terminationGracePeriodSeconds"] > settings.drain_delay + settings.shutdown_timeout
    assert settings.admin_port == SETS[name].get("adminPort", 9000)
    checked = run_weir("config", "check", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_value_is_refused_by_its_name(field: str, tmp_path: Path) -> None:
    ended = run("helm", "template", "weir", CHART, "--values", told(WRONG[field], tmp_path))
    assert ended.returncode != 0
    assert field in ended.stderr


def test_the_manifests_are_what_the_chart_renders(tmp_path: Path) -> None:
    assert documents(KUBERNETES / "weir.yaml") == documents(rendered({}, tmp_path)), "run `make manifests`"


def test_changed_settings_replace_the_pods(tmp_path: Path) -> None:
    one, other = (
        by_kind({"settings": {"hooks": hooks}}, tmp_path)["Deployment"] for hooks in (["pii"], ["secrets"])
    )
    assert one["spec"]["selector"] == other["spec"]["selector"]
    assert one["spec"]["template"] != other["spec"]["template"]


def test_an_ingress_leads_clients_to_the_service_and_nobody_to_the_operators_port(tmp_path: Path) -> None:
    manifests = by_kind(SETS["ingress"], tmp_path)
    (rule,) = manifests["Ingress"]["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    service = manifests[path["backend"]["service"]["name"]]
    assert [port["name"] for port in service["spec"]["ports"]] == [path["backend"]["service"]["port"]["name"]]
    assert path["path"] == "/v1"
    assert manifests["Ingress"]["spec"]["tls"] == [{"hosts": ["weir.example"], "secretName": "weir-tls"}]
    annotations = manifests["Ingress"]["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert int(annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"]) > 15


def test_a_service_monitor_finds_the_port_with_metrics(tmp_path: Path) -> None:
    manifests = by_kind(SETS["operator"], tmp_path)
    monitor = manifests["ServiceMonitor"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["endpoints"]
    service = manifests["weir-admin"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [port["name"] for port in service["spec"]["ports"]] == [endpoint["port"]]
    annotations = manifests["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert not [name for name in annotations if name.startswith("prometheus.io/")], "it would be read twice"


def test_the_autoscaler_asks_for_a_metric_that_weir_has_and_the_page_has_its_rule(
    tmp_path: Path, labels: dict[str, set[str]]
) -> None:
    _cpu, streams = by_kind(SETS["streams"], tmp_path)["HorizontalPodAutoscaler"]["spec"]["metrics"]
    metric = streams["pods"]["metric"]["name"]
    assert streams["pods"]["target"] == {"type": "AverageValue", "averageValue": "200"}
    assert metric in labels
    (rule,) = in_page("rules:")["rules"]["custom"]
    assert rule["seriesQuery"].startswith(f"{metric}{{")
    assert "<<.Series>>{<<.LabelMatchers>>}" in rule["metricsQuery"]
    assert "<<.GroupBy>>" in rule["metricsQuery"]


def test_two_releases_share_no_name_and_no_pods(tmp_path: Path) -> None:
    both = [
        list(yaml.safe_load_all(linter("helm", "template", name, CHART, "--namespace", "weir")))
        for name in ("one", "two")
    ]
    names = [{(each["kind"], each["metadata"]["name"]) for each in release} for release in both]
    assert not names[0] & names[1]
    selectors = [
        json.dumps(each["spec"]["selector"])
        for release in both
        for each in release
        if each["kind"] == "Deployment"
    ]
    assert len(set(selectors)) == 2


def test_the_chart_has_the_version_of_weir() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == proxy.__version__
    (image,) = documents(KUBERNETES / "kustomization.yaml")[0]["images"]
    assert image["newTag"] == proxy.__version__
