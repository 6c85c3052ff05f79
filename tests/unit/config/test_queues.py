"""The named queues of spill.yaml."""

import pytest

from spillover.config.read import read_config
from spillover.forms.problems import BadForm
from spillover.model.job import Burst
from spillover.model.queues import QueueDefaults, QueueLimits, QueueSize, QueueSpec
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, MONEY

HEAD = "apiVersion: spillover/v1\nkind: Config\n"
FULL = """\
queues:
- name: short
  description: up to an hour
  default: true
  defaults: {walltime: 30m, estimate: 10m, resources: {cpu: 2, memory: 4Gi, gpu: 1}, priority: 3, burst: never, max_cost: 2.5}
  limits: {running: 100, cpu: 400, memory: 1Ti, gpu: 16, queued: 5000}
  user_limits: {running: 10, cpu: 1.5}
  walltime: 1h
  size: {cpu: 64, memory: 256Gi, gpu: 0, tasks: 8}
  projects: [vision]
  users: [ann, bob]
  clusters: [onprem]
  priority: 100
- {name: long}
"""


def test_queues_are_read() -> None:
    short, long = read_config(HEAD + FULL).queues
    assert short == QueueSpec(
        "short",
        "up to an hour",
        True,
        QueueDefaults(
            30 * MINUTE, 10 * MINUTE, Resources(2000, 4 * 2**30, 1), 3, Burst.NEVER, 5 * MONEY // 2
        ),
        QueueLimits(100, Resources(400_000, 2**40, 16), 5000),
        QueueLimits(10, Resources(1500)),
        HOUR,
        QueueSize(64_000, 256 * 2**30, 0, 8),
        ("vision",),
        ("ann", "bob"),
        ("onprem",),
        100,
    )
    assert long == QueueSpec("long")
    assert read_config(HEAD).queues == ()


@pytest.mark.parametrize(
    ("queues", "told"),
    [
        ("[{name: a b}]", "queues[0].name: 'a b' is not a valid name"),
        ("[{name: a}, {name: a}]", "queues[1].name: is a second queue 'a'; choose another name"),
        (
            "[{name: a, default: true}, {name: b, default: true}]",
            "queues[1].default: is the second default queue, after 'a'; remove one",
        ),
        (
            "[{name: a, default: true}, {name: default}]",
            "queues[0].default: is the second default queue, after 'default'; remove one",
        ),
        ("[{name: a, walltime: 0s}]", "queues[0].walltime: '0s' is out of range; it must be more than 0"),
        (
            "[{name: a, walltime: 1h, defaults: {walltime: 2h}}]",
            "queues[0].defaults.walltime: '2h' is longer than the 1h of the queue",
        ),
        (
            "[{name: a, walltime: 1h, defaults: {estimate: 2h}}]",
            "queues[0].defaults.estimate: '2h' is longer than the walltime",
        ),
        ("[{name: a, limits: {running: 0}}]", "queues[0].limits.running: 0 is too small; the minimum is 1"),
        ("[{name: a, limits: {cpus: 1}}]", "queues[0].limits.cpus: is not known"),
        ("[{name: a, user_limits: {cpu: -1}}]", "queues[0].user_limits.cpu: -1"),
        ("[{name: a, projects: [x y]}]", "queues[0].projects[0]: 'x y' is not a valid name"),
    ],
)
def test_a_problem_is_told_with_its_place(queues: str, told: str) -> None:
    with pytest.raises(BadForm) as caught:
        read_config(f"{HEAD}queues: {queues}\n")
    assert told.partition(": is not known")[0] in str(caught.value.problems[0]), caught.value.problems
