"""Which jobs an event is about."""

from collections.abc import Callable
from typing import Any, Final, get_args

from spillover.core.events import (
    AnyEvent,
    JobsAdmitted,
    JobsArchived,
    LeasesRevoked,
    MemberPlaced,
    MembersDropped,
    TasksBound,
    WaitsExpired,
)
from spillover.model.ids import JobId, member_id


def jobs_of(event: AnyEvent) -> tuple[JobId, ...]:
    """The jobs that an event is about; of members of an array that are dropped, the array."""
    return _JOBS[type(event)](event)


_JOBS: Final[dict[type, Callable[[Any], tuple[JobId, ...]]]] = {
    each: (lambda event: (event.job,)) if "job" in each.__struct_fields__ else (lambda _: ())
    for each in get_args(AnyEvent)
} | {
    **dict.fromkeys(
        (JobsAdmitted, WaitsExpired, LeasesRevoked, JobsArchived, TasksBound), lambda event: event.jobs
    ),
    MemberPlaced: lambda event: (member_id(event.array, event.index),),
    MembersDropped: lambda event: (event.array,),
}
"""By type, as this is asked of every event."""
