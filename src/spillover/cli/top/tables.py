"""Builds the tables of `spill top`, with fixed column widths so that nothing moves when values change."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from spillover.cli.printing.output import Cell, Column, Row
from spillover.cli.printing.shown import NOTHING, STYLES, duration, money, number

if TYPE_CHECKING:
    from spillover.wire.api import AgentView, ClusterView, JobView, Overview

_GOOD: Final = frozenset({"ready", "READY"})
_ID: Final = 12
"""Characters of an id; ids of array members are longer."""
_MEMORY: Final = ((2**40, "T"), (2**30, "G"), (2**20, "M"), (2**10, "K"))


def clusters(overview: "Overview", width: int) -> tuple[list[Column], list[Row]]:
    """Build the table of clusters, with bars of their use."""
    bar = 20 if width >= 120 else 12
    columns = [
        _fixed("CLUSTER", 12),
        _fixed("ROLE", 6, drops=2),
        _fixed("STATE", 8),  # never dropped: a failing cluster must stand out
        _fixed("CPU", bar + 1 + 11),
        _fixed("MEMORY", bar // 2 + 1 + 11, drops=1),
        _fixed("GPU", 7, drops=4),
        _fixed("JOBS", 5, right=True),
        _fixed("NODES", 6, right=True, drops=3),
    ]
    return _narrowed(columns, [_cluster(cluster, bar) for cluster in overview.clusters], width)


def _cluster(cluster: "ClusterView", bar: int) -> Row:
    colour = "yellow" if cluster.role == "rented" else "cyan"
    has, used = cluster.capacity, cluster.used
    return (
        _cut(cluster.name, 12),
        cluster.role,
        _state(cluster.state),
        Cell(_bar(used, has, "cpu", bar), colour),
        Cell(_bar(used, has, "memory", bar // 2), colour),
        _share(used, has, "gpu"),
        f"{cluster.running:,}",
        f"{cluster.agents:,}",
    )


def agents(overview: "Overview", offset: int, rows: int, width: int) -> tuple[list[Column], list[Row]]:
    """Build the table of agents, with their load and the age of their last heartbeat."""
    now = datetime.fromisoformat(overview.at)
    columns = [
        _fixed("AGENT", 12),
        _fixed("CLUSTER", 12),
        _fixed("STATE", 10),
        _fixed("LOAD", 20 if width >= 120 else 12),
        _fixed("CPU", 11, drops=1),
        _fixed("MEMORY", 11, drops=2),
        _fixed("RUNS", 5, right=True),
        _fixed("LEASED", 6, right=True),
        _fixed("HEARD", 9, right=True),
        Column("OFFERS", gives=True, drops=3),
    ]
    shown = overview.agents[offset : offset + rows]
    return _narrowed(columns, [_agent(agent, now, 20 if width >= 120 else 12) for agent in shown], width)


def _agent(agent: "AgentView", now: datetime, bar: int) -> Row:
    has, used = agent.capacity, agent.used
    return (
        _cut(agent.name, 12),
        _cut(agent.cluster, 12),
        _state(agent.state),
        Cell(_meter(used.get("cpu", 0.0), has.get("cpu", 0.0), bar), "cyan"),
        _share(used, has, "cpu"),
        _share(used, has, "memory"),
        f"{agent.running:,}",
        f"{agent.leased:,}",
        _age(agent.heartbeat_at, now),
        " ".join(agent.offers) or NOTHING,
    )


def running(overview: "Overview", offset: int, rows: int, width: int) -> tuple[list[Column], list[Row]]:
    """Build the table of placed and running jobs."""
    columns = [
        _fixed("STATE", 7),
        _fixed("RAN", 8, right=True),
        *_asked(2),
        _fixed("COST", 9, right=True, drops=5),
        Column("WHERE", gives=True),
    ]
    return _jobs(overview, overview.running[offset : offset + rows], columns, _running, width, 8)


def _running(job: "JobView", now: datetime) -> Row:
    where = NOTHING if job.cluster is None else f"{job.cluster}/{job.node}"
    return (
        Cell(job.state, STYLES.get(job.state, "")),
        _age(job.started_at, now),
        *_asks(job),
        money(job.cost),
        f"{where}: {job.reason.message}" if job.reason is not None else where,
    )


def queue(overview: "Overview", offset: int, rows: int, width: int) -> tuple[list[Column], list[Row]]:
    """Build the table of the first jobs in the queue, with what each waits for."""
    columns = [
        _fixed("MEMBERS", 7, right=True, drops=2),
        _fixed("WAITED", 8, right=True),
        *_asked(3),
        _fixed("PRIORITY", 9, right=True, drops=5),
        Column("WHY", gives=True),
    ]
    return _jobs(overview, overview.queued[offset : offset + rows], columns, _waiting, width, 40)


def _waiting(job: "JobView", now: datetime) -> Row:
    members = None if job.array is None else job.array.counts.get("QUEUED", 0)
    return (
        NOTHING if members is None else f"{members:,}",
        _age(job.submitted_at, now),
        *_asks(job),
        str(job.priority),
        Cell(job.reason.message, "red" if job.reason.never else "") if job.reason is not None else NOTHING,
    )


def _jobs(
    overview: "Overview",
    jobs: "Sequence[JobView]",
    columns: Sequence[Column],
    told: "Callable[[JobView, datetime], Row]",
    width: int,
    last: int,
) -> tuple[list[Column], list[Row]]:
    """Build a table of jobs: the same columns for identity in all tables, then those given."""
    now = datetime.fromisoformat(overview.at)
    members = any(len(job.id) > _ID for job in (*overview.running, *overview.queued))
    who = [
        _fixed("JOB", _ID + 4 if members else _ID),
        _fixed("NAME", 14),
        _fixed("USER", 8, drops=6),
        _fixed("PROJECT", 10, drops=7),
    ]
    rows = [
        (job.id, _cut(job.name, 14), _cut(job.user, 8), _cut(job.project, 10), *told(job, now))
        for job in jobs
    ]
    return _narrowed([*who, *columns], rows, width, last)


def _asked(drops: int) -> tuple[Column, Column]:
    """Return the columns for the requests of a job."""
    return _fixed("EXPECTED", 8, right=True, drops=drops), _fixed("CPU", 5, right=True, drops=4)


def _asks(job: "JobView") -> tuple[str, str]:
    """Return the expected runtime and the CPUs of a job."""
    expected = NOTHING if job.estimate_s is None else duration(round(job.estimate_s))
    return expected, number(job.resources.get("cpu", 0.0))


def _narrowed(
    columns: list[Column], rows: Sequence[Row], width: int, last: int = 0
) -> tuple[list[Column], list[Row]]:
    """Drop columns until the titles fit into the terminal, with `last` characters for the last column."""
    kept = list(range(len(columns)))
    while sum(len(columns[at].title) + 2 for at in kept) - 2 + last > width:
        drops, at = max((columns[at].drops, at) for at in kept)
        if not drops:
            break
        kept.remove(at)
    return [columns[at]._replace(drops=0) for at in kept], [[row[at] for at in kept] for row in rows]


def _fixed(title: str, wide: int, *, right: bool = False, drops: int = 0) -> Column:
    """Return a column whose width does not depend on its values."""
    return Column(title.rjust(wide) if right else title.ljust(wide), right=right, drops=drops)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _state(name: str) -> Cell:
    return Cell(name.lower(), "green" if name in _GOOD else "yellow")


def _age(since: str | None, now: datetime) -> str:
    """Return the age of a time in whole seconds, at least zero."""
    return (
        NOTHING
        if since is None
        else duration(max(0, round((now - datetime.fromisoformat(since)).total_seconds())))
    )


def _meter(used: float, has: float, wide: int) -> str:
    """Draw a bar that is empty only if nothing is used and full only if everything is."""
    full = 0 if not has else min(wide, int(wide * used / has + 0.5))
    if has and used > 0:
        full = max(1, full)
    if full == wide and used < has:
        full = wide - 1
    return "█" * full + "░" * (wide - full)


def _bar(used: dict[str, float], has: dict[str, float], kind: str, wide: int) -> str:
    return f"{_meter(used.get(kind, 0.0), has.get(kind, 0.0), wide)} {_share(used, has, kind)}"


def _share(used: dict[str, float], has: dict[str, float], kind: str) -> str:
    """Return used and total amount of a resource."""
    if not has.get(kind):
        return NOTHING
    return f"{_amount(used.get(kind, 0.0), kind)}/{_amount(has[kind], kind)}"


def _amount(value: float, kind: str) -> str:
    """Format an amount in at most five characters."""
    if kind == "memory":
        for unit, letter in _MEMORY:
            if value >= unit:
                return f"{value / unit:.3g}{letter}"
        return f"{value:.0f}"
    return f"{value:.4g}" if value < 10_000 else f"{value / 1000:.3g}k"
