"""Names of things: what may be one, and how a job's is made from dice."""

import re
from typing import Final, NewType

JobId = NewType("JobId", str)
"""12 base32 characters; a member of an array has its index behind a dot."""

ClusterName = NewType("ClusterName", str)
NodeName = NewType("NodeName", str)
NodeKey = NewType("NodeKey", str)
"""CLUSTER/NAME of a node: names are unique within a cluster only."""
TaskKey = NewType("TaskKey", str)
"""JOB/ATTEMPT/RANK of a task; see `task_key`."""

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
ID_LENGTH: Final = 12
ID_BITS: Final = 5 * ID_LENGTH
_PAIRS: Final = tuple(first + second for first in ALPHABET for second in ALPHABET)
"""What ten bits stand for."""
_SHIFTS: Final = range(ID_BITS - 10, -1, -10)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_MEMBER = re.compile(r"([a-z2-7]{1,12})\.(0|[1-9][0-9]{0,9})", re.ASCII)
NAME_RULE: Final = "1 to 63 letters, digits, '.', '_' or '-', with a letter or digit at both ends"


def job_id(draw: int) -> JobId:
    """The id that 60 random bits stand for."""
    return JobId("".join([_PAIRS[draw >> shift & 1023] for shift in _SHIFTS]))


def member_id(array: JobId, index: int) -> JobId:
    """The id of one member of an array."""
    return JobId(f"{array}.{index}")


def split_member(job: JobId) -> tuple[JobId, int] | None:
    """The array and the index of a member, or None for a job of its own."""
    match = _MEMBER.fullmatch(job) if "." in job else None
    return (JobId(match[1]), int(match[2])) if match else None


def task_key(job: JobId, attempt: int, rank: int = 0) -> TaskKey:
    """The key of one task of an attempt.

    The first task of a first attempt, as nearly all are, goes by the id of its job: that costs nothing to make or to keep.
    """
    if attempt == 1 and rank == 0:
        return job  # type: ignore[return-value]  # to call a NewType would take longer than all the rest
    return TaskKey(f"{job}/{attempt}/{rank}")


def split_task(key: TaskKey) -> tuple[JobId, int, int]:
    """The job, the attempt and the rank of a task."""
    job, _, rest = key.partition("/")
    if not rest:
        return JobId(job), 1, 0
    attempt, _, rank = rest.partition("/")
    return JobId(job), int(attempt), int(rank)


def job_of_task(key: TaskKey) -> JobId:
    """The job of a task."""
    return JobId(key.partition("/")[0])


def is_job_id(text: str) -> bool:
    """Whether this could be the id of a job, or of a member of an array: a part of file names and addresses that leads nowhere else."""
    return _ID.fullmatch(text) is not None


def node_key(cluster: ClusterName, node: NodeName) -> NodeKey:
    """The key of a node of a cluster."""
    return NodeKey(f"{cluster}/{node}")


def is_name(text: str) -> bool:
    """Whether a job, project, queue, cluster or agent may be called this."""
    return _NAME.fullmatch(text) is not None
