"""These tests need what `make release` needs: `make test-release` has it."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("cyclonedx") else ["test_release.py"]
