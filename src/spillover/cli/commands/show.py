"""`spill show`: prints all details of one job."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from spillover.cli import codes
from spillover.cli.command import Command, Context, add_connection, add_job, add_json
from spillover.cli.printing.listing import place, progress
from spillover.cli.printing.output import Column, Output
from spillover.cli.printing.shown import (
    ENDED,
    between,
    duration,
    expected,
    local,
    money,
    resources,
    start_range,
)
from spillover.model.units import so_many

if TYPE_CHECKING:
    from spillover.wire.api import Efficiency, JobDetail, SetAsideView, TaskView


def _configure(parser: ArgumentParser) -> None:
    add_job(parser)
    add_json(parser)
    add_connection(parser)


def _run(args: Namespace, context: Context) -> int:
    with context.connect(args) as client:
        job = client.job(args.job)
        if args.json:
            context.out.json(job)
        else:
            sheet(context.out, job, client.server().currency)
    return codes.OK


def sheet(out: Output, job: "JobDetail", currency: str) -> None:
    """Print the facts about a job, its tasks, its job file with defaults, and what it used of what it asked for."""
    out.sheet([(name, text) for name, text in facts(job, currency) if text])
    if job.tasks:
        out.line()
        grouped = any(each.group for each in job.tasks)
        columns: tuple[Column, ...] = (*_TASKS[:1], _GROUP, *_TASKS[1:]) if grouped else _TASKS
        rows = [_task(each, grouped=grouped) for each in job.tasks]
        if any(each.cpus or each.gpus for each in job.tasks):
            at = 3 if grouped else 2
            columns = (*columns[:at], Column("HAS ALONE", drops=1), *columns[at:])
            shown = zip(job.tasks, rows, strict=True)
            rows = [(*row[:at], granted(each), *row[at:]) for each, row in shown]
        out.table(columns, rows)
    if job.spec:
        out.line()
        for line in _as_yaml(job.spec).splitlines():
            out.line(line)
    if job.efficiency is not None:
        out.line()
        out.sheet(efficiency(job.efficiency))


def efficiency(of: "Efficiency") -> list[tuple[str, str]]:
    """Return what was used of what was asked for, and what to ask for next time."""
    from spillover.model.units import format_memory  # noqa: PLC0415 - only jobs that have run have it

    members = f", in sum over {so_many(of.members, 'member')}" if of.members else ""
    facts = []
    if of.cpu is not None:
        used = f"{duration(of.cpu_used_s)} of {duration(of.cpu_asked_s)}"
        facts.append(("CPU used", f"{of.cpu:.0%} ({used}{members})"))
    if of.memory is not None and of.memory_used is not None and of.memory_asked is not None:
        most = f"at most {format_memory(of.memory_used)} of {format_memory(of.memory_asked)}"
        facts.append(("memory used", f"{of.memory:.0%} ({most}{members})"))
    if of.gpu is not None:
        used = f"{duration(of.gpu_used_s)} of {duration(of.gpu_asked_s)}"
        most = f", at most {format_memory(of.gpu_memory_used)} of memory" if of.gpu_memory_used else ""
        facts.append(("GPU used", f"{of.gpu:.0%} ({used}{most}{members})"))
    elif of.gpu_asked_s:
        facts.append(("GPU held", f"{duration(of.gpu_asked_s)}; its use was not measured"))
    return facts + [("hint", hint) for hint in of.hints]


def _as_yaml(spec: "dict[str, Any]") -> str:
    """Write a job file, with texts of several lines as blocks, as people write them."""
    import yaml  # noqa: PLC0415 - heavy

    class Blocks(yaml.SafeDumper):
        """Writes a text as a block if it has several lines, and YAML can write those as they are."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        style = "|" if "\n" in value.rstrip("\n") else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Blocks.add_representer(str, text)
    written: str = yaml.dump(spec, Dumper=Blocks, sort_keys=False, allow_unicode=True)
    return written


def facts(job: "JobDetail", currency: str) -> list[tuple[str, str]]:
    """Return named facts, the most important first; the caller omits empty ones."""
    where = place(job)
    reason = job.reason.message if job.reason is not None and job.state != "SUCCEEDED" else ""
    because = job.placed_because.message if job.placed_because is not None else ""
    return [
        ("job", job.id),
        ("name", job.name),
        ("state", f"{job.state}, {reason}" if reason else job.state),
        ("tasks", _counted(job.task_counts) or ("" if _tasks(job) == 1 else str(_tasks(job)))),
        ("array", progress(job.array.counts, job.array.size) if job.array else ""),
        (
            "members",
            f"`spill show {job.id}.INDEX` shows a member, `spill ls --members --name {job.name}` lists placed members"
            if job.array
            else "",
        ),
        ("where", f"{where}, because {because}" if where and because else where),
        ("has alone", granted(job)),
        ("attempt", _attempt(job)),
        ("owner", f"{job.user}, project {job.project}, queue {job.queue}, priority {job.priority}"),
        ("requests", _requests(job)),
        ("estimate", expected(job.estimate_s, job.estimate_from, job.estimate_because)),
        ("submitted", f"{local(job.submitted_at)} ({duration(between(job.submitted_at, None))} ago)"),
        ("expected to start", start_range(job.expected_start)),
        ("started", _started(job)),
        ("finished", local(job.finished_at) if job.finished_at else ""),
        ("ran", _ran(job)),
        ("exit code", "" if job.exit_code is None else str(job.exit_code)),
        ("signal", "" if job.signal is None else str(job.signal)),
        ("walltime", _given(job)),
        ("would cost", _quoted(job, currency)),
        (
            "held",
            "" if job.held_cost is None else f"{money(job.held_cost, currency)}, the most it can cost",
        ),
        ("cost", money(job.cost, currency) if job.cost or job.state in ENDED else ""),
        ("note", job.note or ""),
        *[("retrying", _aside(each)) for each in job.set_aside],
    ]


