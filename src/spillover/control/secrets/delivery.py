"""Checks which secrets jobs may use, when they are submitted, and gives their values to agents when tasks start.

A job has the names of its secrets only. Whether there are such secrets, and whether they are for its user, is checked at
its submission, so that a mistake shows at once, and again at each start, as both may have changed. An agent gets the
values for a lease that it holds, just before the task starts, so they are in no lease, no journal and no checkpoint.

A job whose secret is gone or for others ends. If it is the server that cannot read the value, as after a failover to one
without the key file, the job is not at fault: it goes back to the queue and is tried again later.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from spillover.control.live.loop import Loop
from spillover.control.live.specs import Specs
from spillover.control.secrets.sealing import KeyProblem
from spillover.control.secrets.vault import Vault
from spillover.core.deciders.results import holder
from spillover.core.deciders.verdicts import stop_of
from spillover.core.events import Lease, Outcome, Usage
from spillover.core.proposals import HandBack, Result
from spillover.core.records.jobs import Job, Running
from spillover.core.state import State
from spillover.forms.jobs.meaning import JobForm
from spillover.model.ids import NodeKey
from spillover.model.secrets import secret_key
from spillover.model.units import MINUTE, SECOND
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import FieldProblem

log = structlog.get_logger()

_NAMED: Final = 5
"""Most users to name in a message."""
LEAST_BACKOFF: Final = 30 * SECOND
MOST_BACKOFF: Final = 10 * MINUTE
"""Bounds of how long a job backs off whose secret the server cannot read: as long as it could not read it so far."""
_ADVICE: Final = "`spill secret ls` lists secrets"


class Withheld(Exception):
    """A task does not get its secrets; the message says why, in one line."""


class _Unreadable(Exception):
    """The server cannot read a secret now; the message says why, in one line."""

    def __init__(self, message: str, backoff: int) -> None:
        super().__init__(message)
        self.backoff = backoff
        """Nanoseconds until the next try."""


class SecretDelivery:
    """Decides which jobs get which secrets."""

    def __init__(self, loop: Loop, specs: Specs, vault: Vault) -> None:
        self._loop = loop
        self._specs = specs
        self._vault = vault
        self._unreadable: dict[str, int] = {}
        """Secrets that this server could not read the last time, each with since when, nanoseconds UTC."""

    async def check(self, forms: Sequence[JobForm], user: str, known: Iterable[int] = ()) -> None:
        """Raise CommandError with one line for each secret that a job of a submission cannot have.

        `known` are the positions of jobs that were submitted earlier, under the same keys.
        """
        asked = [(at, form.spec) for at, form in enumerate(forms) if form.spec.secrets]
        if not asked:
            return
        state = (await self._loop.read()).state
        usable, problems, forbidden, skipped = await self._vault.usable(), [], True, frozenset(known)
        for at, spec in asked:
            for place, use in enumerate(spec.secrets) if at not in skipped else ():
                told = _withheld(state, spec.project, use.name, user)
                if told is not None:
                    forbidden &= secret_key(spec.project, use.name) in state.secrets
                elif secret_key(spec.project, use.name) not in usable:
                    told = f"the server has no key for secret {use.name} of project {spec.project}; `spill doctor` says more"
                    forbidden = False
                else:
                    continue
                problems.append(FieldProblem(f"jobs[{at}].spec.secrets[{place}]", f"{spec.name}: {told}"))
        if problems:
            kind = ErrorKind.FORBIDDEN if forbidden else ErrorKind.INVALID
            raise CommandError(kind, problems[0].message, problems)

    async def values(self, node: str, lease: Lease) -> dict[str, bytes]:
        """Return the secrets of a task for the agent that holds its lease; raise Withheld if it gets none.

        If that is because of a secret, its job ends with that reason, or backs off if the server cannot read the value. For
        a task that starts again in its running gang, CommandError tells its agent to ask again.
        """
        state = (await self._loop.read()).state
        job = holder(state, lease, NodeKey(node))
        if job is None:
            raise Withheld("its lease is not valid any more")
        spec = (await self._specs.get([job.spec])).get(job.spec)
        if spec is None:
            raise Withheld("its spec is missing from the store")
        values: dict[str, bytes] = {}
        try:
            for name in dict.fromkeys(use.name for use in spec.secrets):
                values[name] = await self._value(job, name)
        except Withheld as error:
            await self._end(job, NodeKey(node), lease, str(error))
            raise
        except _Unreadable as error:
            await self._hand_back(job, NodeKey(node), lease, error)
            raise Withheld(str(error)) from None
        return values

    async def _value(self, job: Job, name: str) -> bytes:
        """Return the value of a secret for a job."""
        state, project, key = self._loop.state, job.kind.project, secret_key(job.kind.project, name)
        if (told := _withheld(state, project, name, job.user)) is not None:
            raise Withheld(told)
        record = state.secrets[key]
        try:
            value = await self._vault.open(record)
        except KeyProblem as error:
            if self._loop.state.secrets.get(key) != record:  # it was set or removed meanwhile
                return await self._value(job, name)
            log.warning("cannot give a secret to a job", secret=name, project=project, error=str(error))
            now = self._loop.now()
            backoff = now - self._unreadable.setdefault(key, now)
            told = f"secret {name} of project {project} cannot be read: {error}"
            raise _Unreadable(told, min(max(backoff, LEAST_BACKOFF), MOST_BACKOFF)) from None
        self._unreadable.pop(key, None)
        return value

    async def _hand_back(self, job: Job, node: NodeKey, lease: Lease, why: _Unreadable) -> None:
        """Let a job wait that cannot have its secrets now, unless somebody stops it already."""
        if stop_of(job) is not None:
            return
        if isinstance(job.phase, Running):
            raise CommandError(ErrorKind.UNAVAILABLE, str(why))
        await self._loop.propose(HandBack(node, (lease,), str(why), why.backoff))

    async def _end(self, job: Job, node: NodeKey, lease: Lease, why: str) -> None:
        """End a job that cannot have its secrets, unless somebody stops it already."""
        if stop_of(job) is not None:
            return
        run = 0 if job.extra.gang is None else job.tasks[lease.task].run
        await self._loop.propose(Result(node, lease, Outcome.NO_SECRET, None, None, Usage(), 0, why, run=run))


def _withheld(state: State, project: str, name: str, user: str) -> str | None:
    """Return why jobs of a user cannot have a secret; None if they can."""
    record = state.secrets.get(secret_key(project, name))
    if record is None:
        return f"project {project} has no secret {name}; {_ADVICE}"
    if not record.is_for(user):
        named = ", ".join(record.users[:_NAMED]) + (" and others" if len(record.users) > _NAMED else "")
        return f"secret {name} of project {project} is for jobs of {named}, not of {user}"
    return None
