"""Writes a notification as a mail: plain text with what a person wants to know, and the command for more."""

from collections.abc import Iterable
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final

from spillover.model.notifications import domain_of
from spillover.model.units import SECOND, format_duration, format_moment, parse_time
from spillover.wire.notices import Notice, NoticeBudget, NoticeCluster, NoticeJob

_SUBJECT: Final = 150
"""Most characters of a subject."""
_LINE: Final = 900
"""Most characters of a line, which SMTP limits to 998."""
_NAMES: Final = 50
"""Most agents that a mail names."""
_WIDTH: Final = 11


def mail_of(notice: Notice, sender: str) -> EmailMessage:
    """Return the mail for a notice. Text of people reaches headers only as one line of printable characters."""
    mail = EmailMessage(policy=SMTP)
    mail["From"] = f"Spillover <{sender}>"
    mail["To"] = notice.to
    mail["Subject"] = subject_of(notice)
    mail["Date"] = format_datetime(datetime.fromtimestamp(parse_time(notice.at) // SECOND, UTC))
    # The same in each try, so that mail programs show a repetition once.
    mail["Message-ID"] = f"<{notice.id}@{domain_of(sender)}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail["X-Spillover-Kind"] = notice.kind
    mail.set_content("\n".join(_lines(notice)) + "\n")
    return mail


def subject_of(notice: Notice) -> str:
    """Return the subject: the name and the state of a job come first, as lists of mail cut the rest."""
    job = notice.job
    if job is None:
        return _one_line(f"[spill] {notice.text}", _SUBJECT)
    if notice.kind in {"begin", "requeue"}:
        return _one_line(
            f"[spill] {job.name} {'began' if notice.kind == 'begin' else 'was requeued'}", _SUBJECT
        )
    why = "" if job.reason is None else f": {job.reason.message}"
    return _one_line(f"[spill] {job.name} {job.state}{why}", _SUBJECT)


def _lines(notice: Notice) -> Iterable[str]:
    text = notice.text[:1].upper() + notice.text[1:]
    yield _one_line(f"{text}.", _LINE)
    rows: list[tuple[str, str]] = []
    if notice.job is not None:
        rows = list(_of_job(notice.job))
    elif notice.budget is not None:
        rows = list(_of_budget(notice.budget))
    elif notice.cluster is not None:
        rows = list(_of_cluster(notice.cluster))
    if rows:
        yield ""
    for name, value in rows:
        yield f"{name:<{_WIDTH}}{_one_line(value, _LINE)}"
    if (more := _more(notice)) is not None:
        yield ""
        yield f"More: {more}"
    yield ""
    yield "-- "
    yield "Sent by Spillover."


def _of_job(job: NoticeJob) -> Iterable[tuple[str, str]]:
    yield "Job", job.id
    yield "User", job.user
    yield "State", job.state
    if job.reason is not None:
        yield "Why", job.reason.message
    if job.members:
        yield "Members", ", ".join(f"{count:,} {state}" for state, count in job.members.items())
    if job.cluster is not None:
        yield "Where", job.cluster if job.node is None else f"{job.cluster}/{job.node}"
    if job.ran_s is not None:
        again = f" (attempt {job.attempt})" if job.attempt > 1 else ""
        yield "Ran", format_duration(round(job.ran_s * SECOND)) + again
    for name, at in (
        ("Submitted", job.submitted_at),
        ("Started", job.started_at),
        ("Ended", job.finished_at),
    ):
        if at is not None:
            yield name, format_moment(parse_time(at))
    if job.cost:
        yield "Cost", f"{job.cost:.2f} {job.currency}".rstrip()


def _of_budget(budget: NoticeBudget) -> Iterable[tuple[str, str]]:
    currency = f" {budget.currency}" if budget.currency else ""
    yield "Budget", f"{budget.of} {budget.name}"
    yield "Period", budget.period if budget.per != "ever" else "all time"
    for name, amount in (("Spent", budget.spent), ("Held", budget.held), ("Limit", budget.limit)):
        yield name, f"{amount:.2f}{currency}"


def _of_cluster(cluster: NoticeCluster) -> Iterable[tuple[str, str]]:
    yield "Cluster", cluster.name
    if cluster.state is not None:
        yield "State", cluster.state
    if cluster.why is not None:
        yield "Why", cluster.why
    if cluster.agents is not None:
        more = len(cluster.agents) - _NAMES
        yield "Agents", ", ".join(cluster.agents[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def _more(notice: Notice) -> str | None:
    """Return the command that shows more; None if there is none."""
    if notice.job is not None:
        job = notice.job.id
        if notice.job.members is not None:
            return (
                f"spill show {job}, and spill rerun --failed {job}"
                if notice.kind == "fail"
                else f"spill show {job}"
            )
        return f"spill show {job}, and spill logs {job}"
    if notice.budget is not None:
        return "spill budgets"
    if notice.kind == "pool_paused" and notice.cluster is not None:
        return f"spill pools, and spill pools resume {notice.cluster.name}"
    if notice.cluster is not None:
        return "spill agents" if notice.cluster.agents is not None else "spill clusters"
    return None


def _one_line(text: str, most: int) -> str:
    """Return a text as one line of printable characters, so that it cannot add headers or lines of its own."""
    plain = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return plain if len(plain) <= most else plain[: most - 3] + "..."
