"""Answers of the API of Compute Engine, with only the fields that we read, and what its errors mean."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from spillover.model.pools import RefusalCause
from spillover.ports.provider import NotNow, Refused, Unknown
from spillover.providers.rest import UNREADABLE, Answer, one_line

Moment = Annotated[datetime, Meta(tz=True)]


class _Answer(Struct, frozen=True, rename="camel"):
    """Base of all answers; the JSON names are in camel case."""


class OperationFault(_Answer, frozen=True):
    """Why an operation failed."""

    code: str = ""
    message: str = ""


class OperationFaults(_Answer, frozen=True):
    """All reasons."""

    errors: tuple[OperationFault, ...] = ()


class Operation(_Answer, frozen=True):
    """Something that is being done."""

    name: str
    status: str = ""
    """`PENDING`, `RUNNING` or `DONE`."""
    insert_time: Moment | None = None
    error: OperationFaults | None = None

    @property
    def is_taken(self) -> bool:
        """Whether it failed because another machine has the name."""
        faults = () if self.error is None else self.error.errors
        return any(each.code == "RESOURCE_ALREADY_EXISTS" for each in faults)


class Instance(_Answer, frozen=True):
    """A machine."""

    name: str
    status: str = ""
    zone: str = ""
    """Its URL."""
    labels: dict[str, str] = {}
    creation_timestamp: Moment | None = None
    status_message: str = ""


class Warned(_Answer, frozen=True):
    """A warning about a list."""

    code: str = ""
    message: str = ""


class Scoped(_Answer, frozen=True):
    """The machines of one zone."""

    instances: tuple[Instance, ...] = ()
    warning: Warned | None = None


class InstancesPage(_Answer, frozen=True):
    """A page of the machines of all zones."""

    items: dict[str, Scoped] = {}
    """By zone, as `zones/NAME`."""
    next_page_token: str = ""
    unreachables: tuple[str, ...] = ()
    warning: Warned | None = None


class Accelerators(_Answer, frozen=True):
    """GPUs of a type of machine."""

    guest_accelerator_count: int = 0


class MachineType(_Answer, frozen=True):
    """A type of machine in a zone."""

    guest_cpus: int = 0
    memory_mb: int = 0
    """MiB."""
    accelerators: tuple[Accelerators, ...] = ()


class _Reason(_Answer, frozen=True):
    reason: str = ""


class _Error(_Answer, frozen=True):
    message: str = ""
    errors: tuple[_Reason, ...] = ()


class _Failed(_Answer, frozen=True):
    error: _Error | None = None


CAPACITY: Final = ("RESOURCE_POOL_EXHAUSTED", "STOCKOUT", "VM_MIN_COUNT_NOT_REACHED")
"""Parts of codes that say that a zone has no such machines at present."""
PASSING: Final = frozenset(
    ("INTERNAL_ERROR", "RESOURCE_OPERATION_RATE_EXCEEDED", "RATE_LIMIT_EXCEEDED", "RESOURCE_NOT_READY")
)
"""Codes of operations that may succeed another time. But the same order gets the same operation again, for an hour, so
they count as no capacity: another machine is ordered, and not at once."""
CAUSES: Final[Mapping[str, RefusalCause]] = {
    "quotaExceeded": RefusalCause.QUOTA,
    "limitExceeded": RefusalCause.QUOTA,
    "resourceExhausted": RefusalCause.CAPACITY,
    "authError": RefusalCause.AUTH,
    "required": RefusalCause.INVALID,
    "forbidden": RefusalCause.AUTH,
    "accessNotConfigured": RefusalCause.AUTH,
    "insufficientPermissions": RefusalCause.AUTH,
}
"""By the reason of a refused request."""
LATER: Final = frozenset(
    ("rateLimitExceeded", "userRateLimitExceeded", "concurrentLimitExceeded", "resourceNotReady")
)


class Failure(Struct, frozen=True):
    """Why a request failed."""

    status: int
    reason: str
    """Empty if the answer is not one of the API."""
    message: str
    after: float = 0.0

    @classmethod
    def of(cls, answer: Answer) -> "Failure":
        """Read an answer that is not a success."""
        try:
            error = msgspec.json.decode(answer.content, type=_Failed).error
        except UNREADABLE:
            error = None
        if error is None:
            return cls(answer.status, "", "", answer.after)
        reason = next((each.reason for each in error.errors if each.reason), "unknown")
        return cls(answer.status, reason, error.message, answer.after)

    def __str__(self) -> str:
        if not self.reason:
            return f"Google Cloud answers {self.status}"
        return one_line(f"Google Cloud: {self.message} ({self.reason})")

    def refusal(self) -> Refused | NotNow | Unknown:
        """Translate it to the answer to an order."""
        if self.reason in LATER or self.status == 429:
            return NotNow(str(self), self.after)
        if self.reason in CAUSES:
            return Refused(CAUSES[self.reason], str(self))
        if self.status >= 500 or not self.reason:
            return Unknown(str(self))
        if self.status in {401, 403}:
            return Refused(RefusalCause.AUTH, str(self))
        return Refused(RefusalCause.INVALID, str(self))


def failed(operation: Operation) -> Refused | None:
    """Return why a finished operation made no machine; None if it did."""
    if operation.error is None:
        return None
    faults = operation.error.errors or (OperationFault("INTERNAL_ERROR", "the operation failed"),)
    why = one_line("Google Cloud: " + "; ".join(f"{each.message} ({each.code})" for each in faults))
    return Refused(
        next((cause for each in faults if (cause := _cause(each.code))), RefusalCause.INVALID), why
    )


def _cause(code: str) -> RefusalCause | None:
    """Return what the code of an operation means; None if another one may say it."""
    if any(part in code for part in CAPACITY) or code in PASSING:
        return RefusalCause.CAPACITY
    if "QUOTA" in code or "LIMIT_EXCEEDED" in code:
        return RefusalCause.QUOTA
    return RefusalCause.AUTH if "PERMISSION" in code else None
