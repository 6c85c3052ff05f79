"""A query of the archive as conditions of SQL, the same for SQLite and PostgreSQL but for how a parameter is written."""

from collections.abc import Callable

from spillover.ports.archive import Query


def conditions(query: Query, parameter: Callable[[int], str]) -> tuple[str, list[object]]:
    """A WHERE clause for the archive and its values; `parameter(n)` writes the n-th one, from 1."""
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
        # The first part is implied by the second; it is there for the index.
        clauses.append(f"number <= {at} AND (number < {at} OR {after})")
    return " AND ".join(clauses) or "1 = 1", values


def listing(query: Query) -> str:
    """The order of a list, as `ports.archive.listed` has it; ids that are no members are of one length."""
    return "number DESC, length(job), job" if query.members else "number DESC, job"


def prefix_range(prefix: str) -> tuple[str, str]:
    """The lowest id that starts so, and one above the highest."""
    return prefix, prefix + "\U0010ffff"
