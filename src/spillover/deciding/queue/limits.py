"""What the jobs of each named queue use of its limits, in all and for each user.

Jobs of a queue that limits each user wait in lanes of one user. So a limit keeps whole lanes from starting, and a
cycle leaves them out without a look at their jobs.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from spillover.core.records.jobs import Job
from spillover.deciding.capacity.limits import Limits
from spillover.model.ids import JobId
from spillover.model.queues import QueueLimits, Queues, QueueSpec
from spillover.model.reasons import QueueAtLimit, QueueOverLimit
from spillover.model.resources import Resources

LaneLimits: TypeAlias = tuple[Limits, ...]
"""The limits on the jobs of a lane: those of its queue in all, and those of its user."""
NO_LIMITS: Final[LaneLimits] = ()


class QueueUse:
    """The limits of all queues, and the jobs that count. A job counts from placement until it leaves its node."""

    def __init__(self, queues: Queues) -> None:
        self._limited: dict[str, QueueSpec] = {
            each.name: each for each in queues if each.total.bounds_running or each.each.bounds_running
        }
        self._total = {
            name: _limits(each.total) for name, each in self._limited.items() if each.total.bounds_running
        }
        self._each: dict[tuple[str, str], Limits] = {}
        """By queue and user."""
        self._of: dict[tuple[str, str], LaneLimits] = {}
        """By queue and user; the user is empty for queues that do not limit each user."""
        self._held: dict[JobId, LaneLimits] = {}

    @classmethod
    def of_queues(cls, queues: Queues) -> "QueueUse | None":
        """Return the limits of queues; None if none has any."""
        use = cls(queues)
        return use if use._limited else None

    def copy(self) -> "QueueUse":
        """Return an independent copy."""
        own = QueueUse(Queues())
        own._limited = self._limited
        own._total = {name: limits.copy() for name, limits in self._total.items()}
        own._each = {place: limits.copy() for place, limits in self._each.items()}
        own._held = {job: own.of(*place) for job, place in self._places().items()}
        return own

    def _places(self) -> dict[JobId, tuple[str, str]]:
        """Return the queue and user of each job that counts."""
        place_of = {limits: place for place, limits in self._of.items()}
        return {job: place_of[limits] for job, limits in self._held.items()}

    def user_of(self, queue: str, user: str) -> str:
        """Return the user whose jobs a lane holds; empty if it may hold those of all."""
        spec = self._limited.get(queue)
        return user if spec is not None and spec.each.bounds_running else ""

    def of(self, queue: str, user: str) -> LaneLimits:
        """Return the limits on the jobs of a user in a queue; none for most."""
        spec = self._limited.get(queue)
        if spec is None:
            return NO_LIMITS
        place = queue, self.user_of(queue, user)
        found = self._of.get(place)
        if found is None:
            found = NO_LIMITS
            if queue in self._total:
                found = (self._total[queue],)
            if place[1]:
                found += (self._each.setdefault(place, _limits(spec.each)),)
            self._of[place] = found
        return found

    def used_by(self, queue: str, user: str | None = None) -> Limits | None:
        """Return what counts in a limited queue, in all or of a user; None if that is not limited."""
        return self._total.get(queue) if user is None else self._each.get((queue, user))

    def take(self, job: JobId, queue: str, user: str, asked: Resources) -> None:
        """Count a job; counting it again has no effect."""
        limits = self.of(queue, user)
        if limits:
            self._held[job] = limits
            for each in limits:
                each.take(job, asked)

    def leave(self, job: JobId) -> bool:
        """Stop counting a job; return False if it was not counted."""
        limits = self._held.pop(job, NO_LIMITS)
        for each in limits:
            each.leave(job)
        return bool(limits)

    def refusal(self, queue: str, user: str, asked: Resources) -> QueueAtLimit | QueueOverLimit | None:
        """Return why one more job may not run in a queue; None if it may."""
        held: QueueAtLimit | None = None
        for limits in self.of(queue, user):
            found = limits.excess(asked)
            if found is None:
                continue
            whose = "" if limits is self._total.get(queue) else user
            if found.asked > found.most:
                return QueueOverLimit(queue, found.what, found.asked, found.most, whose)
            held = held or QueueAtLimit(queue, found.what, found.used, found.most, found.asked, whose)
        return held


def key_in_queues(key: Callable[[Job], Any], queues: Queues) -> Callable[[Job], Any]:
    """Return the key of an order policy that sees jobs with the priority that their queue adds."""
    added = {each.name: each.priority for each in queues if each.priority}
    if not added:
        return key

    def key_in_queue(job: Job) -> Any:
        more = added.get(job.kind.queue)
        return key(job) if more is None else key(replace(job, priority=job.priority + more))

    return key_in_queue


def _limits(limits: QueueLimits) -> Limits:
    return Limits(limits.resources, limits.running or None)


def allow(limits: LaneLimits, asked: Resources) -> bool:
    """Return whether one more job of a lane may run."""
    for each in limits:  # noqa: SIM110 - called for every lane that is tried
        if not each.allow(asked):
            return False
    return True


def are_reached(limits: LaneLimits) -> bool:
    """Return whether no job of a lane may run, however small."""
    return any(each.are_reached for each in limits)
