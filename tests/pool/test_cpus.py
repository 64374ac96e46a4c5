"""The number of workers by default: environment, affinity, and control groups on fixture trees."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from filch.pool import cpus

MANY = 64

Tree = Callable[[dict[str, str]], Path]


@pytest.fixture(autouse=True)
def _many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the process more CPUs than any quota here, so that the quota decides, and no wish of the user's."""
    monkeypatch.delenv("FILCH_MAX_WORKERS", raising=False)
    monkeypatch.setattr(cpus, "_affinity", lambda: MANY)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a function that writes files (path to text) and returns the root that they lie under."""

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.fsencode(text))
        return tmp_path

    return write


def v2_mount(top: str = "/", point: str = "/sys/fs/cgroup") -> str:
    """Return the line of mountinfo that shows a version 2 hierarchy."""
    return f"30 23 0:26 {top} {point} rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def v1_mount(top: str = "/", point: str = "/sys/fs/cgroup/cpu,cpuacct", options: str = "rw,cpu,cpuacct") -> str:
    """Return the line of mountinfo that shows a version 1 hierarchy."""
    return f"33 31 0:30 {top} {point} rw,nosuid,nodev,noexec,relatime shared:9 - cgroup cgroup {options}\n"


def v2(group: str, mounts: str) -> dict[str, str]:
    """Return the two files of proc for a process in `group` of a version 2 hierarchy."""
    return {"proc/self/cgroup": f"0::{group}\n", "proc/self/mountinfo": mounts}


def v1_limit(folder: str, quota: str, period: str = "100000\n") -> dict[str, str]:
    """Return the two files that limit a group of version 1."""
    return {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period}


class TestEnvironment:
    def test_the_user_decides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """FILCH_MAX_WORKERS would be cut to what the machine has, or not be looked at."""
        monkeypatch.setenv("FILCH_MAX_WORKERS", "129")
        assert cpus.default_workers() == 129

    @pytest.mark.parametrize("value", ["0", "-3", "2.5", "many", " "])
    def test_a_bad_wish_is_refused(self, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        """A typing error in FILCH_MAX_WORKERS would pass in silence, or break a pool much later."""
        monkeypatch.setenv("FILCH_MAX_WORKERS", value)
        with pytest.raises(ValueError) as caught:
            cpus.default_workers()
        assert str(caught.value) == (
            f"FILCH_MAX_WORKERS must be an integer of at least 1, not {value!r}; set a count of workers or unset it"
        )

    @pytest.mark.parametrize("value", [None, ""])
    def test_without_a_wish_the_cpus_count(self, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
        """An unset or emptied FILCH_MAX_WORKERS would be an error, or would not lead to the CPUs."""
        if value is not None:
            monkeypatch.setenv("FILCH_MAX_WORKERS", value)
        monkeypatch.setattr(cpus, "usable_cpus", lambda: 7)
        assert cpus.default_workers() == 7


class TestAffinity:
    @pytest.fixture
    def affinity(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
        """Undo what `_many_cpus` replaced."""
        monkeypatch.undo()
        return cpus._affinity

    @pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
    def test_affinity_counts(self, affinity: Callable[[], int], tmp_path: Path) -> None:
        """A process held to one CPU (taskset, a cpuset) would start a worker for each CPU of the machine."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(before)})
        try:
            assert affinity() == 1
            assert cpus.usable_cpus(tmp_path) == 1
        finally:
            os.sched_setaffinity(0, before)

    @pytest.mark.skipif(sys.version_info >= (3, 13), reason="os.process_cpu_count is asked instead")
    @pytest.mark.parametrize(("count", "workers"), [(12, 12), (None, 1)])
    def test_a_system_without_affinity(
        self, monkeypatch: pytest.MonkeyPatch, affinity: Callable[[], int], count: int | None, workers: int
    ) -> None:
        """macOS and Windows would fail on `os.sched_getaffinity`, or on a count that the system does not know."""
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
        monkeypatch.setattr(os, "cpu_count", lambda: count)
        assert affinity() == workers

    @pytest.mark.skipif(sys.version_info < (3, 13), reason="os.process_cpu_count came with 3.13")
    @pytest.mark.parametrize(("count", "workers"), [(12, 12), (None, 1)])
    def test_the_count_of_the_interpreter(
        self, monkeypatch: pytest.MonkeyPatch, affinity: Callable[[], int], count: int | None, workers: int
    ) -> None:
        """`-X cpu_count` and `PYTHON_CPU_COUNT` would not count."""
        monkeypatch.setattr(os, "process_cpu_count", lambda: count)
        assert affinity() == workers

    def test_a_small_affinity_wins_over_a_large_quota(self, monkeypatch: pytest.MonkeyPatch, tree: Tree) -> None:
        """A generous quota would raise the count above the CPUs that there are."""
        monkeypatch.setattr(cpus, "_affinity", lambda: 2)
        root = tree({**v2("/", v2_mount()), "sys/fs/cgroup/cpu.max": "800000 100000\n"})
        assert cpus.usable_cpus(root) == 2


