"""Reads traces from Slurm: `sacct --parsable2 --allusers`, with its header.

Its times have no zone. We take them as UTC, which only shifts the whole trace.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from spillover.forms.problems import shown
from spillover.model.units import DAY, HOUR, MINUTE, SECOND, UnitError, parse_memory
from spillover.sim.trace import Happened, Trace, TraceJob
from spillover.sim.traces.rows import Rows, Wrong, milli, refuse, times, whole

_UNKNOWN: Final = frozenset({"", "Unknown", "None", "N/A"})
_ENDLESS: Final = frozenset({"UNLIMITED", "Partition_Limit", "INVALID"})
_ELAPSED = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{2}(?:\.\d{1,6})?)", re.ASCII)
_GPU = re.compile(r"(?:^|,)gres/gpu=([^,]*)", re.ASCII)
_TYPED = re.compile(r"(?:^|,)gres/gpu:[^=,]+=([^,]*)", re.ASCII)
_LEGACY = re.compile(r"(?:^|,)(?:gres:)?gpu(?::[^:,()]+)?:(\d{1,9})", re.ASCII)
_TRES = re.compile(r"(?:^|,)(cpu|mem|node)=([^,]+)", re.ASCII)
HOW: Final = (
    "create it with sacct --parsable2 --allusers "
    "-o JobID,User,Account,Submit,Start,End,State,AllocTRES,ReqMem,Timelimit,NNodes"
)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - sacct writes times without a zone


def is_sacct(first: str) -> bool:
    """Tell whether a first line is the header of `sacct --parsable2`."""
    return "|" in first and "jobid" in [name.strip().lower() for name in first.split("|")]


def read(text: str, rows: Rows) -> Trace:
    """Read the jobs that ran and ended, with their real times; ignore job steps."""
    lines = text.splitlines()
    header = [name.strip().lower() for name in lines[0].split("|")]
    _check(header, rows.source)
    found: list[tuple[TraceJob, Happened]] = []
    not_jobs = 0
    asked: list[int] = []
    for line, row in enumerate(lines[1:], 2):
        fields = row.split("|")
        if not row.strip():
            continue
        if len(fields) != len(header):
            rows.wrong(line, ("", f"has {len(fields)} columns; the header has {len(header)}"))
            continue
        record = dict(zip(header, fields, strict=True))
        if "." in record["jobid"]:
            continue
        try:
            one = _job(record)
            submit = _moment(record, "submit") if one is None else None
        except Wrong as error:
            rows.wrong(line, ("", str(error)))
            continue
        if one is None:
            not_jobs += 1
            asked += [] if submit is None else [submit]
        else:
            found.append(one)
    rows.check()
    found.sort(key=lambda one: one[0].submit)
    zero = found[0][0].submit if found else 0
    return Trace(
        tuple(job.but(job.submit - zero, job.estimate) for job, _ in found),
        zero,
        tuple(_moved_past(past, zero) for _, past in found),
        rows.left_out,
        not_jobs,
        tuple(at - zero for at in asked),
    )


def _check(header: list[str], source: str) -> None:
    """Refuse a table without the columns that a simulation needs."""
    missing = [name for name in ("JobID", "Submit", "Start", "End") if name.lower() not in header]
    sizes = ("AllocTRES", "ReqTRES", "AllocCPUS", "NCPUS", "ReqCPUS")
    if not any(name.lower() in header for name in sizes):
        missing.append(f"one of {', '.join(sizes)}")
    if missing:
        raise refuse(source, f"lacks {', '.join(missing)}; {HOW}")


def _job(record: Mapping[str, str]) -> tuple[TraceJob, Happened] | None:
    """Parse one row, in absolute time; None if the job did not run or has not ended."""
    start, end = _moment(record, "start"), _moment(record, "end")
    submit = _moment(record, "submit")
    if start is None or end is None:
        return None
    if submit is None:
        raise Wrong("submit: is missing")
    if end < start or start < submit:
        raise Wrong("submit, start and end are not in chronological order")
    tres = record.get("alloctres", "") or record.get("reqtres", "")
    parts = dict(_TRES.findall(tres))
    nodes = whole(parts.get("node", "") or _first(record, "nnodes", "allocnodes", "reqnodes"))
    cpus = milli(parts.get("cpu", "") or _first(record, "alloccpus", "ncpus", "reqcpus"))
    gpus = _gpus(record, tres, nodes)
    if not (gpus or cpus):
        return None
    state = record.get("state", "").partition(" ")[0]
    job = TraceJob(
        record["jobid"],
        submit,
        end - start,
        gpus,
        cpus,
        nodes,
        _memory(parts.get("mem", ""), record.get("reqmem", ""), cpus, nodes),
        record.get("user", ""),
        record.get("account", ""),
        _limit(record),
    )
    eligible = _moment(record, "eligible") if "eligible" in record else None
    held = eligible is not None and submit < eligible <= start
    return job, Happened(start, end, state, eligible if held else None)


def _moved_past(past: Happened, zero: int) -> Happened:
    """Move the times of a job to the clock of the trace."""
    ready = None if past.ready is None else past.ready - zero
    return Happened(past.start - zero, past.end - zero, past.state, ready)


def _first(record: Mapping[str, str], *names: str) -> str:
    """Return the first of some columns that is neither empty nor 0."""
    return next((record[name] for name in names if record.get(name, "") not in {"", "0"}), "")


def _moment(record: Mapping[str, str], column: str) -> int | None:
    """Parse a time; None if unknown."""
    text = record[column]
    if text in _UNKNOWN:
        return None
    if text.isdigit():
        return times(SECOND)(text)
    try:
        since = datetime.fromisoformat(text).replace(tzinfo=None) - _EPOCH
    except ValueError:
        raise Wrong(f"{column}: {shown(text)} is not a time; write 2027-01-31T18:00:00") from None
    return (since.days * 86_400 + since.seconds) * SECOND


def _limit(record: Mapping[str, str]) -> int | None:
    """Parse the walltime in nanoseconds; None if there is no limit."""
    raw, text = record.get("timelimitraw", ""), record.get("timelimit", "")
    if raw.isdigit():
        return int(raw) * MINUTE
    if text in _UNKNOWN or text in _ENDLESS:
        return None
    match = _ELAPSED.fullmatch(text)
    if match is None:
        raise Wrong(f"timelimit: {shown(text)} is not a time limit; write 1-12:00:00")
    days, hours, minutes, seconds = match.groups()
    return int(days or 0) * DAY + int(hours or 0) * HOUR + int(minutes) * MINUTE + times(SECOND)(seconds)


def _gpus(record: Mapping[str, str], tres: str, nodes: int) -> int:
    """Return the GPUs of the whole job: the total, else the sum over types, else per node as in old versions."""
    if match := _GPU.search(tres):
        return _count(match[1])
    if typed := _TYPED.findall(tres):
        return sum(map(_count, typed))
    legacy = _LEGACY.findall(record.get("allocgres", "") or record.get("reqgres", ""))
    return sum(map(int, legacy)) * max(1, nodes)


def _count(text: str) -> int:
    """Parse the number of GPUs behind `gres/gpu=`."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Wrong(f"gres/gpu: {shown(text)} is not a number of GPUs")
    return int(text)


def _memory(total: str, asked: str, cpus: int, nodes: int) -> int:
    """Return the bytes of the whole job: as allocated, else as requested in total, per CPU or per node."""
    text = total or asked
    if text in _UNKNOWN or text in {"0", "0n", "0c"}:
        return 0
    each = 1000
    if text[-1:] in {"c", "n"}:
        each = cpus if text[-1] == "c" else 1000 * max(1, nodes)
        text = text[:-1]
    if text[-1:].isdigit():
        text += "M"
    try:
        return parse_memory(f"{text}i" if text[-1:] in {"K", "M", "G", "T", "P"} else text) * each // 1000
    except UnitError as error:
        raise Wrong(f"mem: {error}") from None
