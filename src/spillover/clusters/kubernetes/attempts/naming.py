"""Names and labels of our objects on a cluster."""

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
"""Epoch of the server that created the object. A server of an earlier epoch must not delete it."""
INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Label and annotation of pods of an indexed Job."""

PREFIX: Final = "spill-"
"""Prefix of the names of our Jobs and their pods."""


def name_of(lease: Lease) -> str:
    """Return the name of the Job of an attempt. It is always the same, so that creating it twice is harmless.

    At most 51 characters, because pod names extend it and must fit into a label.
    """
    return f"{PREFIX}{lease.job.replace('.', '-')}-{lease.attempt}-{lease.seq}"


def labels_of(lease: Lease, owner: str) -> dict[str, str]:
    """Return the labels that identify the Job and pods of an attempt."""
    return {
        MANAGED_BY: MANAGER,
        OWNER: owner,
        JOB: lease.job,
        ATTEMPT: str(lease.attempt),
        SEQ: str(lease.seq),
    }


def epoch_of(labels: Mapping[str, str]) -> int:
    """Return the epoch of the server that created an object; 0 if it has no label, as from older versions."""
    epoch = labels.get(EPOCH, "")
    return int(epoch) if _is_number(epoch) else 0


def lease_of(labels: Mapping[str, str], owner: str) -> Lease | None:
    """Return the attempt that an object belongs to; None if it is not ours."""
    if labels.get(OWNER) != owner:
        return None
    job, attempt, seq = labels.get(JOB, ""), labels.get(ATTEMPT, ""), labels.get(SEQ, "")
    if not (is_job_id(job) and _is_number(attempt) and _is_number(seq)):
        return None
    return Lease(JobId(job), int(attempt), int(seq))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