class TestVersion2:
    @pytest.mark.parametrize(
        ("text", "workers"),
        [
            ("max 100000\n", MANY),
            ("300000 100000\n", 3),
            ("250000 100000\n", 3),
            ("200001 100000\n", 3),
            ("50000 100000\n", 1),
            ("1000 1000000\n", 1),
            ("40000 10000\n", 4),
            ("9999999999 100000\n", MANY),
        ],
    )
    def test_the_quota_is_rounded_up(self, tree: Tree, text: str, workers: int) -> None:
        """A part of a CPU would be lost, `max` would be taken for a number, or another period for 100 ms."""
        root = tree({**v2("/", v2_mount()), "sys/fs/cgroup/cpu.max": text})
        assert cpus.usable_cpus(root) == workers

    def test_the_smallest_of_all_levels_counts(self, tree: Tree) -> None:
        """A limit on a slice would not bind the services in it."""
        root = tree(
            {
                **v2("/system.slice/app.slice/app.service", v2_mount()),
                "sys/fs/cgroup/system.slice/cpu.max": "600000 100000\n",
                "sys/fs/cgroup/system.slice/app.slice/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/system.slice/app.slice/app.service/cpu.max": "400000 100000\n",
            }
        )
        assert cpus.usable_cpus(root) == 2

    def test_a_level_that_cannot_be_read_is_passed_over(self, tree: Tree) -> None:
        """A limit above a group without `cpu.max` (the controller is not enabled there) would be missed."""
        root = tree(
            {
                **v2("/user.slice/user-1000.slice/session-3.scope", v2_mount()),
                "sys/fs/cgroup/user.slice/cpu.max": "500000 100000\n",
            }
        )
        assert cpus.usable_cpus(root) == 5

    def test_only_own_ancestors_count(self, tree: Tree) -> None:
        """A neighbour's limit would bind this process too."""
        root = tree(
            {
                **v2("/b", v2_mount()),
                "sys/fs/cgroup/a/cpu.max": "100000 100000\n",
                "sys/fs/cgroup/b/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/b/c/cpu.max": "100000 100000\n",
            }
        )
        assert cpus.usable_cpus(root) == 3

    def test_a_container_with_its_own_namespace(self, tree: Tree) -> None:
        """The limit of `docker run --cpus`, which stands at the top of what the container sees, would be missed."""
        root = tree({**v2("/", v2_mount()), "sys/fs/cgroup/cpu.max": "200000 100000\n"})
        assert cpus.usable_cpus(root) == 2

    def test_a_container_in_its_host_namespace(self, tree: Tree) -> None:
        """The host's path would be looked for below a mount that begins at the container's own group."""
        root = tree(
            {
                **v2("/kubepods.slice/pod7/c1/worker", v2_mount("/kubepods.slice/pod7/c1")),
                "sys/fs/cgroup/cpu.max": "700000 100000\n",
                "sys/fs/cgroup/worker/cpu.max": "300000 100000\n",
            }
        )
        assert cpus.usable_cpus(root) == 3

    def test_a_top_with_a_longer_name_is_another_group(self, tree: Tree) -> None:
        """`/pod1` would be taken for the parent of `/pod10` because its name begins the same."""
        mounts = v2_mount("/pod1", "/mnt/one") + v2_mount("/pod10", "/mnt/ten")
        root = tree(
            {
                **v2("/pod10", mounts),
                "mnt/one/cpu.max": "100000 100000\n",
                "mnt/ten/cpu.max": "400000 100000\n",
            }
        )
        assert cpus.usable_cpus(root) == 4

    def test_a_group_that_no_mount_shows(self, tree: Tree) -> None:
        """A process moved into another group would have no limit at all instead of that of its container."""
        root = tree(
            {
                **v2("/user.slice/session-3.scope", v2_mount("/user.slice/session-50.scope")),
                "sys/fs/cgroup/cpu.max": "200000 100000\n",
            }
        )
        assert cpus.usable_cpus(root) == 2

    def test_a_mount_from_above_the_namespace(self, tree: Tree) -> None:
        """A mount older than the namespace, whose top is `/..`, would hide a limit or lead to a wrong folder."""
        root = tree(
            {
                **v2("/../beside/child", v2_mount("/..")),
                "sys/fs/cgroup/cpu.max": "600000 100000\n",
                "sys/fs/cgroup/beside/cpu.max": "300000 100000\n",
            }
        )
        assert cpus.usable_cpus(root) == 3

    def test_a_mount_from_far_above_the_namespace(self, tree: Tree) -> None:
        """The limit at a top that lies levels above this process, with no names between, would be missed."""
        mounts = v2_mount("/../..", "/mnt/host") + v2_mount()
        root = tree(
            {
                **v2("/", mounts),
                "mnt/host/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/cpu.max": "600000 100000\n",
            }
        )
        assert cpus.usable_cpus(root) == 2

    def test_a_path_never_leaves_its_mount(self, tree: Tree) -> None:
        """`..` in a path would read files beside the mount, of a group that does not hold this process."""
        root = tree(
            {
                **v2("/../cpu", v2_mount()),
                "sys/fs/cpu/cpu.max": "100000 100000\n",
                "sys/fs/cgroup/cpu.max": "400000 100000\n",
            }
        )
        assert cpus.usable_cpus(root) == 4

    def test_escapes_in_mountinfo(self, tree: Tree) -> None:
        """A space or a backslash in the name of a group or of a mount would make its limit be missed."""
        root = tree(
            {
                **v2("/my pods/a\\x2db.slice/c", v2_mount("/my\\040pods/a\\134x2db.slice", "/mnt/control\\040groups")),
                "mnt/control groups/c/cpu.max": "200000 100000\n",
            }
        )
        assert cpus.usable_cpus(root) == 2

    @pytest.mark.parametrize("name", ["a:b", "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "bad\udcff", "\x85", " x "])
    def test_odd_names(self, tree: Tree, name: str) -> None:
        """A name with a colon, a blank or bytes that are not UTF-8 would make its limit be missed, or raise."""
        root = tree({**v2(f"/{name}", v2_mount()), f"sys/fs/cgroup/{name}/cpu.max": "200000 100000\n"})
        assert cpus.usable_cpus(root) == 2


class TestVersion1:
    def test_the_quota_is_rounded_up(self, tree: Tree) -> None:
        """The limit of a machine with version 1 would be missed, or cut."""
        root = tree(
            {
                "proc/self/cgroup": "12:pids:/\n4:cpu,cpuacct:/\n1:name=systemd:/\n",
                "proc/self/mountinfo": v1_mount(),
                **v1_limit("sys/fs/cgroup/cpu,cpuacct", "130000\n", "50000\n"),
            }
        )
        assert cpus.usable_cpus(root) == 3

    def test_the_smallest_of_all_levels_counts(self, tree: Tree) -> None:
        """-1 (no limit) would count as a limit, or a limit further up would not bind."""
        folder = "sys/fs/cgroup/cpu,cpuacct"
        root = tree(
            {
                "proc/self/cgroup": "4:cpuacct,cpu:/docker/abc\n",
                "proc/self/mountinfo": v1_mount(),
                **v1_limit(folder, "-1\n"),
                **v1_limit(f"{folder}/docker", "200000\n"),
                **v1_limit(f"{folder}/docker/abc", "-1\n"),
            }
        )
        assert cpus.usable_cpus(root) == 2

    def test_other_controllers_do_not_count(self, tree: Tree) -> None:
        """The path or the mount of `cpuset` would be taken for that of `cpu`."""
        root = tree(
            {
                "proc/self/cgroup": "5:cpuset:/wrong\n4:cpu:/right\n3:cpuacct:/wrong\n",
                "proc/self/mountinfo": v1_mount(point="/sys/fs/cgroup/cpuset", options="rw,cpuset")
                + v1_mount(point="/sys/fs/cgroup/cpu", options="rw,cpu"),
                **v1_limit("sys/fs/cgroup/cpu/right", "300000\n"),
                **v1_limit("sys/fs/cgroup/cpu/wrong", "100000\n"),
                **v1_limit("sys/fs/cgroup/cpuset/right", "100000\n"),
            }
        )
        assert cpus.usable_cpus(root) == 3

    def test_a_container(self, tree: Tree) -> None:
        """In a container without a namespace of its own, the host's path would be looked for below its mount."""
        root = tree(
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/abc\n",
                "proc/self/mountinfo": v1_mount(top="/docker/abc"),
                **v1_limit("sys/fs/cgroup/cpu,cpuacct", "150000\n"),
            }
        )
        assert cpus.usable_cpus(root) == 2


class TestHybrid:
    @pytest.mark.parametrize(("version_1", "version_2", "workers"), [(2, 5, 2), (5, 2, 2), (3, None, 3)])
    def test_both_versions_count(self, tree: Tree, version_1: int, version_2: int | None, workers: int) -> None:
        """On a system with both versions, the limit that stands in the other one would be missed."""
        files = {
            "proc/self/cgroup": "4:cpu,cpuacct:/one\n0::/two\n",
            "proc/self/mountinfo": v2_mount(point="/sys/fs/cgroup/unified") + v1_mount(),
            **v1_limit("sys/fs/cgroup/cpu,cpuacct/one", f"{version_1 * 100000}\n"),
        }
        if version_2 is not None:
            files["sys/fs/cgroup/unified/two/cpu.max"] = f"{version_2 * 100000} 100000\n"
        assert cpus.usable_cpus(tree(files)) == workers

    def test_each_version_keeps_its_path(self, tree: Tree) -> None:
        """The path of one version would be looked for in the mount of the other."""
        root = tree(
            {
                "proc/self/cgroup": "4:cpu:/one\n0::/two\n",
                "proc/self/mountinfo": v2_mount(point="/sys/fs/cgroup/unified") + v1_mount(),
                "sys/fs/cgroup/unified/one/cpu.max": "100000 100000\n",
                "sys/fs/cgroup/cpu,cpuacct/two/cpu.max": "100000 100000\n",
                **v1_limit("sys/fs/cgroup/cpu,cpuacct/two", "100000\n"),
                **v1_limit("sys/fs/cgroup/unified/one", "100000\n"),
            }
        )
        assert cpus.usable_cpus(root) == MANY


class TestUnreadable:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "\n",
            "max",
            "100000",
            "lots 100000",
            "100000 often",
            "0 100000",
            "-5 100000",
            "100000 0",
            "1 2 3",
            "\udcff",
        ],
    )
    def test_garbage_is_no_limit(self, tree: Tree, text: str) -> None:
        """A file that is not as the kernel writes it would raise, or give a limit out of thin air."""
        root = tree({**v2("/", v2_mount()), "sys/fs/cgroup/cpu.max": text})
        assert cpus.usable_cpus(root) == MANY

    @pytest.mark.parametrize(
        ("quota", "period"), [("", "100000"), ("200000", ""), ("200000", "0"), ("x", "100000"), ("0", "100000")]
    )
    def test_garbage_in_version_1_is_no_limit(self, tree: Tree, quota: str, period: str) -> None:
        """A quota without its period would raise, or give a limit out of thin air."""
        root = tree(
            {
                "proc/self/cgroup": "4:cpu:/\n",
                "proc/self/mountinfo": v1_mount(),
                **v1_limit("sys/fs/cgroup/cpu,cpuacct", quota, period),
            }
        )
        assert cpus.usable_cpus(root) == MANY

    @pytest.mark.parametrize("name", ["proc/self/cgroup", "proc/self/mountinfo", "sys/fs/cgroup/cpu.max"])
    @pytest.mark.parametrize("instead", ["absent", "folder", "unreadable"])
    def test_a_file_that_cannot_be_read_is_no_limit(self, tree: Tree, name: str, instead: str) -> None:
        """A system without control groups, or one that hides them, would get no pool at all."""
        root = tree({**v2("/", v2_mount()), "sys/fs/cgroup/cpu.max": "200000 100000\n"})
        (root / name).unlink()
        if instead == "folder":
            (root / name).mkdir()
        elif instead == "unreadable":
            (root / name).symlink_to(name.rpartition("/")[2])  # to itself: opening it fails, for the superuser too
        assert cpus.usable_cpus(root) == MANY

    @pytest.mark.parametrize(
        "line",
        [
            "",
            "garbage",
            " - ",
            "1 2 3 4 5 6",
            "30 23 0:26 / relative rw - cgroup2 cgroup2 rw",
            "1 2 3 - cgroup2 a rw",
            "30 23 0:26 / /x rw - cgroup",
        ],
    )
    def test_garbage_in_mountinfo_hides_no_other_line(self, tree: Tree, line: str) -> None:
        """One line that is not understood would raise, or make the lines after it be missed."""
        root = tree({**v2("/", f"{line}\n{v2_mount()}"), "sys/fs/cgroup/cpu.max": "200000 100000\n"})
        assert cpus.usable_cpus(root) == 2

    @pytest.mark.parametrize("line", ["", "garbage", "::", "7:cpu", "x::/y"])
    def test_garbage_in_the_list_of_groups_hides_no_other_line(self, tree: Tree, line: str) -> None:
        """One line that is not understood would raise, or make the lines after it be missed."""
        files = {**v2("/", v2_mount()), "sys/fs/cgroup/cpu.max": "200000 100000\n"}
        files["proc/self/cgroup"] = f"{line}\n{files['proc/self/cgroup']}"
        assert cpus.usable_cpus(tree(files)) == 2

    def test_a_null_character_in_a_name(self, tree: Tree) -> None:
        """A path that no system call takes would raise out of the making of a pool."""
        root = tree({**v2("/a\0b", v2_mount()), "sys/fs/cgroup/cpu.max": "200000 100000\n"})
        assert cpus.usable_cpus(root) == 2
