"""Defines the chapters of the study: their cases, and the table of each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from bench.study.cases import Case
from bench.study.contests import (
    LEVELS,
    OOO,
    PHILLY,
    POLICIES,
    Chapter,
    Contest,
    all_of,
    both,
    contest,
    markdown,
    percent,
)
from bench.study.curves import gain
from bench.study.machines import POOLS, VARIED
from bench.study.simulating import Results
from bench.study.variants import A_MINUTE, ALL_COUNTS, NEITHER

# --- Philly under all policies

SIZES: Final = (56, 64, 84, 120)
COMPARED: Final = (56, 64, 84)
"""Sizes at which owned capacity is short."""
PUBLISHED: Final = {
    ("constant", 56): "2.5 / +11.8",
    ("constant", 64): "5.3 / +9.8",
    ("constant", 84): "14.5 / +5.8",
    ("constant", 120): "85.3 / +1.0",
    ("compute", 56): "24.0 / +8.1",
    ("compute", 64): "33.3 / +6.0",
    ("compute", 84): "54.2 / +2.4",
    ("compute", 120): "74.5 / +0.1",
}
"""Cost saved and completion time against zero wait, in percent, as published of the whole trace."""
NAMES: Final = {
    "constant": "constant(1h), strict",
    "compute": "compute(0.076, max_queue=30)",
    "budget": "budget(0.05)",
    "break_even": "break_even(0.076)",
}
_PHILLY: Final = {
    (name, nodes): replace(PHILLY, owned=f"{nodes}x8gpu", policy=policy)
    for nodes in SIZES
    for name, policy in POLICIES.items()
}


def _against_zero(results: Results, name: str, nodes: int) -> tuple[float, float]:
    """Return the share of cost saved, and of completion time added."""
    zero = results[_PHILLY["zero", nodes]].statistics
    found = results[_PHILLY[name, nodes]].statistics
    return 1 - found.rented_cost / zero.rented_cost, found.mean_completion_s / zero.mean_completion_s - 1


def _philly(results: Results) -> str:
    rows = []
    for name, title in NAMES.items():
        cells = []
        for nodes in SIZES:
            saved, longer = _against_zero(results, name, nodes)
            published = PUBLISHED.get((name, nodes))
            cells.append(f"{percent(saved)} / {100 * longer:+.1f}" + (f" ({published})" if published else ""))
        rows.append([title, *cells])
    table = markdown(["policy", *(f"{nodes} nodes" for nodes in SIZES)], rows)
    return f"{table}\n{_check_compute(results)}"


def _check_compute(results: Results) -> str:
    """Check that compute saves more than constant where owned capacity is short."""
    worse = [
        str(nodes)
        for nodes in COMPARED
        if _against_zero(results, "compute", nodes)[0] <= _against_zero(results, "constant", nodes)[0]
    ]
    sizes = ", ".join(map(str, COMPARED))
    return (
        f"compute saves LESS than constant at {', '.join(worse)} nodes.\n"
        if worse
        else f"compute saves more than constant at {sizes} nodes.\n"
    )


def _budget(results: Results) -> str:
    cells = [f"{results[_PHILLY['budget', nodes]].waited / 0.05:.3f}" for nodes in SIZES]
    return markdown(["", *(f"{nodes} nodes" for nodes in SIZES)], [["realised ÷ budgeted", *cells]])


# --- break_even against compute on Philly

CURVE: Final = (0.035, 0.055, 0.08, 0.125, 0.2)
_CONTESTS: Final = {
    (nodes, level): contest(replace(PHILLY, owned=f"{nodes}x8gpu", lognormal=error), 0.076, CURVE)
    for level, error in LEVELS.items()
    for nodes in COMPARED
}


def _contests(results: Results) -> str:
    rows = [
        [
            str(nodes),
            *(both(_CONTESTS[nodes, level].gain(results)) for level in LEVELS),
            _idle(results, _CONTESTS[nodes, "known"].compute),
        ]
        for nodes in COMPARED
    ]
    return markdown(["nodes", *LEVELS, "idle ÷ rented, %"], rows)


def _idle(results: Results, case: Case) -> str:
    """Return the idle owned capacity as a share of what is rented at the same time."""
    found = results[case].statistics
    return percent((1 - found.owned_utilization) / (found.system_utilization - found.owned_utilization), 0)


REPLICAS: Final = (1, 2, 3)
_REPLICAS: Final = {
    (nodes, seed): contest(replace(PHILLY, owned=f"{nodes}x8gpu", jitter=seed), 0.076, (0.035, 0.055, 0.08))
    for seed in REPLICAS
    for nodes in COMPARED
}


def _replicas(results: Results) -> str:
    rows = []
    for nodes in COMPARED:
        gains = [_REPLICAS[nodes, seed].gain(results) for seed in REPLICAS]
        waits = [one.wait for one in gains if one.wait is not None]
        mean = sum(waits) / len(waits) if waits else None
        rows.append([str(nodes), *(percent(one.wait, 0) for one in gains), percent(mean, 0)])
    return markdown(["nodes", *(f"replica {seed}" for seed in REPLICAS), "mean"], rows)


# --- other traces

OTHERS: Final[Mapping[str, tuple[Case, float]]] = {
    "kth_sp2 (tuned on)": (Case("kth_sp2_1996", "1x100cpu", "cpu=1", "", warmup=2000), 1),
    "lublin256": (Case("lublin256", "1x256cpu", "cpu=1", "", warmup=500), 1),
    "theta": (Case("theta_2022", "1x279040cpu", "cpu=1", "", warmup=1000), 64),
    "ctc_sp2": (Case("ctc_sp2_1996", "1x338cpu", "cpu=1", "", warmup=5000), 1),
    "hpc2n": (Case("hpc2n_2002", "1x240cpu", "cpu=1", "", warmup=5000), 1),
}
"""By name, with what coefficients are divided by. As all jobs take whole nodes, one machine of all CPUs holds the same jobs as many nodes."""
COEFFICIENTS: Final = (0.03, 0.076, 0.2)
WIDE: Final = (0.015, 0.04, 0.09, 0.2, 0.45)
WALLTIME: Final = "walltime"


def _other(base: Case, scale: float, level: str) -> list[Contest]:
    """Return one trace at one level of knowledge."""
    told = replace(base, told=WALLTIME) if level == WALLTIME else replace(base, lognormal=LEVELS[level])
    return [contest(told, coefficient, WIDE, scale) for coefficient in COEFFICIENTS]


_OTHERS: Final = {
    (name, level): _other(base, scale, level)
    for name, (base, scale) in OTHERS.items()
    for level in (*LEVELS, WALLTIME)
    if (name, level) != ("lublin256", WALLTIME)  # it states none
}


def _others(names: Sequence[str]) -> Callable[[Results], str]:
    def table(results: Results) -> str:
        rows = []
        for name in names:
            cells = []
            for level in (*LEVELS, WALLTIME):
                found = _OTHERS.get((name, level))
                cells.append(
                    " · ".join(both(one.gain(results)) for one in found) if found else "no walltimes"
                )
            rows.append([name, *cells])
        return markdown(["trace", *LEVELS, WALLTIME], rows)

    return table


# --- only walltimes known, at several loads

LIMITED: Final[Mapping[str, tuple[Case, float, tuple[int, int]]]] = {
    "ctc_sp2": (Case("ctc_sp2_1996[0:5000]", "", "cpu=1", "", warmup=500), 1, (270, 338)),
    "hpc2n": (Case("hpc2n_2002[0:5000]", "", "cpu=1", "", warmup=500), 1, (192, 240)),
    "kth_sp2": (Case("kth_sp2_1996[0:5000]", "", "cpu=1", "", warmup=500), 1, (80, 100)),
    "theta": (Case("theta_2022[0:5000]", "", "cpu=1", "", warmup=500), 64, (223_232, 279_040)),
}
"""By name, with what coefficients are divided by, and the CPUs of the machine: a fifth fewer than there were, and as many."""
LONG: Final = (0.015, 0.06, 0.2, 0.8)
"""Between these, the logarithm of the wait is nearly linear in the cost."""
_LIMITED: Final = {
    (name, sizes[more]): [
        contest(replace(base, owned=f"1x{sizes[more]}cpu", told=WALLTIME), coefficient, LONG, scale)
        for coefficient in COEFFICIENTS
    ]
    for more in (0, 1)
    for name, (base, scale, sizes) in LIMITED.items()
}


def _walltimes(results: Results) -> str:
    rows, waits = [], []
    for (name, cpus), found in _LIMITED.items():
        gains = [one.gain(results) for one in found]
        waits += [each.wait for each in gains if each.wait is not None]
        rows.append([name, f"{cpus:,}", *map(both, gains)])
    columns = ["trace", "CPUs", *(f"against compute({each})" for each in COEFFICIENTS)]
    lost = [wait for wait in waits if wait < 0]
    worst = f"; the worst by {percent(-min(lost), 0)}% of waiting" if lost else ""
    return f"{markdown(columns, rows)}\nbreak_even loses {len(lost)} of {len(waits)} contests{worst}.\n"


# --- only walltimes known, at one load, on several parts of each trace

PARTS: Final[Mapping[str, tuple[str, float, Mapping[int, int]]]] = {
    "ctc_sp2": ("ctc_sp2_1996", 1, {0: 282, 5000: 379, 10000: 371}),
    "hpc2n": ("hpc2n_2002", 1, {0: 160, 5000: 201, 10000: 192}),
    "kth_sp2": ("kth_sp2_1996", 1, {0: 87, 5000: 89, 10000: 95}),
    "theta": ("theta_2022", 64, {0: 257_388, 5000: 257_440, 10000: 272_054}),
}
"""By name, the trace, what coefficients are divided by, and by first job of each part of 5,000 the CPUs of which it needs 80%."""
COPIES: Final = (1, 2)
"""Seeds by which submissions are moved."""
DENSE: Final = (0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
_PARTS: Final = {
    (name, first, coefficient): [
        contest(
            Case(
                f"{trace}[{first}:{first + 5000}]",
                f"1x{cpus}cpu",
                "cpu=1",
                "",
                warmup=500,
                told=WALLTIME,
                jitter=seed,
            ),
            coefficient,
            DENSE,
            scale,
        )
        for seed in COPIES
    ]
    for name, (trace, scale, parts) in PARTS.items()
    for first, cpus in parts.items()
    for coefficient in COEFFICIENTS
}


def _parts(results: Results) -> str:
    rows, means = [], []
    for name, (_, _, parts) in PARTS.items():
        for first in parts:
            cells = []
            for coefficient in COEFFICIENTS:
                gains = [each.gain(results).wait for each in _PARTS[name, first, coefficient]]
                known = [each for each in gains if each is not None]
                if len(known) < len(gains):
                    cells.append("-")
                    continue
                means.append(sum(known) / len(known))
                cells.append(
                    f"{percent(means[-1], 0)} ({percent(min(known), 0)} to {percent(max(known), 0)})"
                )
            rows.append([name, f"{first + 1:,} to {first + 5000:,}", *cells])
    columns = ["trace", "jobs", *(f"against compute({each})" for each in COEFFICIENTS)]
    lost = [each for each in means if each < 0]
    worst = f"; the worst by {percent(-min(lost), 1)}% of waiting" if lost else ""
    told = f"break_even loses {len(lost)} of {len(means)} contests on average{worst}."
    return f"{markdown(columns, rows)}\n{told}\n"


# --- the same parts at a higher load, also with jobs that end at their walltimes

FULLER: Final[Mapping[str, Mapping[int, int]]] = {
    name: {first: round(cpus * 8 / 9) for first, cpus in parts.items()}
    for name, (_, _, parts) in PARTS.items()
}
"""By name and first job of each part the CPUs of which it needs 90%."""
_FULLER: Final = {
    (name, first, coefficient): [
        contest(
            Case(
                f"{PARTS[name][0]}[{first}:{first + 5000}]",
                f"1x{cpus}cpu",
                "cpu=1",
                "",
                warmup=500,
                told=WALLTIME,
                jitter=1,
                ended=ended,
            ),
            coefficient,
            DENSE,
            PARTS[name][1],
        )
        for ended in (UNSET, True)
    ]
    for name, parts in FULLER.items()
    for first, cpus in parts.items()
    for coefficient in COEFFICIENTS
}


def _fuller(results: Results) -> str:
    rows: list[list[str]] = []
    lost = [0, 0]
    for name, parts in FULLER.items():
        for first, cpus in parts.items():
            cells = []
            for coefficient in COEFFICIENTS:
                gains = [each.gain(results).wait for each in _FULLER[name, first, coefficient]]
                for at, wait in enumerate(gains):
                    lost[at] += wait is not None and wait < 0
                cells.append(" / ".join(percent(wait, 0) for wait in gains))
            rows.append([name, f"{first + 1:,} to {first + 5000:,}", f"{cpus:,}", *cells])
    columns = ["trace", "jobs", "CPUs", *(f"against compute({each})" for each in COEFFICIENTS)]
    told = f"break_even loses {lost[0]} of {len(_FULLER)} contests as in the trace, and {lost[1]} if jobs end at their walltimes."
    return f"{markdown(columns, rows)}\n{told}\n"


# --- what steps bring

STEPS: Final = {
    "neither": NEITHER,
    "what is overdue is expected to take longer": ALL_COUNTS,
    "waiting is sunk": A_MINUTE,
    "both: break_even": "",
}
_STEPS: Final = {
    (step, level): [
        contest(
            replace(OTHERS["kth_sp2 (tuned on)"][0], lognormal=LEVELS[level], variant=variant), each, WIDE
        )
        for each in COEFFICIENTS
    ]
    for step, variant in STEPS.items()
    for level in LEVELS
}


def _steps(results: Results) -> str:
    rows = [
        [step, *(" · ".join(both(one.gain(results)) for one in _STEPS[step, level]) for level in LEVELS)]
        for step in STEPS
    ]
    return markdown(["steps beyond the prototype", *LEVELS], rows)


# --- reservations, errors, star

RECIPE: Final = (
    "synthetic:jobs=20000,load={load},burstiness=2,runtime=lognormal(4h,1.5),"
    "gpus=1:0.6|2:0.12|4:0.1|8:0.12|16:0.04|32:0.02"
)
LOADS: Final = ("0.8", "0.9", "1.0", "1.1", "1.3")
FILLS: Final = {
    "zero": "wait=zero",
    "out of order": f"wait=compute(0.076),{OOO}",
    "easy": "wait=compute(0.076),backfill=easy",
}
_FILLS: Final = {
    (load, name): Case(RECIPE.format(load=load), "64x8gpu", "gpu=1", policy, warmup=1000)
    for load in LOADS
    for name, policy in FILLS.items()
} | {
    (f"Philly, {nodes} nodes", name): replace(PHILLY, owned=f"{nodes}x8gpu", policy=policy)
    for nodes in COMPARED
    for name, policy in FILLS.items()
}


def _easy(results: Results) -> str:
    rows = []
    for where in dict.fromkeys(where for where, _ in _FILLS):
        zero = results[_FILLS[where, "zero"]].statistics
        cells = []
        for name in ("out of order", "easy"):
            found = results[_FILLS[where, name]].statistics
            saved = 1 - found.rented_cost / zero.rented_cost
            longer = found.mean_completion_s / zero.mean_completion_s - 1
            cells.append(f"{percent(saved)} / {100 * longer:+.1f}")
        rows.append([where if "Philly" in where else f"synthetic, load {where}", *cells])
    return markdown(["", "out of order", "easy"], rows)


ERRORS: Final = (0.0, 0.25, 1.0)
_ERRORS: Final = {
    (wait, error): replace(
        PHILLY, policy=f"wait={wait}(0.076{f',estimate_error={error}' if error else ''}),{OOO}"
    )
    for wait in ("compute", "break_even")
    for error in ERRORS
} | {("zero", 0.0): replace(PHILLY, policy=POLICIES["zero"])}


def _errors(results: Results) -> str:
    zero = results[_ERRORS["zero", 0.0]].statistics
    rows = []
    for wait in ("compute", "break_even"):
        cells = []
        for error in ERRORS:
            found = results[_ERRORS[wait, error]].statistics
            longer = found.mean_completion_s / zero.mean_completion_s - 1
            cells.append(f"{percent(1 - found.rented_cost / zero.rented_cost)} / {100 * longer:+.1f}")
        rows.append([f"{wait}(0.076)", *cells])
    return markdown(["Philly, 64 nodes", *(f"{error:.0%} error" for error in ERRORS)], rows)


STAR: Final = {
    12: ("0.243627", "0.083918", "0.049725", "165.4"),
    16: ("0.243627", "0.078056", "0.047526", "291.9"),
    24: ("0.243627", "0.103457", "0.05754", "428.5"),
}
"""By jobs an hour: the coefficients that were published, at equal mean wait, and what star is to cost by its rules."""
SMALL: Final = (0.05, 0.08, 0.12, 0.18, 0.26)


def _table4(rate: int) -> dict[str, Case]:
    constant, compute, star, _ = STAR[rate]
    base = Case(f"table4-rate{rate}", "4x8gpu", "gpu=1", "")
    return {
        "zero": replace(base, policy="wait=zero"),
        "constant": replace(base, policy=f"wait=constant({constant}h),backfill=strict"),
        "star": replace(base, policy=f"wait=star({star}h,h=0.0625h,k=3),{OOO}"),
        "compute": replace(base, policy=f"wait=compute({compute}),{OOO}"),
    } | {f"break_even({each})": replace(base, policy=f"wait=break_even({each}),{OOO}") for each in SMALL}


_TABLE4: Final = {rate: _table4(rate) for rate in STAR}


def _star(results: Results) -> str:
    rows = []
    for rate, cases in _TABLE4.items():
        found = {name: results[case].statistics for name, case in cases.items()}
        curve = [found[f"break_even({each})"] for each in SMALL]
        saved = gain(found["compute"], curve).cost
        cost = None if saved is None else found["compute"].rented_cost * (1 - saved)
        rows.append(
            [
                str(rate),
                *(f"{found[name].rented_cost:.1f}" for name in ("zero", "constant")),
                f"{found['star'].rented_cost:.1f} ({STAR[rate][3]})",
                f"{found['compute'].rented_cost:.1f}",
                "-" if cost is None else f"{cost:.1f}",
            ]
        )
    columns = ["jobs an hour", "zero", "constant", "star (by its rules)", "compute", "break_even, same wait"]
    return markdown(columns, rows)


def _of(names: Sequence[str]) -> list[Case]:
    return all_of(one for (name, _), found in _OTHERS.items() if name in names for one in found)


_LIGHT: Final = ("kth_sp2 (tuned on)", "lublin256", "theta", "ctc_sp2")

CHAPTERS: Final[Mapping[str, Chapter]] = {
    "star": Chapter([case for cases in _TABLE4.values() for case in cases.values()], _star),
    "philly": Chapter(list(_PHILLY.values()), _philly),
    "budget": Chapter([_PHILLY["budget", nodes] for nodes in SIZES], _budget),
    "break-even": Chapter(all_of(_CONTESTS.values()), _contests),
    "pools": POOLS,
    "pools-varied": VARIED,
    "others": Chapter(_of(_LIGHT), _others(_LIGHT)),
    "walltimes": Chapter(all_of(one for found in _LIMITED.values() for one in found), _walltimes),
    "load": Chapter(all_of(one for found in _PARTS.values() for one in found), _parts),
    "fuller": Chapter(all_of(one for found in _FULLER.values() for one in found), _fuller),
    "steps": Chapter(all_of(one for found in _STEPS.values() for one in found), _steps),
    "errors": Chapter(list(_ERRORS.values()), _errors),
    "easy": Chapter(list(_FILLS.values()), _easy),
    "replicas": Chapter(all_of(_REPLICAS.values()), _replicas),
    "hpc2n": Chapter(_of(("hpc2n",)), _others(("hpc2n",))),
}
"""In the order in which they are simulated: the quick and the telling ones first."""
