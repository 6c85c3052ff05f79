"""The same proposals give the same journal and the same plans: in another process, and in a later release."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spillover.core.apply import apply
from spillover.core.events import AnyEvent
from spillover.core.proposals import Refusal, Submit
from spillover.core.state import State
from spillover.deciding.cycle import cycle
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.whatif import Snapshot, try_jobs
from spillover.model.ids import job_of_task
from spillover.model.job import Burst
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World
from spillover.wire.journal import decode_event
from tests.support.sameness import indexed_by, said_by
from tests.support.tiers import examples

FIXTURES = Path(__file__).parent.parent / "fixtures"
STORY = FIXTURES / "journals" / "make.py"


def test_two_hash_seeds_write_the_same_journal() -> None:
    """A set that is iterated somewhere would show here."""
    digests = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, str(STORY), "-"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        digests.add(hashlib.sha256(done.stdout).hexdigest())
    assert len(digests) == 1


def test_the_story_that_releases_keep_has_every_kind_of_event() -> None:
    done = subprocess.run([sys.executable, str(STORY), "-"], capture_output=True, check=True)
    journal = msgspec.msgpack.decode(done.stdout, type=list[bytes])
    told = {type(decode_event(event)).__name__ for event in journal}
    assert told == {kind.__name__ for kind in get_args(AnyEvent)}


def test_journals_of_every_release_are_replayed_to_the_state_they_led_to() -> None:
    journals = sorted((FIXTURES / "journals").glob("*.msgpack"))
    assert journals
    for path in journals:
        recorded = msgspec.json.decode(path.with_suffix(".json").read_bytes())
        state = State()
        for event in msgspec.msgpack.decode(path.read_bytes(), type=list[bytes]):
            apply(state, decode_event(event))
        jobs = {job.id: [job.state, job.attempt, job.seq, job.cost] for job in state.jobs.values()}
        nodes = {
            node.key: [node.status, sorted({job_of_task(task) for task in node.holding})]
            for node in state.nodes.values()
        }
        found = {
            "jobs": jobs,
            "nodes": nodes,
            "queued": state.queued,
            "running": state.running,
            "cycles": state.facts.cycles,
        }
        if "machines" in recorded:
            found["machines"] = {each.id: [each.state, each.provider_id] for each in state.machines.values()}
        assert msgspec.json.decode(msgspec.json.encode(found)) == recorded, path.name


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(
    cpus=st.lists(st.sampled_from([1, 2, 9]), min_size=1, max_size=4),
    queued=st.integers(0, 4),
    odd=st.sampled_from(["", "array", "after", "later", "key", "held back", "taken key", "first"]),
    order=st.sampled_from(["fifo", "lifo", "priority", "sjf", "ljf", "edf", "slack", "fair_share"]),
)
def test_a_trial_leaves_no_trace(cpus: list[int], queued: int, odd: str, order: str) -> None:
    world = World(
        load, PolicySet(order=Choice(order), wait=Choice("constant", {"wait": 5 * SECOND, "max_queue": 2}))
    )
    world.agent("n1", cpus=2)
    for number in range(queued):
        world.submit(a_job(f"old{'abcd'[number]}").key(f"k{number}"))
    jobs = [a_job(f"new{'abcd'[number]}").cpus(size) for number, size in enumerate(cpus)]
    match odd:
        case "array":
            jobs[0].array(1, 3)
        case "after" if queued:
            jobs[0].after("olda")
        case "later":
            jobs[0].between(not_before=world.now + SECOND, deadline=world.now + 9 * SECOND)
        case "key":
            jobs[0].key("fresh")
        case "taken key":
            jobs[0].key("k0")
        case "held back":
            jobs[0].burst(Burst.NEVER)
        case "first":
            jobs[0].priority(5)
    engine = world.engine
    before, index = said_by(world.state), indexed_by(engine.index)
    dirty, order_of_jobs = world.state.dirty.copy(), list(world.state.jobs)
    tried = try_jobs(Snapshot(engine), world.now, Submit(tuple(job.build() for job in jobs), "ada"))
    assert not isinstance(tried, Refusal)
    assert said_by(world.state) == before
    assert indexed_by(engine.index) == index
    assert (world.state.dirty, list(world.state.jobs)) == (dirty, order_of_jobs)
    live = cycle.run(world.state, engine.index, engine.policies, world.now, 0).plan
    anew = cycle.run(
        world.state, SchedulingIndex(world.state, engine.policies), engine.policies, world.now, 0
    ).plan
    assert live.digest() == anew.digest()
    assert not live
