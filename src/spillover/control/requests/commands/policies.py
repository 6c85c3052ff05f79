"""Commands about the order of jobs: queues and policies."""

from spillover.control.requests.commands.base import CallerCommands, Parts
from spillover.control.requests.policies import PolicyRequests
from spillover.control.views.queues import queue_views
from spillover.ports.commands import CommandError, ErrorKind, PolicyFrontier
from spillover.wire.api import (
    FrontierRequest,
    FrontierView,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
    QueueView,
)


class PolicyCommands(CallerCommands):
    """Shows queues; shows and changes policies."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._policies = PolicyRequests(parts.loop)

    async def queues(self) -> list[QueueView]:
        """Return the named queues that the caller may use, in their order."""
        return queue_views((await self._loop.read()).state, self._project)

    async def policy(self) -> PolicyView:
        """Return the policies in use."""
        return await self._policies.show()

    async def set_policy(self, patch: PolicyPatch, who: str) -> PolicyOutcome:
        """Change the policies, or tell what that would change."""
        return await self._policies.change(patch, who)

    async def policy_history(self) -> list[PolicyRecord]:
        """Return the last policy changes, newest first."""
        return await self._policies.history()

    async def frontier(self) -> FrontierView:
        """Return what other waits would have cost and saved."""
        return self._frontier.view()

    async def compute_frontier(self, request: FrontierRequest) -> FrontierView:
        """Begin to compute that again."""
        return self._frontier.start(request)

    @property
    def _frontier(self) -> PolicyFrontier:
        if self._project is not None:
            told = f"your token is limited to project {self._project!r}, and a frontier shows all projects; use `spill backtest`"
            raise CommandError(ErrorKind.FORBIDDEN, told)
        if self._parts.frontier is None:
            raise CommandError(ErrorKind.UNAVAILABLE, "this server cannot simulate its jobs")
        return self._parts.frontier
