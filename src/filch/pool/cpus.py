"""How many workers a pool has when nobody says: the CPUs that this process may really use.

Three limits count: the affinity of the process, the CPU quota of its control groups (what `docker run --cpus` and
Kubernetes set, which `os.cpu_count` does not see), and what the user says in `FILCH_MAX_WORKERS`.  Not here: the
`max_workers` argument of a pool, which goes before all of them.

The formats are those of the kernel's documents: proc(5) and cgroups(7) for `/proc/self/cgroup` and
`/proc/self/mountinfo`, "Control Group v2" for `cpu.max`, "CFS Bandwidth Control" for `cpu.cfs_quota_us`.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple


def default_workers() -> int:
    """Return how many workers a pool gets when its `max_workers` is not given.

    `FILCH_MAX_WORKERS` if it is set and not empty, else `usable_cpus()`.

    Returns:
        A count of workers, at least 1.

    Raises:
        ValueError: `FILCH_MAX_WORKERS` is not an integer of at least 1.  Nothing else raises: a limit that cannot be
            read does not count.

    >>> default_workers() >= 1
    True

    .. versionadded:: 0.1
    """
    text = os.environ.get("FILCH_MAX_WORKERS", "")
    if not text:
        return usable_cpus()
    try:
        workers = int(text)
    except ValueError:
        workers = 0
    if workers < 1:
        raise ValueError(
            f"FILCH_MAX_WORKERS must be an integer of at least 1, not {text!r}; set a count of workers or unset it"
        )
    return workers


def usable_cpus(root: Path = Path("/")) -> int:
    """Return how many CPUs this process may use, counting its affinity and the quota of its control groups.

    A quota is CPU time in each period, so it need not be whole: 1.5 CPUs count as 2, and half a CPU as 1.  Of all
    groups from the process's own up to the top, the smallest quota counts.  Files that are absent, unreadable or
    not as the kernel writes them are taken to set no limit.

    Args:
        root: the folder that holds `proc` and `sys`; another one than `/` is for tests.

    Returns:
        A count of CPUs, at least 1.

    >>> 1 <= usable_cpus() <= (os.cpu_count() or 1)
    True

    .. versionadded:: 0.1
    """
    return min([_affinity(), *_quotas(root)])


def _affinity() -> int:
    """Return how many CPUs the system lets this process run on."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas(root: Path) -> Iterator[int]:
    """Yield the quota, in CPUs rounded up, of each control group that holds this process and has one."""
    groups = _groups(_read(root / "proc/self/cgroup"))
    mounts = _mounts(_read(root / "proc/self/mountinfo"))
    for version, group in groups.items():
        for folder in _folders(group, [mount for mount in mounts if mount.version == version]):
            limit = _limit(version, root / folder.relative_to("/"))
            if limit is not None:
                yield limit


class _Mount(NamedTuple):
    """A hierarchy of control groups as this process sees it."""

    version: int
    # Which group of the hierarchy the mount shows as its top: not "/" in a container, and "/.." or "/../.." when the
    # top lies above the process's cgroup namespace.
    top: PurePosixPath
    point: PurePosixPath


def _groups(text: str) -> dict[int, PurePosixPath]:
    """Return the process's own group in the hierarchies that can limit CPU: version (1 or 2) to path.

    A line is `id:controllers:path`; the path stands there as it is, colons and spaces too.
    """
    groups = {}
    for line in text.split("\n"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            groups[2] = PurePosixPath(path)
        elif "cpu" in controllers.split(","):
            groups[1] = PurePosixPath(path)
    return groups


def _mounts(text: str) -> list[_Mount]:
    """Return the mounted hierarchies that can limit CPU.

    A line is `id parent device top point options tags… - type source options`, where a space, tab, newline or
    backslash within a field is written as a backslash and three octal digits.
    """
    mounts = []
    for line in text.split("\n"):
        mount, _, system = line.partition(" - ")
        fields, system_fields = mount.split(" "), system.split(" ")
        if len(fields) < 6 or len(system_fields) < 3 or not fields[4].startswith("/"):
            continue
        top, point = PurePosixPath(_unescape(fields[3])), PurePosixPath(_unescape(fields[4]))
        if system_fields[0] == "cgroup2":
            mounts.append(_Mount(2, top, point))
        elif system_fields[0] == "cgroup" and "cpu" in system_fields[2].split(","):
            mounts.append(_Mount(1, top, point))
    return mounts


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _folders(group: PurePosixPath, mounts: list[_Mount]) -> Iterator[PurePosixPath]:
    """Yield the folders of `group` and of all groups above it that the mounts show.

    A process may be in a group that no mount shows, for one that was moved after its container had started.  Then the
    limits at the top of the mounts are the best guess there is.
    """
    below = [(mount, _below(mount.top, group)) for mount in mounts]
    if all(path is None for _, path in below):
        below = [(mount, PurePosixPath()) for mount in mounts]
    for mount, path in below:
        if path is not None:
            for level in (path, *path.parents):
                yield mount.point / level


def _below(top: PurePosixPath, group: PurePosixPath) -> PurePosixPath | None:
    """Return the way from the group `top` down to `group`, or None where there is none.

    Both are seen from the process's cgroup namespace, so either may climb out of it by leading `..`.
    """
    if group.is_relative_to(top):
        path = group.relative_to(top)
        return None if ".." in path.parts else path
    if set(top.parts[1:]) == {".."}:
        # The top lies further above than the group does.  The groups between have no names here, but the top does.
        return PurePosixPath()
    return None


def _limit(version: int, folder: Path) -> int | None:
    """Return the quota of one group in CPUs, rounded up, or None if it has none."""
    if version == 2:
        quota, _, period = _read(folder / "cpu.max").partition(" ")
    else:
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    # No quota is written as "max" (version 2) or "-1" (version 1).
    microseconds, each = _positive(quota), _positive(period)
    return None if microseconds is None or each is None else -(-microseconds // each)


def _positive(text: str) -> int | None:
    try:
        number = int(text)
    except ValueError:
        return None
    return number if number > 0 else None


def _read(path: Path) -> str:
    """Return the text of a file, or nothing if it cannot be read."""
    try:
        return os.fsdecode(path.read_bytes())
    except (OSError, ValueError):  # ValueError: a name with a null character
        return ""
