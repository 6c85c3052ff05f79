"""Control groups, where this machine lets us make some."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillover.agent.nursery.affinity import Affinity
from spillover.agent.nursery.cgroups import V1, V2, CgroupsUnavailable, Slot, TooLittle, Tree, find
from tests.support.processes import wait_until


@pytest.fixture(params=[V1, V2])
def tree(request: pytest.FixtureRequest) -> Iterator[Tree]:
    try:
        tree = find(f"spill-test-{os.getpid()}", request.param)
    except CgroupsUnavailable as error:
        pytest.skip(str(error))
    yield tree
    tree.remove()
    assert not [folder for folder in tree.folders.values() if Path(folder).exists()]


def inside(slot: Slot, tree: Tree, what: Callable[[], None]) -> None:
    """Do something in a thread of its own, which is in the slot."""
    problems: list[BaseException] = []

    def run() -> None:
        try:
            slot.enter()
            what()
        except BaseException as error:  # noqa: BLE001 - raised again below
            problems.append(error)
        finally:
            if tree.kind == V1:
                for folder in tree.folders.values():
                    (Path(folder) / "tasks").write_text(str(threading.get_native_id()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if tree.kind == V1:
        for folder in tree.folders.values():
            (Path(folder).parent / "cgroup.procs").write_text(str(os.getpid()))
    if problems:
        raise problems[0]


def spawn(slot: Slot, *argv: str) -> int:
    program, words = argv[0], list(argv)
    if slot.wraps:
        program, words = slot.wrap(program, words)
    return os.posix_spawn(program, words, {"PATH": os.defpath})


def test_what_is_made_in_a_slot_is_killed_with_it(tree: Tree) -> None:
    slot = Slot(tree, 0)

    def run() -> None:
        pid = spawn(slot, "/bin/sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & wait")
        while len(slot.members()) < 3:
            pass
        slot.kill()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        while slot.members():
            pass
        again = spawn(slot, "/bin/true")
        assert os.waitstatus_to_exitcode(os.waitpid(again, 0)[1]) == 0

    inside(slot, tree, run)


def test_memory_is_limited_and_peaks_are_known(tree: Tree) -> None:
    if not tree.limits_memory:
        pytest.skip("no controller of memory")
    slot = Slot(tree, 0)
    hog = ("/bin/sh", "-c", "head -c 200000000 /dev/zero | tail -c 200000000 >/dev/null")

    def run() -> None:
        for memory, starved in (
            (32 << 20, True),
            (0, False),
            (64 << 20, True),
            (1 << 30, False),
            (16 << 20, True),
        ):
            slot.fit(memory, 1000)
            assert not slot.starved()
            os.waitpid(spawn(slot, *hog), 0)
            assert slot.starved() is starved, memory
            if memory:
                assert (slot.peak() >= memory * 9 // 10) is starved

    inside(slot, tree, run)


@pytest.mark.parametrize("tree", [V1], indirect=True)
def test_less_memory_than_is_in_use_is_told_and_leaves_no_limit_behind(tree: Tree) -> None:
    slot = Slot(tree, 0)

    def run() -> None:
        slot.fit(64 << 20, 1000)
        pid = spawn(slot, "/bin/sh", "-c", "sleep 1000 & wait")
        wait_until(lambda: len(slot.members()) >= 2, "two processes", 10)
        with pytest.raises(
            TooLittle, match=r"^it requests 5 bytes of memory, but [1-9]\d+ are in use before"
        ):
            slot.fit(5, 1000)
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            limit = Path(tree.folders["memory"], "0", name)
            assert not limit.exists() or int(limit.read_text()) > 1 << 60
        slot.kill()
        os.waitpid(pid, 0)
        slot.fit(64 << 20, 1000)
        again = spawn(slot, "/bin/true")
        assert os.waitstatus_to_exitcode(os.waitpid(again, 0)[1]) == 0

    inside(slot, tree, run)


def test_shares_follow_the_request(tree: Tree) -> None:
    if "cpu" not in tree.folders:
        pytest.skip("no controller of CPUs")
    slot = Slot(tree, 0)
    slot.fit(0, 4000)
    shares = Path(tree.folders["cpu"]) / "0" / ("cpu.shares" if tree.kind == V1 else "cpu.weight")
    assert int(shares.read_text()) == (4096 if tree.kind == V1 else 400)


def test_memory_is_of_the_numa_nodes_of_a_task_and_then_of_all_again(tree: Tree) -> None:
    if "cpuset" not in tree.folders:
        pytest.skip("there are no cpusets")
    slot = Slot(tree, 0)
    folder = Path(tree.folders["cpuset"]) / "0"
    name = "cpuset.mems.effective" if tree.kind == V2 else "cpuset.mems"
    every, cpu = (folder / name).read_text(), str(min(os.sched_getaffinity(0)))
    affinity = Affinity()
    assert affinity.enter(cpu, "", slot, "0") == "", "the thread itself stays on its CPUs"
    assert (folder / "cpuset.mems").read_text() == "0\n"
    assert (folder / "cpuset.cpus").read_text() == f"{cpu}\n"
    assert slot.pin(cpu, "1000"), "its CPUs are as before"
    assert (folder / name).read_text() == every, "there is no such NUMA node"
    assert slot.pin(cpu, "0")
    assert slot.pin("")
    assert (folder / name).read_text() == every


def test_removing_kills_what_is_left_in_any_branch(tree: Tree) -> None:
    branch = tree.branch("7")
    slot = Slot(branch, 0)
    (folder,) = {next(iter(branch.folders.values()))}
    left = subprocess.Popen(["sleep", "1000"])
    (Path(folder) / "0" / "cgroup.procs").write_text(str(left.pid))
    assert left.pid in slot.members() or "freezer" in tree.folders
    assert tree.remove() >= 1
    assert left.wait() == -signal.SIGKILL
