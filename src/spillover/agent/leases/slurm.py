"""What tasks know in the words of Slurm: its variables, and the patterns in the names of output files.

Scripts and programs that were written for Slurm read these variables, so each task has them beside its own.
"""

import re
from typing import Final, NamedTuple
from zlib import crc32

from spillover.agent.leases.values import Task
from spillover.agent.nursery.start_times import from_start
from spillover.core.events import Lease
from spillover.model.ids import JobId, split_member
from spillover.model.units import SECOND

MOST_SLURM_ID: Final = 2**31
"""Slurm's job ids are numbers below this."""
_PATTERN: Final = re.compile(r"%([0-9]{0,2})([A-Za-z%])")
_MPI: Final = {
    # MPI launchers would take the variables of Slurm for a real one, and start their daemons by srun.
    "OMPI_MCA_plm": "^slurm",
    "OMPI_MCA_ras": "^slurm",
    "PRTE_MCA_plm": "^slurm",
    "PRTE_MCA_ras": "^slurm",
    "HYDRA_LAUNCHER": "fork",
    "I_MPI_HYDRA_BOOTSTRAP": "fork",
}


def slurm_id(job: JobId) -> str:
    """Return a number for a job, the same on every node, because programs read Slurm's job id as a number."""
    return str(crc32(job.encode()) % MOST_SLURM_ID)


class RunsAs(NamedTuple):
    """The user that tasks run as."""

    name: str
    uid: int
    gid: int


def slurm_environment(lease: Lease, task: Task, node: str, user: RunsAs | None = None) -> dict[str, str]:
    """Return the variables of a task as Slurm would set them. A gang adds those about its other tasks.

    `user` is None if the agent does not know it, as in containers.
    """
    number, cpus = slurm_id(lease.job), str(max(1, task.need.cpu // 1000))
    known = {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_NAME": task.name,
        "SLURM_JOB_PARTITION": task.queue,
        "SLURM_JOB_ACCOUNT": task.project,
        "SLURM_CLUSTER_NAME": task.env.get("SPILL_CLUSTER", ""),
        "SLURM_SUBMIT_DIR": task.workdir,
        "SLURM_RESTART_COUNT": str(lease.attempt - 1),
        "SLURM_CPUS_PER_TASK": cpus,
        "SLURM_CPUS_ON_NODE": cpus,
        "SLURM_JOB_CPUS_PER_NODE": cpus,
    }
    if "SPILL_RESTART" not in task.env:  # its walltime has begun with its first run
        known |= from_start(task.walltime // SECOND)
    if task.need.memory:
        known["SLURM_MEM_PER_NODE"] = str(task.need.memory >> 20)
    if task.need.gpu:
        known["SLURM_GPUS_ON_NODE"] = str(task.need.gpu)
        if not task.tasks:
            known["SLURM_GPUS"] = str(task.need.gpu)
        own = task.env.get("CUDA_VISIBLE_DEVICES", "")
        if own.replace(",", "").isdigit():  # Slurm knows them by index alone
            known["SLURM_JOB_GPUS"] = own
    if user is not None:
        known |= {
            "SLURM_JOB_USER": user.name,
            "SLURM_JOB_UID": str(user.uid),
            "SLURM_JOB_GID": str(user.gid),
        }
    if task.array is not None and (member := split_member(lease.job)) is not None:
        first, last, size = task.array
        known |= {
            "SLURM_ARRAY_JOB_ID": slurm_id(member[0]),
            "SLURM_ARRAY_TASK_ID": str(member[1]),
            "SLURM_ARRAY_TASK_COUNT": str(size),
            "SLURM_ARRAY_TASK_MIN": str(first),
            "SLURM_ARRAY_TASK_MAX": str(last),
            "SLURM_ARRAY_TASK_STEP": str(_step(first, last, size)),
        }
    return known if task.tasks else known | _alone(node)


def _step(first: int, last: int, size: int) -> int:
    """Return the step between the indexes of an array; 1 if they have no common one."""
    step, rest = divmod(last - first, size - 1) if size > 1 else (1, 0)
    return 1 if rest else step


def _alone(node: str) -> dict[str, str]:
    """Return the variables of a job with one task."""
    return {
        "SLURM_NTASKS": "1",
        "SLURM_NPROCS": "1",
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_NNODES": "1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
        "SLURM_TASKS_PER_NODE": "1",
        "SLURM_JOB_NODELIST": node,
        "SLURM_NODELIST": node,
        "SLURMD_NODENAME": node,
        **_MPI,
    }


def file_named(pattern: str, lease: Lease, task: Task, node: str, user: str) -> str:
    """Return the path of an output file; a number before the letter of a pattern fills it up with zeros."""
    member = split_member(lease.job)
    known = {
        "A": lease.job if member is None else member[0],
        "a": "4294967294" if member is None else str(member[1]),  # as Slurm writes it without an array
        "j": lease.job,
        "J": lease.job,
        "x": task.name,
        "N": node.partition(".")[0],
        "n": task.env.get("SPILL_NODE_RANK", "0"),
        "t": str(lease.task),
        "u": user,
        "%": "%",
    }

    def filled(match: re.Match[str]) -> str:
        value = known.get(match[2])
        return match[0] if value is None else value.rjust(int(match[1] or 0), "0")

    return _PATTERN.sub(filled, pattern)
