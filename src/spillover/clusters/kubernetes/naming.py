"""What our objects are called, and how they say whose they are."""

from collections.abc import Mapping
from typing import Final

from spillover.core.events import Lease
from spillover.model.ids import JobId, is_job_id

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "spillover"
OWNER: Final = "spillover.dev/owner"
JOB: Final = "spillover.dev/job"
ATTEMPT: Final = "spillover.dev/attempt"
SEQ: Final = "spillover.dev/seq"
EPOCH: Final = "spillover.dev/epoch"
"""Of the server that made it: none of an earlier epoch may delete it, whatever it knows."""
INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""The label and the annotation of pods of a Job with an index for each."""

PREFIX: Final = "spill-"
"""What the names of our Jobs and their pods begin with."""


def name_of(lease: Lease) -> str:
    """The name of the Job of an attempt: the same every time, so that making it twice is harmless.

    At most 51 characters, so that names of pods, which begin with it, fit into a label.
    """
    return f"{PREFIX}{lease.job.replace('.', '-')}-{lease.attempt}-{lease.seq}"


def labels_of(lease: Lease, owner: str) -> dict[str, str]:
    """What the Job of an attempt and its pods are found by."""
    return {
        MANAGED_BY: MANAGER,
        OWNER: owner,
        JOB: lease.job,
        ATTEMPT: str(lease.attempt),
        SEQ: str(lease.seq),
    }


def epoch_of(labels: Mapping[str, str]) -> int:
    """The epoch of the server that made an object; 0 if it does not say, as those of older versions do not."""
    epoch = labels.get(EPOCH, "")
    return int(epoch) if _is_number(epoch) else 0


def lease_of(labels: Mapping[str, str], owner: str) -> Lease | None:
    """The attempt that an object is of; None if it is none of ours."""
    if labels.get(OWNER) != owner:
        return None
    job, attempt, seq = labels.get(JOB, ""), labels.get(ATTEMPT, ""), labels.get(SEQ, "")
    if not (is_job_id(job) and _is_number(attempt) and _is_number(seq)):
        return None
    return Lease(JobId(job), int(attempt), int(seq))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