_TASKS = (
    Column("TASK", right=True),
    Column("NODE", gives=True),
    Column("STATE"),
    Column("EXIT", right=True),
    Column("RAN", right=True),
    Column("CPU", right=True, drops=1),
    Column("MEMORY", right=True, drops=2),
    Column("", gives=True, drops=3),
)


_GROUP = Column("GROUP")


def granted(of: "JobDetail | TaskView") -> str:
    """Return the CPUs and GPUs that a task has for itself."""
    parts = [f"CPUs {of.cpus}"] if of.cpus else []
    if of.gpus:
        parts.append(f"GPU{'s' if len(of.gpus) > 1 else ''} {', '.join(of.gpus)}")
    return "; ".join(parts)


def _task(task: "TaskView", *, grouped: bool) -> tuple[str, ...]:
    """Return the row of one task of a gang."""
    from spillover.model.units import format_memory  # noqa: PLC0415 - only jobs with several tasks have it

    code = "" if task.exit_code is None else str(task.exit_code)
    return (
        str(task.rank),
        *([f"{task.group} {task.group_task}"] if grouped else []),
        task.node,
        task.state,
        code if task.signal is None else f"signal {task.signal}",
        "" if task.ran_s is None else duration(task.ran_s),
        "" if not task.cpu_s else duration(task.cpu_s),
        "" if not task.peak_memory else format_memory(task.peak_memory),
        "; ".join(each for each in (_restarted(task.restarts), task.message) if each),
    )


def _restarted(times: int) -> str:
    """Say how often a task was started again."""
    return "" if not times else "started again" if times == 1 else f"started again {times} times"


def _attempt(job: "JobDetail") -> str:
    """Return the number of the attempt, and how many of the earlier ones lost their machine."""
    if not job.interruptions:
        return str(job.attempt) if job.attempt else ""
    times = "once" if job.interruptions == 1 else f"{job.interruptions} times"
    return f"{job.attempt}, interrupted {times} because its machine was taken back"


def _tasks(job: "JobDetail") -> int | str:
    """Return how many tasks a job asks for: a number, or a range such as 2..8."""
    spec = job.spec.get("spec", {})
    groups = spec.get("groups") or ()
    asked: int | str = spec.get("tasks", 1)
    return sum(each["tasks"] for each in groups) if groups else asked


def _requests(job: "JobDetail") -> str:
    """Describe what a job requests. Its job file, which is printed too, has the resources of each group."""
    if not job.resources or job.spec.get("spec", {}).get("groups"):
        return ""
    return resources(job.resources) + ("" if _tasks(job) == 1 else " for each task")


def _counted(counts: dict[str, int]) -> str:
    """Count the tasks of a gang in each state."""
    states = ", ".join(f"{count} {state.lower()}" for state, count in counts.items())
    return f"{sum(counts.values())}, {states}" if counts else ""


def _aside(failed: "SetAsideView") -> str:
    """Describe work of the server for this job that failed and will be retried."""
    tries = f"{failed.tries} time{'s' if failed.tries != 1 else ''}"
    return f"{failed.work} failed {tries} since {local(failed.since)}, next try {local(failed.next_try)}: {failed.reason}"


def _given(job: "JobDetail") -> str:
    """Describe the walltime that the cost cap of a job sets."""
    given = job.given_walltime_s
    return "" if given is None else f"{duration(given)}, limited by its cost cap"


def _quoted(job: "JobDetail", currency: str) -> str:
    """Format the expected cost and the largest possible cost."""
    if job.estimated_cost is None or (job.node is not None and not job.estimated_cost):
        return ""
    told = money(job.estimated_cost, currency) + ("" if job.node is not None else " if rented")
    return told + ("" if job.cost_at_walltime is None else f", at most {money(job.cost_at_walltime)}")


def _started(job: "JobDetail") -> str:
    """Format the start time and the wait before it, if that is known."""
    if job.started_at is None:
        return ""
    # Servers up to 0.4 do not tell it, and the first attempt waited from its submission on.
    first = between(job.submitted_at, job.started_at) if job.attempt == 1 else None
    waited = job.waited_s if job.waited_s is not None else first
    return local(job.started_at) + ("" if waited is None else f" (waited {duration(waited)})")


def _ran(job: "JobDetail") -> str:
    """Format the runtime, and the measured usage if known."""
    ran = job.ran_s if job.ran_s is not None else between(job.started_at, job.finished_at)
    if ran is None:
        return ""
    parts = [duration(ran)]
    if job.cpu_s is not None:
        parts.append(f"{duration(job.cpu_s)} of CPU")
    if job.peak_memory:
        from spillover.model.units import format_memory  # noqa: PLC0415 - only ended jobs have it

        parts.append(f"at most {format_memory(job.peak_memory)} of memory")
    return ", ".join(parts)


COMMANDS = {
    "show": Command(
        "Show all details of a job.", _configure, _run, "spill show train\nspill show train --json"
    )
}
