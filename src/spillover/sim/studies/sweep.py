"""Plans and stores sweeps of policies on one trace; an interrupted sweep continues from its stored results."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from spillover import __version__
from spillover.forms.policystring import points, read_policies
from spillover.forms.problems import BadForm, FormProblem
from spillover.model.policy import PolicySet
from spillover.model.policy_options import write_policies
from spillover.sim.estimates import Known, Told
from spillover.sim.reports.failures import JobFailure
from spillover.sim.reports.statistics import Statistics
from spillover.sim.studies.provenance import made_of
from spillover.sim.studies.study import Study, StudyResult, known_to
from spillover.sim.trace import TraceJob

_START: Final = b'{"key":"'
"""Beginning of a file of results."""


class Point(Struct, frozen=True):
    """One simulation of a sweep."""

    curve: int
    """Number of its sweep, from 1; 0 is zero wait, with which all are compared."""
    label: str
    """The policies that its sweep sets, such as `wait=constant(1h)`."""
    value: str
    """The value that varies along the curve, such as `1h`; empty if none does."""
    policies: PolicySet
    key: str
    """Digest of everything that the result depends on."""
    known: Known = Known()
    """What its policies know about runtimes."""


class Kept(Struct, frozen=True):
    """A stored result, one per line."""

    key: str
    policy: str
    statistics: Statistics
    failures: tuple[JobFailure, ...] = ()


def plan(
    sweeps: Sequence[str],
    base: PolicySet,
    study: Study,
    jobs: Sequence[TraceJob],
    tolds: Sequence[Told] = (),
) -> list[Point]:
    """Return all points, curve by curve, after zero wait. Each sweep is done with each of `tolds`, if there are any."""
    studies = [replace(study, told=told) for told in tolds] or [study]
    contents = [content_digest(each, jobs) for each in studies]
    zero = read_policies("wait=zero", base=base)
    found = [Point(0, "wait=zero", "", zero, _key(contents[0], zero), known_to(studies[0], zero))]
    for number, sweep in enumerate(sweeps, 1):
        steps = list(points(sweep, "--sweep"))
        there: set[tuple[str, Known]] = set()
        for each, content in zip(studies, contents, strict=True):
            for step in steps:
                policies = read_policies(step.line, "--sweep", base=base, study=True)
                known = known_to(each, policies)
                if (step.label, known) not in there:  # an error among its options comes before `tolds`
                    there.add((step.label, known))
                    key = _key(content, policies)
                    found.append(Point(number, step.label, step.value, policies, key, known))
    return found


def content_digest(study: Study, jobs: Sequence[TraceJob]) -> str:
    """Hash the jobs, and the parts of the study that affect results."""
    digest = hashlib.blake2b(msgspec.msgpack.encode(jobs), digest_size=16)
    told = (study.fleet, study.rent, study.seed, study.warmup, study.told, study.normal, study.lognormal)
    digest.update(msgspec.msgpack.encode((__version__, *told, *study.reserved)))
    return digest.hexdigest()


class Results:
    """A file of results; ignores incomplete lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._torn = False
        """Whether the last line is incomplete."""

    def check(self) -> None:
        """Refuse a file with other content, before any simulation."""
        try:
            with self.path.open("rb") as file:
                start = file.read(len(_START))
        except FileNotFoundError:
            return
        if start and not _START.startswith(start):
            advice = "exists but has no results of a sweep; name another file, or delete it"
            raise BadForm([FormProblem("--out", None, "", f"{self.path} {advice}")])

    def read(self) -> dict[str, StudyResult]:
        """Read the stored results by key."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        self._torn = bool(data) and not data.endswith(b"\n")
        kept: dict[str, StudyResult] = {}
        decoder = msgspec.json.Decoder(Kept)
        for line in data.splitlines():
            try:
                one = decoder.decode(line)
            except msgspec.DecodeError:
                continue  # incomplete, or from an older version; simulate it again
            kept[one.key] = StudyResult(one.policy, one.statistics, one.failures)
        return kept

    def add(self, key: str, result: StudyResult) -> None:
        """Append one result."""
        line = msgspec.json.encode(Kept(key, result.policy, result.statistics, result.failures)) + b"\n"
        with self.path.open("ab") as file:
            file.write(b"\n" + line if self._torn else line)
        self._torn = False


def missing(found: Iterable[Point], kept: Mapping[str, StudyResult]) -> Iterator[Point]:
    """Yield points without a result; of equal points only the first."""
    seen = set(kept)
    for point in found:
        if point.key not in seen:
            seen.add(point.key)
            yield point


def dominated(results: Sequence[StudyResult]) -> list[bool]:
    """Tell for each result whether another costs no more, completes no later, and is better in one of both.

    Only results whose policies knew the same of runtimes are compared, and each with the first one, which waits for
    nothing. Excludes results whose policies failed, because their numbers are not valid.
    """
    if not results:
        return []
    alike: dict[Known, list[int]] = {}
    for at, one in enumerate(results[1:], 1):
        alike.setdefault(one.known, [0]).append(at)
    worse = [False] * len(results)
    for places in alike.values():
        for at, beaten in zip(places, _beaten([results[at] for at in places]), strict=True):
            worse[at] = worse[at] or beaten
    return worse


def _beaten(results: Sequence[StudyResult]) -> list[bool]:
    """Tell the same of results that may all be compared."""
    costs = [
        None if one.failures else (one.statistics.rented_cost, one.statistics.mean_completion_s)
        for one in results
    ]
    best = float("inf")
    worse: dict[tuple[float, float], bool] = {}
    for cost, time in sorted({one for one in costs if one is not None}):
        worse[cost, time] = time >= best
        best = min(best, time)
    return [one is not None and worse[one] for one in costs]


def _key(content: str, policies: PolicySet) -> str:
    """Hash everything that one simulation depends on."""
    told = f"{content} {write_policies(policies)} {made_of(policies)}".rstrip()
    return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
