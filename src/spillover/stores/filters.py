"""Translates archive queries to SQL for SQLite and PostgreSQL, which differ only in how they write parameters."""

from collections.abc import Callable

from spillover.ports.archive import Query
from spillover.ports.audit import AuditQuery
from spillover.stores.rows import AUDIT_COLUMNS


def conditions(query: Query, parameter: Callable[[int], str]) -> tuple[str, list[object]]:
    """Return a WHERE clause for the archive, and its values. `parameter(n)` writes the n-th one, from 1."""
    clauses = [] if query.members else ["member = 0"]
    values: list[object] = []

    def place(value: object) -> str:
        values.append(value)
        return parameter(len(values))

    for column, value in (
        ("state", query.state),
        ("project", query.project),
        ("owner", query.user),
        ("name", query.name),
        ("queue", query.queue),
        ("number", query.number),
    ):
        if value is not None:
            clauses.append(f"{column} = {place(value)}")
    if query.since is not None:
        clauses.append(f"submitted >= {place(query.since)}")
    if query.until is not None:
        clauses.append(f"submitted < {place(query.until)}")
    if query.ended_since is not None:
        clauses.append(f"finished >= {place(query.ended_since)}")
    if query.before is not None:
        number, job = query.before
        at = place(number)
        after = (
            f"(length(job), job) > ({place(len(job))}, {place(job)})"
            if query.members
            else f"job > {place(job)}"
        )
        # The second part implies the first, which is there for the index.
        clauses.append(f"number <= {at} AND (number < {at} OR {after})")
    return " AND ".join(clauses) or "1 = 1", values


def audit_select(query: AuditQuery, parameter: Callable[[int], str]) -> tuple[str, list[object]]:
    """Return the statement that selects entries of the audit, and its values."""
    clauses = ["1 = 1"]
    values: list[object] = []

    def place(value: object) -> str:
        values.append(value)
        return parameter(len(values))

    for column, value in (("who", query.user), ("type", query.type), ("project", query.project)):
        if value is not None:
            clauses.append(f"{column} = {place(value)}")
    if query.job is not None:
        first, end = prefix_range(f"{query.job}.")
        job = place(query.job)
        clauses.append(f"(job = {job} OR (job >= {place(first)} AND job < {place(end)}))")
    # Times never decrease, so one revision divides them, and the search needs no entry beyond it.
    edge = "SELECT revision FROM audit WHERE at {} ORDER BY at {}, revision {} LIMIT 1"
    if query.since is not None:
        since = place(query.since)
        clauses.append(f"at >= {since} AND revision >= ({edge.format(f'>= {since}', 'ASC', 'ASC')})")
    if query.until is not None:
        until = place(query.until)
        clauses.append(f"at < {until} AND revision <= ({edge.format(f'< {until}', 'DESC', 'DESC')})")
    if query.before is not None:
        clauses.append(f"revision < {place(query.before)}")
    columns, where = ", ".join(AUDIT_COLUMNS), " AND ".join(clauses)
    return (
        f"SELECT {columns} FROM audit WHERE {where} ORDER BY revision DESC LIMIT {place(query.limit)}",  # noqa: S608 - constants
        values,
    )


def listing(query: Query) -> str:
    """Return the ORDER BY clause that matches `ports.archive.listed`. Ids that are not members have equal length."""
    return "number DESC, length(job), job" if query.members else "number DESC, job"


def prefix_range(prefix: str) -> tuple[str, str]:
    """Return the range of ids with a prefix: the lowest, and one above the highest."""
    return prefix, prefix + "\U0010ffff"
