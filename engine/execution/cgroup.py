"""What memory this process may still take where a container limits it: Linux's control groups, v1 and v2."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class _Version(NamedTuple):
    mount: str
    limit: str
    usage: str
    reclaimable: str
    """In `memory.stat`: the cache of files, that the kernel takes back when it needs to."""


_V1 = _Version(
    "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
)
_V2 = _Version("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes; None where nothing limits it. `root`: where `proc` and `sys` are."""
    return min((free for group, version in _groups(root) for free in _free(group, version)), default=None)


def _groups(root: Path) -> Iterator[tuple[Path, _Version]]:
    """The process's groups and those around them: each sets a limit."""
    membership = root / "proc/self/cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        version = _V1 if controllers else _V2
        mount = root / version.mount
        group = mount / path.lstrip("/")
        # A container may see its own group at the mount, and be told the path that it has outside.
        yield from ((g, version) for g in (group, *group.parents) if g.is_relative_to(mount))


def _free(group: Path, version: _Version) -> Iterator[int]:
    limit = group / version.limit
    if not limit.exists() or (text := limit.read_text().strip()) == "max":
        return
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    used = int((group / version.usage).read_text()) - int(stat.get(version.reclaimable, 0))
    yield max(0, int(text) - used)
