"""A job that was changed while it waited is placed as if it had been submitted so."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.core.proposals import ChangeJob, Done
from spillover.core.records.jobs import Job
from spillover.model.ids import JobId
from spillover.model.job import JobSpec
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import World
from tests.support.tiers import examples

POLICIES = [
    PolicySet(wait=Choice("never")),
    PolicySet(wait=Choice("zero")),
    PolicySet(wait=Choice("compute", {"coefficient": 0.5})),
    PolicySet(order=Choice("priority"), backfill=Choice("easy"), wait=Choice("never")),
]
jobs = st.fixed_dictionaries(
    {
        "cpus": st.integers(1, 4),
        "queue": st.sampled_from(["default", "other"]),
        "walltime": st.sampled_from([60, 600]),
        "estimate": st.sampled_from([None, 30]),
        "priority": st.integers(0, 2),
    }
)


def built(name: str, asked: dict[str, Any]) -> JobBuilder:
    job = a_job(name).cpus(asked["cpus"]).queue(str(asked["queue"])).priority(asked["priority"])
    estimate = asked["estimate"]
    return job.terms(
        walltime=asked["walltime"] * SECOND, estimate=None if estimate is None else estimate * SECOND
    )


def change(world: World, job: str, spec: JobSpec) -> None:
    found = world.job(job)
    fields = ("resources", "queue", "walltime", "estimate")
    proposal = ChangeJob(JobId(job), found.spec, spec, found.spec, fields, "ada")
    assert isinstance(world.propose(proposal), Done)


def seen(job: Job) -> object:
    phase = type(job.phase).__name__, getattr(job.phase, "node", None), getattr(job.phase, "why", None)
    return phase, job.kind, job.terms, job.priority, job.latest, job.due, job.arrived


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(POLICIES), st.lists(st.tuples(jobs, jobs), min_size=1, max_size=5), st.booleans())
def test_a_changed_job_is_placed_as_if_it_had_been_submitted_so(
    policies: PolicySet, asked: list[tuple[dict[str, Any], dict[str, Any]]], rented: bool
) -> None:
    changed, submitted = World(load, policies), World(load, policies)
    names = [f"job{number}" for number in range(len(asked))]
    changed.submit(*[built(name, before) for name, (before, _) in zip(names, asked, strict=True)])
    submitted.submit(*[built(name, after) for name, (_, after) in zip(names, asked, strict=True)])
    for name, (_, after) in zip(names, asked, strict=True):
        change(changed, name, built(name, after).spec())
    for world in (changed, submitted):
        world.agent("n1", cpus=5)
        if rented:
            world.agent("v1", cpus=4, cluster="cloud")
        world.wait(seconds=1000)
    assert [seen(changed.job(name)) for name in names] == [seen(submitted.job(name)) for name in names]
