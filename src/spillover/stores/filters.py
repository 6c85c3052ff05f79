"""Translates archive queries to SQL for SQLite and PostgreSQL, which differ only in how they write parameters."""

from collections.abc import Callable

from spillover.ports.archive import Query


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


def listing(query: Query) -> str:
    """Return the ORDER BY clause that matches `ports.archive.listed`. Ids that are not members have equal length."""
    return "number DESC, length(job), job" if query.members else "number DESC, job"


def prefix_range(prefix: str) -> tuple[str, str]:
    """Return the range of ids with a prefix: the lowest, and one above the highest."""
    return prefix, prefix + "\U0010ffff"
