"""Many policies on one trace: points of curves, kept as they come, so that an interrupted sweep goes on where it was."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from spillover import __version__
from spillover.forms.policystring import points, read_policies
from spillover.forms.problems import BadForm, FormProblem
from spillover.model.policy import PolicySet
from spillover.model.policy_options import write_policies
from spillover.sim.failing import JobFailure
from spillover.sim.provenance import made_of
from spillover.sim.statistics import Statistics
from spillover.sim.study import Study, StudyResult
from spillover.sim.trace import TraceJob

_START: Final = b'{"key":"'
"""What a file of results begins with."""


class Point(Struct, frozen=True):
    """One simulation of a sweep."""

    curve: int
    """Number of the sweep that it belongs to, from 1; 0 is zero wait, with which all are compared."""
    label: str
    """What its sweep says of it, as `wait=constant(1h)`."""
    value: str
    """What changes along its curve, as `1h`; empty if it is on none."""
    policies: PolicySet
    key: str
    """Digest of everything that its result depends on."""


class Kept(Struct, frozen=True):
    """A result as it stands in the file, a line each."""

    key: str
    policy: str
    statistics: Statistics
    failures: tuple[JobFailure, ...] = ()


def plan(sweeps: Sequence[str], base: PolicySet, study: Study, jobs: Sequence[TraceJob]) -> list[Point]:
    """All points, curve by curve, with zero wait before them."""
    content = content_digest(study, jobs)
    zero = read_policies("wait=zero", base=base)
    found = [Point(0, "wait=zero", "", zero, _key(content, zero))]
    for number, sweep in enumerate(sweeps, 1):
        for step in points(sweep, "--sweep"):
            policies = read_policies(step.line, "--sweep", base=base, study=True)
            found.append(Point(number, step.label, step.value, policies, _key(content, policies)))
    return found


def content_digest(study: Study, jobs: Sequence[TraceJob]) -> str:
    """Of the jobs themselves and all of the study that is not said by them."""
    digest = hashlib.blake2b(msgspec.msgpack.encode(jobs), digest_size=16)
    told = (study.fleet, study.rent, study.seed, study.warmup, study.told, study.normal, study.lognormal)
    digest.update(msgspec.msgpack.encode((__version__, *told)))
    return digest.hexdigest()


class Results:
    """The file of results: whatever is whole in it counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._torn = False
        """Whether the last line was cut off as it was written."""

    def check(self) -> None:
        """Refuse a file that holds something else, before anything is simulated."""
        try:
            with self.path.open("rb") as file:
                start = file.read(len(_START))
        except FileNotFoundError:
            return
        if start and not _START.startswith(start):
            advice = "is there and holds no results of a sweep; name another file, or delete it"
            raise BadForm([FormProblem("--out", None, "", f"{self.path} {advice}")])

    def read(self) -> dict[str, StudyResult]:
        """What is there already, by key."""
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
                continue  # torn, or of an older version; it is simulated again
            kept[one.key] = StudyResult(one.policy, one.statistics, one.failures)
        return kept

    def add(self, key: str, result: StudyResult) -> None:
        """Keep one more."""
        line = msgspec.json.encode(Kept(key, result.policy, result.statistics, result.failures)) + b"\n"
        with self.path.open("ab") as file:
            file.write(b"\n" + line if self._torn else line)
        self._torn = False


def missing(found: Iterable[Point], kept: Mapping[str, StudyResult]) -> Iterator[Point]:
    """Points without a result; of equal ones the first."""
    seen = set(kept)
    for point in found:
        if point.key not in seen:
            seen.add(point.key)
            yield point


def dominated(results: Sequence[StudyResult]) -> list[bool]:
    """Of each result whether another one costs no more and completes no later, and is better in one of both.

    One whose policies failed has numbers that are not theirs: it is compared with none.
    """
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
    """Digest of one simulation."""
    told = f"{content} {write_policies(policies)} {made_of(policies)}".rstrip()
    return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
