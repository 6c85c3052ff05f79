"""The environment of a task of a gang: who it is, who the others are, and where they are.

Tasks find each other by the variables that the common launchers and libraries read, so that a program that was written
for torchrun, Slurm or MPI needs no change.
"""

from collections import Counter
from collections.abc import Mapping

from spillover.agent.leases.slurm import slurm_id
from spillover.agent.leases.values import GangStart, Task


def gang_environment(start: GangStart, rank: int, task: Task, files: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of one task, with those that name its files.

    Variables of the job win, except for ours, which begin with SPILL_.
    """
    nodes, size = start.nodes, len(start.nodes)
    mine = nodes[rank]
    order = list(dict.fromkeys(nodes))
    counts = Counter(nodes)
    local = nodes[:rank].count(mine)
    known = {
        "MASTER_ADDR": start.hosts[0],
        "MASTER_PORT": str(start.port),
        "WORLD_SIZE": str(size),
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(counts[mine]),
        "GROUP_RANK": str(order.index(mine)),
        **_slurm(start, rank, local, order, [counts[node] for node in order]),
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(counts[mine]),
        "OMPI_COMM_WORLD_NODE_RANK": str(local),
    }
    own = {
        "SPILL_TASK": str(rank),
        "SPILL_TASKS": str(size),
        "SPILL_LOCAL_TASK": str(local),
        "SPILL_LOCAL_TASKS": str(counts[mine]),
        "SPILL_NODE": mine,
        "SPILL_NODE_RANK": str(order.index(mine)),
        "SPILL_NODES": str(len(order)),
        "SPILL_GANG_TOKEN": start.token.hex(),
    }
    ours = {name: path for name, path in files.items() if name.startswith("SPILL_")}
    return known | dict(files) | task.env | own | ours


def _slurm(start: GangStart, rank: int, local: int, order: list[str], counts: list[int]) -> dict[str, str]:
    """Return the variables that programs written for Slurm read."""
    nodes = start.nodes
    number = slurm_id(start.job)
    names = ",".join(start.hosts[nodes.index(node)] for node in order)
    return {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local),
        "SLURM_NODEID": str(order.index(nodes[rank])),
        "SLURM_NTASKS": str(len(nodes)),
        "SLURM_NPROCS": str(len(nodes)),
        "SLURM_NNODES": str(len(order)),
        "SLURM_JOB_NUM_NODES": str(len(order)),
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURM_NTASKS_PER_NODE": str(max(counts)),
        "SLURM_TASKS_PER_NODE": ",".join(map(str, counts)),
        "SLURM_LAUNCH_NODE_IPADDR": start.hosts[0],
        "SLURMD_NODENAME": nodes[rank],
    }
