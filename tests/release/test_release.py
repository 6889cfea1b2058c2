"""A release, as `make release` makes it, of the last commit."""

import csv
import hashlib
import json
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tools.release.__main__ import ROOT, ReleaseError, differing, release

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def the(folder: Path, ending: str) -> Path:
    (found,) = folder.glob(f"*{ending}")
    return found


def test_each_file_has_its_digest(made: Path) -> None:
    lines = [line.split("  ") for line in (made / "SHA256SUMS").read_text().splitlines()]
    assert {name for _, name in lines} == {p.name for p in made.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig"}
    for digest, name in lines:
        assert hashlib.sha256((made / name).read_bytes()).hexdigest() == digest


def test_the_signature_is_that_of_the_key_and_of_these_digests(made: Path, key: Path) -> None:
    public = load_pem_public_key(key.with_suffix(".pub").read_bytes())
    signature = (made / "SHA256SUMS.sig").read_bytes()
    public.verify(signature, (made / "SHA256SUMS").read_bytes())
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(key.with_suffix(".pub")), "-rawin"]
    command += ["-in", str(made / "SHA256SUMS"), "-sigfile", str(made / "SHA256SUMS.sig")]
    assert "Successfully" in subprocess.run(command, capture_output=True, check=True, text=True).stdout


def test_a_later_build_has_the_same_bytes(made: Path, tmp_path: Path) -> None:
    release("HEAD", tmp_path / "again", None, "")
    for ending in ("-any.whl", "_x86_64.whl", ".tar.gz"):
        assert the(made, ending).read_bytes() == the(tmp_path / "again", ending).read_bytes()


def test_the_packages_name_their_commit(made: Path) -> None:
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    with zipfile.ZipFile(the(made, "-any.whl")) as wheel:
        assert wheel.read("proxy/commit.txt").decode().startswith(commit)
    with tarfile.open(the(made, ".tar.gz")) as sdist:
        (name,) = [name for name in sdist.getnames() if name.endswith("proxy/commit.txt")]
        assert sdist.extractfile(name).read().decode().startswith(commit)


def test_the_source_has_the_files_that_the_pages_name(made: Path) -> None:
    named = {
        "deploy/alerts.yaml",
        "deploy/grafana/weir.json",
        "docs/operations.md",
        "examples/banned_phrase.py",
    }
    with tarfile.open(the(made, ".tar.gz")) as sdist:
        assert named <= {name.partition("/")[2] for name in sdist.getnames()}
    with zipfile.ZipFile(the(made, "-any.whl")) as wheel:
        assert not [name for name in wheel.namelist() if name.startswith(("deploy/", "docs/", "examples/"))]


@pytest.mark.parametrize("extra", ["core", "guards"])
def test_bills_of_materials_are_valid_and_whole(made: Path, extra: str) -> None:
    text = (made / f"sbom-{extra}.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    names = {component["name"].lower() for component in bill["components"]}
    assert {"aiohttp", "pydantic"} <= names
    assert ("phonenumbers" in names) == (extra == "guards")
    assert all(component["hashes"] for component in bill["components"])
    needed = next(d for d in bill["dependencies"] if d["ref"].startswith("pkg:pypi/weir-proxy"))
    assert len(needed["dependsOn"]) >= 8


def test_each_package_names_its_licence(made: Path) -> None:
    rows = [*csv.DictReader((made / "LICENCES.csv").read_text().splitlines())]
    assert {"weir-proxy", "aiohttp", "phonenumbers"} <= {row["name"] for row in rows}
    assert [row["name"] for row in rows if row["licence"] == "not said"] == []


def test_the_provenance_is_that_of_these_files(made: Path) -> None:
    found = json.loads((made / "provenance.json").read_text())
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    for subject in found["subject"]:
        assert (
            hashlib.sha256((made / subject["name"]).read_bytes()).hexdigest() == subject["digest"]["sha256"]
        )
    assert len(found["subject"]) == 3


def test_public_tools_find_nothing_wrong_with_the_packages(made: Path) -> None:
    programs = Path(sys.executable).parent
    packages = [str(the(made, ending)) for ending in ("-any.whl", "_x86_64.whl", ".tar.gz")]
    subprocess.run([str(programs / "twine"), "check", "--strict", *packages], check=True)
    # Four packages side by side are what the distribution has, and compiled kernels are no modules of Python.
    for package, ignored in zip(packages[:2], ("W002,W009", "W002,W004,W009"), strict=True):
        checks = [str(programs / "check-wheel-contents"), "--ignore", ignored, package]
        subprocess.run(checks, check=True)


def test_an_installation_says_its_commit_and_finds_changed_files(made: Path, tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=True)
    pip = [str(tmp_path / "bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(the(made, "-any.whl"))], check=True)

    def said() -> dict[str, str]:
        command = [str(tmp_path / "bin/weir"), "--version", "--verbose"]
        text = subprocess.run(command, capture_output=True, check=True, text=True, cwd=tmp_path).stdout
        return dict(line.partition(": ")[::2] for line in text.splitlines())

    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    before = said()
    assert before["commit"].startswith(commit)
    assert before["files"].startswith("as built; digest of ")
    (module,) = tmp_path.glob("lib/python*/site-packages/hooks/api/chunk.py")
    module.write_text(module.read_text() + "\n# changed\n")
    assert "1 of " in said()["files"]
    assert "hooks/api/chunk.py" in said()["files"]


def test_the_workflow_is_one_that_linters_accept() -> None:
    programs = Path(sys.executable).parent
    workflow = str(ROOT / ".github/workflows/release.yml")
    schema = [str(programs / "check-jsonschema"), "--builtin-schema", "vendor.github-workflows", workflow]
    subprocess.run(schema, check=True)
    subprocess.run([str(programs / "zizmor"), "--offline", "--quiet", workflow], check=True)


def test_a_folder_that_has_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ReleaseError, match="is not empty"):
        release("HEAD", tmp_path, None)
    with pytest.raises(ReleaseError, match="unknown revision"):
        release("no-such-tag", tmp_path / "new", None)


def test_builds_that_differ_are_named(tmp_path: Path) -> None:
    for name, text in (("one", "a"), ("other", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.txt").write_text("same")
        (tmp_path / name / "x.whl").write_text(text)
    (tmp_path / "one/alone").write_text("")
    assert differing(tmp_path / "one", tmp_path / "other") == ["alone", "x.whl"]
