"""What is in an image, and what it may do."""

import pytest

from tests.deploy.image.conftest import DATA, USER, Image
from tests.deploy.test_deploy import of_kind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_it_runs_without_rights_on_a_root_that_it_cannot_write(image: Image) -> None:
    assert image.run("id", "-u").stdout.strip() == str(USER)
    for place in ("/opt/weir/x", "/etc/x", "/usr/x"):
        assert "Read-only" in image.run("python", "-c", f"open({place!r}, 'w')").stderr
    assert image.run("sh", "-c", "echo kept > /var/lib/weir/x && cat /var/lib/weir/x").stdout == "kept\n"


def test_it_has_nothing_that_installs_or_raises_rights(image: Image) -> None:
    found = image.run("sh", "-c", "find / -xdev -perm /6000 -type f; command -v gcc pip apt curl wget").stdout
    assert found == ""


def test_it_says_what_is_inside(image: Image) -> None:
    said = image.run("weir", "--version", "--verbose").stdout
    assert "files: as built" in said
    packages = (image.root / "opt/weir/debian-packages.txt").read_text().splitlines()
    assert any(line.startswith("python3-minimal\t") for line in packages)


def test_pods_find_their_program_in_it_and_it_accepts_their_settings(image: Image) -> None:
    (container,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    (image.data / "weir.yaml").write_text(of_kind("ConfigMap")["data"]["weir.yaml"])
    assert container["workingDir"] == DATA
    checked = image.run(container["command"][0], "config", "check", f"{DATA}/weir.yaml")
    assert checked.stdout == f"{DATA}/weir.yaml: nothing is wrong\n", checked.stderr
