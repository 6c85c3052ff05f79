"""Commands about money: costs, usage and budgets."""

from collections.abc import Sequence

from spillover.control.requests.commands.base import CallerCommands
from spillover.control.requests.projects import budgets_of
from spillover.control.views.costs import budget_views, cost_report
from spillover.control.views.machine_costs import machine_costs
from spillover.control.views.usage import usage_report
from spillover.model.budget import CostBy, MachinesBy, UsageBy
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import BudgetView, CostReport, MachineCosts, UsageReport


class CostCommands(CallerCommands):
    """Sums what was used and spent."""

    async def costs(self, by: CostBy, since: int | None) -> CostReport:
        """Return costs by project, user, cluster, day, week or month."""
        return await cost_report(
            self._loop, self._parts.archive, by, since, self._parts.currency, self._project
        )

    async def usage(self, by: Sequence[UsageBy], since: int | None) -> UsageReport:
        """Return what jobs used, in groups."""
        return await usage_report(
            self._loop, self._parts.archive, by, since, self._parts.currency, self._project
        )

    async def machine_costs(self, by: MachinesBy, since: int | None) -> MachineCosts:
        """Return costs of machines by pool, day, week or month."""
        if self._project is not None:
            told = f"your token is limited to project {self._project!r}, and machines are shared by all projects; use `spill cost`"
            raise CommandError(ErrorKind.FORBIDDEN, told)
        state = (await self._loop.read()).state
        return machine_costs(state, by, since, self._loop.now(), self._parts.currency)

    async def budgets(self) -> list[BudgetView]:
        """Return all budgets in their current period."""
        state = (await self._loop.read()).state
        return budgets_of(budget_views(state, self._loop.now()), self._project)
