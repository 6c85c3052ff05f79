"""Ids and names: their rules, and how ids are built."""

import re
from typing import Final, NewType

JobId = NewType("JobId", str)
"""12 base32 characters; a member of an array has a dot and its index behind them."""

ClusterName = NewType("ClusterName", str)
NodeName = NewType("NodeName", str)
NodeKey = NewType("NodeKey", str)
"""CLUSTER/NAME of a node, because names are unique only within a cluster."""
TaskKey = NewType("TaskKey", str)
"""JOB/ATTEMPT/RANK of a task; see `task_key`."""

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
ID_LENGTH: Final = 12
ID_BITS: Final = 5 * ID_LENGTH
_PAIRS: Final = tuple(first + second for first in ALPHABET for second in ALPHABET)
"""The text of each ten bits."""
_SHIFTS: Final = range(ID_BITS - 10, -1, -10)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_MEMBER = re.compile(r"([a-z2-7]{1,12})\.(0|[1-9][0-9]{0,9})", re.ASCII)
_WHOLE_ID = re.compile(r"[a-z2-7]{12}(?:\.(?:0|[1-9][0-9]{0,9}))?", re.ASCII)
NAME_RULE: Final = "1 to 63 letters, digits, '.', '_' or '-', with a letter or digit at both ends"


def job_id(draw: int) -> JobId:
    """Return the id for 60 random bits."""
    return JobId("".join([_PAIRS[draw >> shift & 1023] for shift in _SHIFTS]))


def member_id(array: JobId, index: int) -> JobId:
    """Return the id of one member of an array."""
    return JobId(f"{array}.{index}")


def split_member(job: JobId) -> tuple[JobId, int] | None:
    """Return the array and index of a member; None for a job that is not a member."""
    match = _MEMBER.fullmatch(job) if "." in job else None
    return (JobId(match[1]), int(match[2])) if match else None


def task_key(job: JobId, attempt: int, rank: int = 0) -> TaskKey:
    """Return the key of one task of an attempt.

    The first task of a first attempt, as nearly all are, has the id of its job as its key. That costs no time and no
    memory.
    """
    if attempt == 1 and rank == 0:
        return job  # type: ignore[return-value]  # calling the NewType would take longer than all the rest
    return TaskKey(f"{job}/{attempt}/{rank}")


def split_task(key: TaskKey) -> tuple[JobId, int, int]:
    """Return the job, the attempt and the rank of a task."""
    job, _, rest = key.partition("/")
    if not rest:
        return JobId(job), 1, 0
    attempt, _, rank = rest.partition("/")
    return JobId(job), int(attempt), int(rank)


def job_of_task(key: TaskKey) -> JobId:
    """Return the job of a task."""
    return JobId(key.partition("/")[0])


def is_job_id(text: str) -> bool:
    """Return whether this could be an id of a job or an array member, which is safe in file names and URLs."""
    return _ID.fullmatch(text) is not None


def is_whole_id(text: str) -> bool:
    """Return whether this has the form of ids that servers draw for jobs, or of a member of such an array."""
    return _WHOLE_ID.fullmatch(text) is not None


def node_key(cluster: ClusterName, node: NodeName) -> NodeKey:
    """Return the key of a node of a cluster."""
    return NodeKey(f"{cluster}/{node}")


def is_name(text: str) -> bool:
    """Return whether this is a valid name of a job, project, queue, cluster or agent."""
    return _NAME.fullmatch(text) is not None
