"""Bills of materials: what pip would install for the wheel with an extra, as CycloneDX 1.6."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


class BillError(Exception):
    """pip could not say what it would install. The message is for the person who makes the release."""


class Package(NamedTuple):
    name: str
    version: str
    licence: str
    """An SPDX expression, or the words of the package. Empty: it does not say."""
    home: str
    digest: str
    """The SHA-256 of the file that pip would install. Empty for the wheel itself."""
    requires: tuple[str, ...]


def bills(
    wheel: Path, extras: Iterable[str], seconds: int
) -> Iterator[tuple[str, str, Mapping[str, Package]]]:
    """For each extra ("" is none of them): a file's name, its content, and the packages by name. Bills say
    what the index gives now. `seconds`: the time of the release."""
    for extra in extras:
        packages = installed_with(f"{wheel}[{extra}]" if extra else str(wheel))
        name = f"sbom-{extra or 'core'}.cdx.json"
        yield name, _bill(packages, name, seconds), packages


def installed_with(requirement: str) -> dict[str, Package]:
    """Raises `BillError`."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--dry-run", "--ignore-installed", "--only-binary", ":all:", "--report", "-", requirement]
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode:
        raise BillError(f"pip cannot resolve {requirement}:\n{found.stderr[-1000:]}")
    items = json.loads(found.stdout[found.stdout.index("{") :])["install"]
    packages = map(_package, items)
    return {canonicalize_name(package.name): package for package in packages}


def _package(item: Mapping[str, Any]) -> Package:
    metadata = item["metadata"]
    return Package(
        name=metadata["name"],
        version=metadata["version"],
        licence=licence_of(metadata),
        home=_home(metadata),
        digest=item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", ""),
        requires=tuple(metadata.get("requires_dist", ())),
    )


def licence_of(metadata: Mapping[str, Any]) -> str:
    """The SPDX expression; else the trove classifiers; else the first line of the free text."""
    if expression := metadata.get("license_expression"):
        return str(expression)
    classifiers = [c.split(" :: ")[-1] for c in metadata.get("classifier", ()) if c.startswith("License ::")]
    if named := [name for name in classifiers if name != "OSI Approved"]:
        return " AND ".join(named)
    lines = str(metadata.get("license") or "").strip().splitlines()
    return lines[0].strip() if lines else ""


def _home(metadata: Mapping[str, Any]) -> str:
    """The package's home page, else its source."""
    urls = {"home": metadata.get("home_page") or ""}
    for named in metadata.get("project_url", ()):
        label, _, url = named.partition(",")
        urls[label.strip().lower()] = url.strip()
    for word in ("home", "source", "repository", "github", "code"):
        for label, url in urls.items():
            if word in label and url.startswith("http"):
                return url
    return ""


def _bill(packages: Mapping[str, Package], name: str, seconds: int) -> str:
    made = datetime.fromtimestamp(seconds, UTC)
    components = {key: _component(package) for key, package in packages.items()}
    bom = Bom(components=components.values(), serial_number=uuid5(NAMESPACE_URL, name + made.isoformat()))
    bom.metadata.timestamp = made
    bom.metadata.component = components["weir-proxy"]
    bom.components.discard(components["weir-proxy"])
    for key, package in packages.items():
        needed = {canonicalize_name(Requirement(text).name) for text in package.requires}
        bom.register_dependency(components[key], [components[n] for n in sorted(needed) if n in components])
    text: str = JsonV1Dot6(bom).output_as_string(indent=2)
    return text + "\n"


def _component(package: Package) -> Component:
    url = PackageURL("pypi", name=canonicalize_name(package.name), version=package.version)
    licences = [LicenseFactory().make_from_string(package.licence)] if package.licence else []
    references = (
        [ExternalReference(type=ExternalReferenceType.WEBSITE, url=XsUri(package.home))]
        if package.home
        else []
    )
    return Component(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        bom_ref=str(url),
        purl=url,
        licenses=licences,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=package.digest)] if package.digest else [],
        external_references=references,
    )


def licences(packages: Mapping[str, Package]) -> str:
    """A table: name, version, licence, home page."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["name", "version", "licence", "home"])
    for key in sorted(packages):
        package = packages[key]
        writer.writerow([package.name, package.version, package.licence or "not said", package.home])
    return out.getvalue()
