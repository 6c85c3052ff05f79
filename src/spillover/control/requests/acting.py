"""Cancels, holds, releases and requeues jobs: all or none of them, or what of them is in certain states.

A person who filters jobs acts on a list that may be old when it arrives. So the states are checked where the change is
decided, and what has left them meanwhile is left out.
"""

from spillover.control.live.loop import Loop
from spillover.control.requests.lookup import Found, Lookup
from spillover.control.requests.rights import Rights
from spillover.core.decide import decide
from spillover.core.events import JobState
from spillover.core.proposals import Act, Change, Changed, Refusal
from spillover.model.ids import JobId, is_whole_id
from spillover.ports.archive import Finished
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.wire.api import Action, Ids


class Acting:
    """Acts on jobs for one caller."""

    def __init__(self, loop: Loop, lookup: Lookup, rights: Rights) -> None:
        self._loop = loop
        self._lookup = lookup
        self._rights = rights

    async def act(self, action: Action, who: str) -> Ids:
        """Carry an action out, or tell what it would change."""
        states = frozenset(JobState(each) for each in action.states) or None
        change = Change(Act(action.act), await self._ids(action, who), who, states)
        if not change.jobs:
            return Ids([])
        if action.dry_run:
            engine = await self._loop.read()
            _, reply = decide(engine.state, change, self._loop.now())
        else:
            (reply,) = await self._loop.propose(change)
        match reply:
            case Refusal():
                raise refused(reply)
            case Changed(jobs):
                return Ids(list(jobs))
            case _:
                return Ids(list(change.jobs))

    async def _ids(self, action: Action, who: str) -> tuple[JobId, ...]:
        """Return the jobs of an action that have not ended; check that the caller may change them."""
        ids: list[JobId] = []
        for ref in action.jobs:
            found = await self._found(ref, gone=bool(action.states))
            if found is None or (isinstance(found, Finished) and (action.states or action.act == "cancel")):
                continue  # cancelling an ended job changes nothing
            job = await self._lookup.live(ref)
            self._rights.check_change(job, who, action.act)
            ids.append(job.id)
        return tuple(ids)

    async def _found(self, ref: str, *, gone: bool) -> Found | None:
        """Return the job that a reference means; None if it is the id of a job that is gone, and that may be."""
        try:
            return await self._lookup.find(ref)
        except CommandError as error:
            if gone and error.kind is ErrorKind.UNKNOWN and is_whole_id(ref):
                return None
            raise
