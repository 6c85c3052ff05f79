"""Formats the result of a simulation: facts for people, fields for programs, and a row for each job."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import asdict

from spillover.model.units import MONEY, SECOND, format_duration, so_many
from spillover.sim.outcome import JobOutcome
from spillover.sim.pools import PoolNumbers
from spillover.sim.reports.statistics import Statistics
from spillover.sim.studies.study import Study, StudyResult
from spillover.sim.trace import Trace, TraceJob

COLUMNS: Final = ("id", "submit_s", "start_s", "end_s", "cluster", "node", "cost", "reason")


def facts(result: StudyResult, study: Study, trace: Trace) -> list[tuple[str, str]]:
    """Return the result as named facts for people."""
    numbers = result.statistics
    count = len(trace.jobs)
    left = f" of {count:,}, without {study.warmup:,} at both ends" if study.warmup else ""
    told = [("policy", result.policy), ("jobs", f"{numbers.jobs:,}{left}")]
    told += [("left out", left_out(trace))] if trace.left_out or trace.not_jobs else []
    told += [
        ("policies know", str(result.known)),
        ("rented", rented(numbers)),
        *([("machines", machines(numbers.pool))] if numbers.pool is not None else []),
        ("wait", waits(numbers)),
        (
            "completion",
            f"{span(numbers.mean_completion_s)} on average, {span(numbers.mean_runtime_s)} of it running",
        ),
        ("wasted waiting", f"{numbers.wasted_wait:.1%} of it by jobs that were rented anyway"),
        (
            "owned machines",
            f"{numbers.owned_utilization:.1%} busy, {numbers.system_utilization:.1%} including rented work",
        ),
    ]
    if numbers.never_ran:
        told.append(("never ran", f"{so_many(numbers.never_ran)}, too large for any owned machine"))
    return told


def fields(result: StudyResult, study: Study, trace: Trace) -> dict[str, Any]:
    """Return the result as fields for JSON."""
    return {
        **asdict(result.statistics),
        "policy": result.policy,
        "seed": study.seed,
        "warmup": study.warmup,
        "estimates": result.known.told,
        "estimate_error": result.known.error or None,
        "left_out": trace.left_out,
        "not_jobs": trace.not_jobs,
        "policy_failures": [asdict(one) for one in result.failures],
    }


def write_jobs(path: str, jobs: Sequence[TraceJob], outcomes: Sequence[JobOutcome]) -> None:
    """Write a row for each job that ran, in the order of submission; compress if the name ends in .gz."""
    write_csv(path, COLUMNS, rows(jobs, outcomes))


def write_csv(path: str, columns: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Write a table with its header; compress if the name ends in .gz."""
    import csv  # noqa: PLC0415 - most simulations write no rows
    from io import StringIO  # noqa: PLC0415 - likewise

    text = StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(lines)
    data = text.getvalue().encode()
    if path.endswith(".gz"):
        import gzip  # noqa: PLC0415 - likewise

        data = gzip.compress(data, mtime=0)
    with open(path, "wb") as file:  # noqa: PTH123 - pathlib takes as long to load as a small trace to read
        file.write(data)


def rows(jobs: Sequence[TraceJob], outcomes: Sequence[JobOutcome]) -> Iterator[tuple[str, ...]]:
    """Yield the values of COLUMNS for each job, with exact seconds and amounts."""
    for one in sorted(outcomes, key=lambda each: each.job):
        yield (
            jobs[one.job].id,
            decimal(one.submit, SECOND),
            decimal(one.start, SECOND),
            decimal(one.end, SECOND),
            one.cluster,
            one.node,
            decimal(one.cost, MONEY),
            one.reason,
        )


def decimal(value: int, unit: int) -> str:
    """Format an integer in a unit that is a power of ten, exactly and without trailing zeros."""
    whole, part = divmod(value, unit)
    if not part:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{part:0{digits}d}".rstrip("0")


def rented(numbers: Statistics) -> str:
    """Summarise rented capacity in one line."""
    parts = [so_many(numbers.rented_jobs)]
    if numbers.rented_gpu_hours:
        parts.append(f"{numbers.rented_gpu_hours:,.1f} GPU hours")
    if numbers.rented_cpu_hours:
        parts.append(f"{numbers.rented_cpu_hours:,.1f} CPU hours")
    return ", ".join([*parts, f"cost {numbers.rented_cost:,.2f}"])


def machines(numbers: PoolNumbers) -> str:
    """Summarise the machines of a pool in one line."""
    paid = numbers.paid_hours or 1.0
    parts = [f"{numbers.useful_hours / paid:.0%} useful", f"{numbers.boot_hours / paid:.0%} boot"]
    parts.append(f"{numbers.idle_hours / paid:.0%} idle")
    if numbers.interrupted_hours:
        parts.append(f"{numbers.interrupted_hours / paid:.0%} interrupted")
    refused = f"; {numbers.refused:,} orders refused" if numbers.refused else ""
    return f"{numbers.machines:,}, {numbers.paid_hours:,.1f} hours paid: {', '.join(parts)}{refused}"


def waits(numbers: Statistics) -> str:
    """Summarise waits in one line."""
    return (
        f"{span(numbers.mean_wait_s)} on average; median {span(numbers.p50_wait_s)}, "
        f"p90 {span(numbers.p90_wait_s)}, p99 {span(numbers.p99_wait_s)}, "
        f"max {span(numbers.max_wait_s)}"
    )


def span(seconds: float) -> str:
    """Format seconds as a duration."""
    return format_duration(round(seconds * SECOND))


def left_out(trace: Trace) -> str:
    """Describe what was not simulated, and why."""
    parts = [so_many(trace.left_out, "wrong row")] if trace.left_out else []
    if trace.not_jobs:
        parts.append("1 row of a job" if trace.not_jobs == 1 else f"{trace.not_jobs:,} rows of jobs")
        parts[-1] += " that never ran"
    return ", ".join(parts)
