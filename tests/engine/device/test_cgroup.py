"""The free memory of a container, on machines that are written as files."""

from pathlib import Path

import pytest

from engine.device import cgroup

GIB = 2**30


def machine(root: Path, membership: str, **files: str) -> Path:
    """A folder with the machine's files, each named by its path with `__` for `/`."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(membership)
    for path, text in files.items():
        file = root / "sys/fs/cgroup" / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_without_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert cgroup.free_memory(tmp_path) is None
    assert cgroup.free_memory(machine(tmp_path, "0::/\n")) is None


def test_cached_files_count_as_free(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "0::/\n",
        **{
            "memory.max": f"{4 * GIB}\n",
            "memory.current": f"{3 * GIB}\n",
            "memory.stat": f"anon 5\ninactive_file {2 * GIB}\n",
        },
    )
    assert cgroup.free_memory(root) == 3 * GIB


def test_every_group_around_the_process_sets_a_limit(tmp_path: Path) -> None:
    inner = {"a__b__memory.max": "max\n", "a__b__memory.current": "7\n", "a__b__memory.stat": "anon 5\n"}
    outer = {"a__memory.max": "100\n", "a__memory.current": "30\n", "a__memory.stat": "anon 5\n"}
    assert cgroup.free_memory(machine(tmp_path, "0::/a/b\n", **inner, **outer)) == 70


@pytest.mark.parametrize("path", ["/", "/docker/0123", "/not/what/the/container/sees"])
def test_version_one_is_read(tmp_path: Path, path: str) -> None:
    root = machine(
        tmp_path,
        f"9:cpu:/x\n4:memory,hugetlb:{path}\n0::/\n",
        **{
            "memory__memory.limit_in_bytes": "100\n",
            "memory__memory.usage_in_bytes": "120\n",
            "memory__memory.stat": "total_inactive_file 60\n",
            "memory__docker__0123__memory.limit_in_bytes": f"{2**63 - 4096}\n",
            "memory__docker__0123__memory.usage_in_bytes": "9\n",
            "memory__docker__0123__memory.stat": "total_inactive_file 0\n",
        },
    )
    assert cgroup.free_memory(root) == 40


def test_a_group_over_its_limit_has_nothing_free(tmp_path: Path) -> None:
    files = {"memory.max": "100\n", "memory.current": "120\n", "memory.stat": "anon 5\n"}
    assert cgroup.free_memory(machine(tmp_path, "0::/\n", **files)) == 0
