"""Handles endpoints about money: costs, usage and budgets."""

from spillover.api.http.parameters import moment, usage_keys
from spillover.api.http.routing import Request, serves
from spillover.wire import endpoints
from spillover.wire.api import BudgetView, CostReport, MachineCosts, UsageReport
from spillover.wire.parameters import CostQuery, MachineCostQuery, NoParameters, UsageQuery


@serves(endpoints.COSTS)
async def costs(request: Request[CostQuery, None]) -> CostReport:
    """Sum costs."""
    return await request.commands.costs(request.asked.by, moment(request.asked.since))


@serves(endpoints.USAGE)
async def usage(request: Request[UsageQuery, None]) -> UsageReport:
    """Sum usage."""
    return await request.commands.usage(usage_keys(request.asked), moment(request.asked.since))


@serves(endpoints.MACHINE_COSTS)
async def machine_costs(request: Request[MachineCostQuery, None]) -> MachineCosts:
    """Sum costs of machines."""
    return await request.commands.machine_costs(request.asked.by, moment(request.asked.since))


@serves(endpoints.BUDGETS)
async def budgets(request: Request[NoParameters, None]) -> list[BudgetView]:
    """List budgets."""
    return await request.commands.budgets()
