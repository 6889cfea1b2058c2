"""The files in deploy/: linters accept them, and they agree with Weir's options and with each other.

No image is built here. The linters are in an environment of their own: `make test-deploy`.
"""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.settings.groups import options_of
from proxy.settings.serve import ServeSettings, load_settings
from tests.serving import ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
DOCKERFILES = [DEPLOY / "Dockerfile", DEPLOY / "Dockerfile.gpu"]
KEYS = {"WEIR_API_KEY": "a", "WEIR_ADMIN_KEY": "b", "GRAFANA_PASSWORD": "c"}
LINTERS = ROOT / ".venv-deploy" / "bin"


def run(name: str, *arguments: str | Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a linter."""
    path = f"{LINTERS}:{os.environ['PATH']}"
    program = shutil.which(name, path=path)
    if program is None:
        pytest.skip(f"there is no {name} here")
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, env={"PATH": path, **variables}
    )


def linter(name: str, *arguments: str | Path, **variables: str) -> str:
    """What a linter prints. Fails with it if the linter does."""
    ended = run(name, *arguments, **variables)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def of_kind(kind: str) -> dict[str, Any]:
    """The only manifest of a kind."""
    found = [one for file in KUBERNETES.glob("*.yaml") for one in documents(file) if one.get("kind") == kind]
    assert len(found) == 1
    return found[0]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return documents(DEPLOY / "compose.yaml")[0]


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = of_kind("Deployment")["spec"]["template"]["spec"]
    return spec


@pytest.fixture
def settings() -> ServeSettings:
    """Those of Compose."""
    return load_settings(["--config", str(DEPLOY / "weir.yaml")])


@pytest.fixture
def pod_settings(pod: dict[str, Any], tmp_path: Path) -> ServeSettings:
    """Those of the pods, with their arguments."""
    file = tmp_path / "weir.yaml"
    file.write_text(of_kind("ConfigMap")["data"]["weir.yaml"])
    (container,) = pod["containers"]
    assert container["command"] == ["/opt/weir/bin/weir", "serve", "--config", "/etc/weir/weir.yaml"]
    return load_settings(["--config", str(file), *container["args"]])


# Linters.


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_dockerfiles_have_no_faults(file: Path) -> None:
    linter("hadolint", file)


def test_the_compose_file_is_valid() -> None:
    assert compose_faults(**KEYS) == ""


@pytest.mark.parametrize("missing", KEYS)
def test_the_compose_file_asks_for_its_keys(missing: str) -> None:
    without = {name: key for name, key in KEYS.items() if name != missing}
    assert f"required variable {missing} is missing" in compose_faults(**without)


def compose_faults(**variables: str) -> str:
    """The package of docker-compose on PyPI ends with 0 always."""
    return linter("docker-compose", "-f", DEPLOY / "compose.yaml", "config", "--quiet", **variables)


def test_the_manifests_are_valid(tmp_path: Path) -> None:
    built = tmp_path / "built.yaml"
    built.write_text(linter("kubectl", "kustomize", KUBERNETES))
    others = [KUBERNETES / name for name in ("only-weir.yaml", "secret.example.yaml")]
    linter("kubernetes-validate", "--strict", "-k", "1.37", built, *others)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "weir.service"
    # systemd looks for the program.
    unit.write_text((DEPLOY / "weir.service").read_text().replace("/opt/weir/bin/weir", sys.executable))
    assert linter("systemd-analyze", "verify", unit) == ""
    exposure = linter("systemd-analyze", "security", "--offline=true", "--threshold=20", unit)
    assert "OK" in exposure


# What the files say of Weir.


def test_variables_are_options(compose: dict[str, Any]) -> None:
    secret = documents(KUBERNETES / "secret.example.yaml")[0]["stringData"]
    in_images = re.findall(r"\bWEIR_\w+(?==)", "".join(file.read_text() for file in DOCKERFILES))
    in_unit = re.findall(r"\bWEIR_\w+", (DEPLOY / "weir.service").read_text())
    names = [*compose["services"]["weir"]["environment"], *secret, *in_images, *in_unit]
    ours = {name for name in names if name.startswith("WEIR_")}
    assert len(ours) > 5
    assert ours <= {f"WEIR_{name.upper()}" for name in options_of(ServeSettings)}


def test_names_and_ports_in_the_compose_file_lead_somewhere(
    compose: dict[str, Any], settings: ServeSettings
) -> None:
    services = compose["services"]
    inside = {("weir", settings.port), ("weir", settings.admin_port)}
    inside |= {("vllm", int(services["vllm"]["command"][-1])), ("redis", 6379), ("prometheus", 9090)}
    collector = documents(DEPLOY / "collector.yaml")[0]["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    inside.add(("collector", int(collector.rpartition(":")[2])))
    texts = [file.read_text() for file in (*DEPLOY.glob("*.yaml"), *DEPLOY.glob("grafana/**/*.yaml"))]
    named = re.findall(rf"\b({'|'.join(services)}):(\d{{4,5}})\b", "".join(texts))
    assert len(named) >= 5
    assert {(name, int(port)) for name, port in named} <= inside


def test_only_weir_and_grafana_can_be_reached_from_this_machine(compose: dict[str, Any]) -> None:
    published = {
        name: service["ports"] for name, service in compose["services"].items() if "ports" in service
    }
    assert published.keys() == {"weir", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


def test_files_that_the_compose_file_names_exist(compose: dict[str, Any]) -> None:
    mounts = [volume for service in compose["services"].values() for volume in service.get("volumes", ())]
    sources = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert len(sources) >= 4
    assert [source for source in sources if not (DEPLOY / source).exists()] == []


def ending_of(settings: ServeSettings) -> float:
    """Seconds from SIGTERM to the end."""
    return settings.drain_delay + settings.shutdown_timeout


def test_compose_waits_for_the_end_of_streams(compose: dict[str, Any], settings: ServeSettings) -> None:
    assert int(compose["services"]["weir"]["stop_grace_period"].removesuffix("s")) > ending_of(settings)


def test_systemd_waits_for_the_end_of_streams() -> None:
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", (DEPLOY / "weir.service").read_text(), re.MULTILINE)
    assert int(seconds) > ending_of(ServeSettings())


def test_kubernetes_waits_for_the_end_of_streams(pod: dict[str, Any], pod_settings: ServeSettings) -> None:
    assert pod_settings.drain_delay > 0
    assert pod["terminationGracePeriodSeconds"] > ending_of(pod_settings)


def test_ports_in_the_pod_are_those_of_the_settings(pod: dict[str, Any], pod_settings: ServeSettings) -> None:
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": pod_settings.port, "admin": pod_settings.admin_port}
    for probe, path in [("startup", "/health"), ("liveness", "/health"), ("readiness", "/ready")]:
        assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "admin"}


def test_a_service_of_the_same_name_sets_no_options(pod: dict[str, Any]) -> None:
    """Kubernetes would set WEIR_PORT=tcp://... in each pod."""
    assert pod["enableServiceLinks"] is False


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_images_have_the_user_of_the_manifests(file: Path, pod: dict[str, Any]) -> None:
    users = re.findall(r"^USER (\d+):(\d+)$", file.read_text(), re.MULTILINE)
    context = pod["securityContext"]
    assert users[-1] == (str(context["runAsUser"]), str(context["runAsGroup"]))
    assert f"useradd --uid {context['runAsUser']} " in file.read_text()


def test_ports_that_images_name_are_those_of_weir() -> None:
    for file in DOCKERFILES:
        assert f"EXPOSE {ServeSettings().port}\n" in file.read_text()


# What goes into an image.


def in_context() -> list[str]:
    """The tracked files that .dockerignore leaves."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
    assert rules[0] == "*"
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    return [
        file
        for file in listed.stdout.splitlines()
        if any(fnmatch.fnmatch(file, one) or file.startswith(f"{one}/") for one in kept)
    ]


def test_a_context_has_no_more_than_the_package() -> None:
    tops = {file.partition("/")[0] for file in in_context()}
    assert {"engine", "hooks", "proxy", "weir", "pyproject.toml", "README.md", "LICENSE"} <= tops
    assert not tops & {"tests", "docs", "deploy", ".git", "benchmarks", "tools"}


@pytest.mark.slow
def test_the_wheel_is_made_of_the_context(tmp_path: Path) -> None:
    context = tmp_path / "src"
    for file in in_context():
        (context / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, context / file)
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    subprocess.run([sys.executable, "-c", build], cwd=context, check=True, capture_output=True)
    unpacked = tmp_path / "unpacked"
    (wheel,) = context.glob("*.whl")
    shutil.unpack_archive(wheel, unpacked, "zip")
    page = {str(file.relative_to(ROOT)) for file in (ROOT / "proxy/http/page").rglob("*.js")}
    assert page <= {str(file.relative_to(unpacked)) for file in unpacked.rglob("*.js")}
    version = "import proxy, weir; print(proxy.__version__)"
    subprocess.run([sys.executable, "-c", version], cwd=unpacked, check=True, capture_output=True)
