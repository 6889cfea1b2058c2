"""A release of the last commit, as `make release` makes it. It needs what `make test-release` has."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

collect_ignore = [] if find_spec("cyclonedx") else ["test_release.py", "test_kernels.py"]


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key.pem"
    made = Ed25519PrivateKey.generate()
    path.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    path.with_suffix(".pub").write_bytes(public)
    return path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, key: Path) -> Path:
    from tools.release.__main__ import release

    out = tmp_path_factory.mktemp("release") / "out"
    release("HEAD", out, key, ",guards")
    return out
