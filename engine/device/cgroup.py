"""The memory that a container leaves to this process, from Linux's control groups v1 and v2.

psutil does not read them: it reports the machine's memory.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class _Version(NamedTuple):
    mount: str
    limit: str
    usage: str
    reclaimable: str
    """The field of `memory.stat` that counts cached files. The kernel frees them when it needs memory."""


_V1 = _Version(
    "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
)
_V2 = _Version("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")


def free_memory(root: Path = Path("/")) -> int | None:
    """Free memory in bytes. None: no limit applies. `root`: the folder that holds `proc` and `sys`."""
    return min((free for group, version in _groups(root) for free in _free(group, version)), default=None)


def _groups(root: Path) -> Iterator[tuple[Path, _Version]]:
    """The process's groups and their parents. Each may set a limit."""
    membership = root / "proc/self/cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        version = _V1 if controllers else _V2
        mount = root / version.mount
        group = mount / path.lstrip("/")
        # A container may see its own group at the mount, while `path` is the group's path outside.
        yield from ((g, version) for g in (group, *group.parents) if g.is_relative_to(mount))


def _free(group: Path, version: _Version) -> Iterator[int]:
    limit = group / version.limit
    if not limit.exists() or (text := limit.read_text().strip()) == "max":
        return
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    used = int((group / version.usage).read_text()) - int(stat.get(version.reclaimable, 0))
    yield max(0, int(text) - used)
