"""What an agent reads of the inside of its machine."""

import os
from pathlib import Path

import pytest

from spillover.agent.tasks import topology
from spillover.model.inside import Domain, Inside, Link

PAIRS = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tSYS\tSYS\tSYS\tSYS\tSYS\t4-7,12-15\t1\t\tN/A
GPU1\tSYS\t X \tNV4\tNODE\tNODE\tPHB\t0-3,8-11\t0\t\tN/A
GPU2\tSYS\tNV4\t X \tNODE\tNODE\tPHB\t0-3,8-11\t0\t\tN/A
GPU3\tSYS\tNODE\tNODE\t X \tPIX\tNODE\t0-3,8-11\t0\t\tN/A
GPU4\tSYS\tNODE\tNODE\tPIX\t X \tNODE\t0-3,8-11\t0\t\tN/A
NIC0\tSYS\tPHB\tPHB\tNODE\tNODE\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""
OLD = """\
        GPU0    GPU1    GPU2    GPU3    mlx4_0  CPU Affinity
GPU0     X      PIX     SYS     SYS     PHB     0-1,4-5
GPU1    PIX      X      SYS     SYS     PHB     0-1,4-5
GPU2    SYS     SYS      X      PIX     SYS     2-3,6-7
GPU3    SYS     SYS     PIX      X      SYS     2-3,6-7
mlx4_0  PHB     PHB     SYS     SYS      X
"""


def machine(root: Path, cpus: int, threads: int, sockets: int, numas: int) -> Path:
    """Write topology files as the kernel shows them: thread n of all cores follows thread n - 1."""
    cores = cpus // threads
    for cpu in range(cpus):
        core = cpu % cores
        folder = root / "cpu" / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{core * sockets // cores}\n")
        siblings = ",".join(str(core + cores * thread) for thread in range(threads))
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    for numa in range(numas):
        folder = root / "node" / f"node{numa}"
        folder.mkdir(parents=True)
        own = [str(cpu) for cpu in range(cpus) if cpu % cores * numas // cores == numa]
        (folder / "cpulist").write_text(",".join(own) + "\n")
        (folder / "meminfo").write_text(f"Node {numa} MemTotal:       1024 kB\nNode {numa} MemFree: 3 kB\n")
    return root


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))


def smi(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an nvidia-smi on PATH that prints a matrix."""
    folder.mkdir()
    (folder / "matrix").write_text(text)
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ "$1 $2" = "topo -m" ] && exec cat {folder}/matrix\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


@pytest.mark.usefixtures("allowed")
def test_sockets_and_numa_nodes_are_read_with_whole_cores(tmp_path: Path) -> None:
    found = topology.find(16_000, (), machine(tmp_path, 16, threads=2, sockets=2, numas=4))
    assert found == Inside(
        (
            Domain(0, ("0-1", "8-9"), (), 1 << 20),
            Domain(0, ("2-3", "10-11"), (), 1 << 20),
            Domain(1, ("4-5", "12-13"), (), 1 << 20),
            Domain(1, ("6-7", "14-15"), (), 1 << 20),
        )
    )
    assert found is not None
    assert found.threads == 2


@pytest.mark.usefixtures("allowed")
def test_the_memory_of_a_numa_node_over_two_sockets_is_not_counted_twice(tmp_path: Path) -> None:
    found = topology.find(16_000, (), machine(tmp_path, 16, threads=2, sockets=2, numas=1))
    assert found is not None
    assert [(domain.socket, domain.memory) for domain in found.domains] == [(0, 0), (1, 0)]


def test_cpus_are_of_numa_nodes_as_the_kernel_numbers_them(tmp_path: Path) -> None:
    root = machine(tmp_path, 16, threads=2, sockets=2, numas=4)
    assert topology.memory_nodes("4-5,12", root) == "2"
    assert topology.memory_nodes("1,15", root) == "0,3"
    assert topology.memory_nodes("0", tmp_path / "elsewhere") == ""


@pytest.mark.usefixtures("allowed")
def test_an_agent_for_some_of_the_cpus_reports_as_many(tmp_path: Path) -> None:
    root = machine(tmp_path, 16, threads=2, sockets=2, numas=2)
    some = topology.find(10_000, (), root)
    assert some is not None
    assert [domain.cpus for domain in some.domains] == [("0-3", "8-11"), ("4", "12")]
    odd = topology.find(9_000, (), root)  # half a core would be left, so each CPU counts
    assert odd is not None
    assert [domain.cpus for domain in odd.domains] == [("0-3,8-11",), ("4",)]
    assert topology.find(17_000, (), root) is None, "more CPUs than there are"


def test_only_cpus_that_the_agent_may_use_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 4})
    found = topology.find(3_000, (), machine(tmp_path, 8, threads=1, sockets=2, numas=2))
    assert found is not None
    assert [(domain.socket, domain.cpus) for domain in found.domains] == [(0, ("2-3",)), (1, ("4",))]


@pytest.mark.usefixtures("allowed")
def test_gpus_are_near_numa_nodes_and_linked_in_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(tmp_path / "bin", PAIRS, monkeypatch)
    root = machine(tmp_path / "sys", 16, threads=2, sockets=2, numas=2)
    found = topology.find(16_000, ("0", "1", "2", "3", "4"), root)
    assert found is not None
    assert [domain.gpus for domain in found.domains] == [("1", "2", "3", "4"), ("0",)]
    assert found.links == (Link("nvlink", ("1", "2")), Link("pcie", ("3", "4")))
    fewer = topology.find(16_000, ("0", "1"), root)
    assert fewer is not None
    assert (fewer.gpus, fewer.links) == (("0", "1"), ())


def test_a_matrix_without_numa_nodes_is_read_by_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    smi(tmp_path / "bin", OLD, monkeypatch)
    root = machine(tmp_path / "sys", 8, threads=2, sockets=2, numas=2)
    found = topology.find(8_000, ("0", "1", "2", "3"), root)
    assert found is not None
    assert [domain.gpus for domain in found.domains] == [("0", "1"), ("2", "3")]
    assert found.links == (Link("pcie", ("0", "1")), Link("pcie", ("2", "3")))


@pytest.mark.parametrize(
    "text", ["", "no devices were found", "\tGPU0\nGPU0\t X", "\tGPU0\tCPU Affinity\nGPU0\t?\tx-y"]
)
def test_a_matrix_that_says_nothing_leaves_only_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    smi(tmp_path / "bin", text, monkeypatch)
    found = topology.find(10**9, ("0",), tmp_path / "nothing")
    assert found == Inside((), ("0",))


def test_a_machine_without_topology_files_is_one_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert topology.find(2_000, (), tmp_path) == Inside((Domain(0, ("0-1",)),))


def test_configured_sockets_share_cpus_and_gpus_evenly() -> None:
    found = topology.divided(5_000, ("0", "1", "2", "3"), 2, "nvlink")
    assert found == Inside(
        (Domain(0, ("0-1",), ("0", "1")), Domain(1, ("2-4",), ("2", "3"))),
        ("0", "1", "2", "3"),
        (Link("nvlink", ("0", "1")), Link("nvlink", ("2", "3"))),
    )
