"""Reads prices and budgets of spill.yaml."""

from spillover.forms.problems import Findings, Path, shown
from spillover.forms.quantities import check_name, duration, money, read_cpu, read_memory
from spillover.model.budget import EVERY, Budget, Of, Per
from spillover.model.cluster import Billing, NodeClass, Price, Role
from spillover.model.resources import Resources
from spillover.model.units import DAY
from spillover.wire.clusterfile import BillingDoc, NodeClassDoc, PriceDoc
from spillover.wire.configfile import BudgetDoc

_HOURS = ("cpu_hour", "memory_gib_hour", "gpu_hour")


def read_price(doc: PriceDoc, role: Role, path: Path, found: Findings) -> Price:
    """Read prices, in millionths per hour; add problems to `found`."""
    if role is Role.OWNED and doc != PriceDoc():
        found.add(path, "is only allowed with role: rented")
    hours = {name: money(getattr(doc, name), (*path, name), found) or 0 for name in _HOURS}
    node = None if doc.node is None else _node(doc.node, (*path, "node"), found)
    if node is not None and any(hours.values()):
        both = next(name for name, price in hours.items() if price)
        found.add((*path, both), "is not allowed with `node`, whose price covers the whole machine")
    egress = money(doc.egress_gb, (*path, "egress_gb"), found) or 0
    return Price(hours["cpu_hour"], hours["memory_gib_hour"], hours["gpu_hour"], node, egress)


def read_billing(doc: BillingDoc, path: Path, found: Findings) -> Billing:
    """Read billing step and minimum, in nanoseconds; add problems to `found`."""
    return Billing(
        step=duration(doc.step, (*path, "step"), found, least=1, most=31 * DAY) or 1,
        minimum=duration(doc.minimum, (*path, "minimum"), found, most=31 * DAY) or 0,
    )


def read_budgets(docs: list[BudgetDoc], found: Findings) -> tuple[Budget, ...]:
    """Read budgets in their order; add problems to `found`."""
    budgets: dict[tuple[Of, str, Per], Budget] = {}
    for at, doc in enumerate(docs):
        path: Path = ("budgets", at)
        whose = _whose(doc.project, doc.user, path, found)
        limit = money(doc.limit, (*path, "limit"), found) or 0
        if whose is None:
            continue
        key = *whose, Per(doc.per)
        if key in budgets:
            found.add(path, f"is a second budget of {whose[0]} {shown(whose[1])} per {doc.per}; remove one")
        budgets[key] = Budget(*key, limit)
    return tuple(budgets.values())


def look_at_budget(value: object, path: Path, found: Findings) -> None:
    """Add further problems of a budget whose form is invalid."""
    if not isinstance(value, dict):
        return
    project, user, limit = (value.get(name) for name in ("project", "user", "limit"))
    if isinstance(project, str | None) and isinstance(user, str | None):
        _whose(project, user, path, found)
    if isinstance(limit, str | int | float) and not isinstance(limit, bool):
        money(limit, (*path, "limit"), found)


def _whose(project: str | None, user: str | None, path: Path, found: Findings) -> tuple[Of, str] | None:
    """Return the owner of a budget; None and a problem in `found` if it is invalid."""
    of, name = (Of.PROJECT, project) if project is not None else (Of.USER, user)
    if name is None or (project is not None and user is not None):
        found.add(path, "needs either `project` or `user`")
        return None
    if name != EVERY:
        check_name(name, (*path, of), found)
    return of, name


def _node(doc: NodeClassDoc, path: Path, found: Findings) -> NodeClass:
    """Read a machine type."""
    check_name(doc.name, (*path, "name"), found)
    cpu = read_cpu(doc.cpu, (*path, "cpu"), found) or 0
    memory = 0 if doc.memory is None else read_memory(doc.memory, (*path, "memory"), found) or 0
    return NodeClass(doc.name, Resources(cpu, memory, doc.gpu), money(doc.hour, (*path, "hour"), found) or 0)
