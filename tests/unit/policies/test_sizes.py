"""Size policies: with how many tasks a gang of elastic size starts."""

from collections.abc import Mapping
from functools import partial

import pytest
from msgspec.structs import replace

from spillover.config.read import read_config
from spillover.core.proposals import SetPolicies
from spillover.core.records.jobs import Placed, Running
from spillover.deciding.cycle.plan import digest_of
from spillover.deciding.guard import GuardedSize
from spillover.deciding.protocols import SizeCase
from spillover.forms.policystring import read_policies
from spillover.forms.problems import BadForm
from spillover.model.job import Shape
from spillover.model.policy import Choice, PolicySet
from spillover.model.policy_options import write_policies
from spillover.model.resources import Resources
from spillover.policies.loading import Maker, load
from spillover.policies.size import Largest, Share, Smallest
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World

LAB = replace(OWNED, gangs=True)
HEAD = "apiVersion: spillover/v1\nkind: Config\n"


def a_case(least: int, most: int, free: int, *others: int) -> SizeCase:
    return SizeCase(Shape(Resources(cpu=1000), tasks=least, most=most), free, others)


@pytest.mark.parametrize(
    ("case", "got"),
    [
        (a_case(2, 8, 8), 8),
        (a_case(2, 8, 40), 8),
        (a_case(2, 8, 8, 8), 4),
        (a_case(2, 8, 8, 8, 8), 2),
        (a_case(3, 8, 8, 8, 8), 3),
        (a_case(2, 8, 8, 1), 7),
        (a_case(2, 8, 8, 1, 1, 1), 5),
        (a_case(2, 8, 8, 6), 4),
        (a_case(2, 8, 12, 1, 9, 9), 3),
        (a_case(2, 8, 5, *([1] * 256)), 2),
        (a_case(2, 100, 300, *([1] * 256)), 44),
    ],
)
def test_a_gang_that_shares_gets_an_even_part_and_what_smaller_jobs_leave_of_theirs(
    case: SizeCase, got: int
) -> None:
    assert Share().most(case) == got


def test_the_largest_and_the_smallest_look_at_nobody_else() -> None:
    case = a_case(2, 8, 8, 8, 8)
    assert (Largest().most(case), Smallest().most(case)) == (8, 2)


# --- in the cycle


def a_lab(size: str, backfill: str = "out_of_order", more: Mapping[str, Maker] | None = None) -> World:
    """Four machines of two CPUs."""
    chosen = PolicySet(wait=Choice("never"), backfill=Choice(backfill), size=Choice(size))
    lab = World(partial(load, more=more), chosen, (LAB,))
    for name in "abcd":
        lab.agent(name, cpus=2)
    return lab


def sizes(lab: World, *jobs: str) -> list[int]:
    """How many tasks jobs got; 0 for one that is not placed."""
    found = [lab.job(each) for each in jobs]
    return [len(each.tasks) if isinstance(each.phase, Placed | Running) else 0 for each in found]


@pytest.mark.parametrize("backfill", ["out_of_order", "easy", "conservative", "strict"])
@pytest.mark.parametrize(("size", "got"), [("largest", [8, 0]), ("smallest", [2, 2]), ("share", [4, 4])])
def test_two_elastic_gangs_that_come_together(size: str, got: list[int], backfill: str) -> None:
    lab = a_lab(size, backfill)
    lab.submit(*[a_job(f"{each}gang").tasks(2, most=8) for each in "ab"])
    assert sizes(lab, "agang", "bgang") == got


def test_it_leaves_room_for_single_tasks_behind_it_and_for_members_of_arrays() -> None:
    lab = a_lab("share")
    lab.submit(a_job("gang").tasks(2, most=8), a_job("single"), a_job("many").array(1, 2))
    assert sizes(lab, "gang", "single") == [5, 1]
    assert sum(len(node.holding) for node in lab.state.nodes.values()) == 8


def test_it_does_not_leave_room_to_those_who_cannot_use_it() -> None:
    lab = a_lab("share")
    lab.submit(
        a_job("gang").tasks(2, most=8),
        a_job("large").cpus(2).tasks(4),  # only together with nobody else
        a_job("elsewhere").needing("gpu:a100"),
        a_job("later").held(),
    )
    assert sizes(lab, "gang", "large", "elsewhere") == [8, 0, 0]


def test_gpus_are_shared_by_jobs_with_gpus() -> None:
    lab = a_lab("share")
    lab.agent("g", cpus=16, gpus=8)
    lab.submit(
        a_job("gang").cpus(1).gpus(1).tasks(1, most=8),
        a_job("train").cpus(1).gpus(2),
        *[a_job(f"{each}prepare").cpus(1) for each in "xyz"],
    )
    assert sizes(lab, "gang", "train", "xprepare") == [6, 1, 1]


def test_a_queue_of_many_jobs_leaves_it_its_least_size() -> None:
    lab = a_lab("share")
    lab.submit(a_job("gang").tasks(2, most=8), a_job("sweep").array(1, 5000))
    assert sizes(lab, "gang") == [2]


def test_a_change_of_the_policy_holds_for_the_next_start() -> None:
    lab = a_lab("largest")
    lab.submit(a_job("first").tasks(2, most=8))
    lab.start("first")
    lab.propose(SetPolicies(replace(lab.state.facts.policies, size=Choice("smallest")), "ada"))
    assert sizes(lab, "first") == [8]
    lab.finish("first")
    lab.submit(a_job("second").tasks(2, most=8))
    assert sizes(lab, "second") == [2]


# --- lines, files, digests

ROUTED = "19010ecab73c57c31630a23f59852f46"


def test_policies_with_the_usual_size_are_called_as_before_there_was_a_choice() -> None:
    assert digest_of(PolicySet()).hex() == "d0b0d39ae238dc89fb768398a9786c2c", "as 0.1.0 wrote it"
    routed = PolicySet(route=Choice("biased", {"share": 0.5}))
    assert digest_of(routed).hex() == ROUTED, "as 0.5.0 wrote it"
    named = [digest_of(PolicySet(size=Choice(name))) for name in ("largest", "smallest", "share")]
    assert named[0] == digest_of(PolicySet())
    assert len({*named, digest_of(routed)}) == 4


@pytest.mark.parametrize("size", ["smallest", "share"])
def test_a_line_names_a_size_and_reads_the_same_again(size: str) -> None:
    policies = read_policies(f"size={size}")
    assert f"size={size}" in write_policies(policies)
    assert read_policies(write_policies(policies)) == policies


def test_a_line_does_not_mention_the_size_that_needs_no_mention() -> None:
    assert "size" not in write_policies(PolicySet())


def test_the_size_is_read_from_the_configuration() -> None:
    config = read_config((HEAD + "policy: {size: share}\n").encode(), "spill.yaml")
    assert config.policies.size == Choice("share")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policy: {size: shared}", "'shared' is not a policy of the axis size; did you mean `share`?"),
        ("policy: {size: {share: {part: 1}}}", "unknown option; this policy has no options"),
    ],
)
def test_what_is_wrong_with_it_is_one_line(text: str, said: str) -> None:
    with pytest.raises(BadForm) as error:
        read_config((HEAD + text + "\n").encode(), "spill.yaml")
    (line,) = str(error.value).splitlines()
    assert said in line


# --- policies of packages


class Answering:
    """Answers with what is not a size, or not at all."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def most(self, case: SizeCase) -> object:
        del case
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize("answer", [ValueError("no"), None, 1, 9, 4.0, True])
def test_a_size_of_somebody_else_that_fails_is_made_up_for(answer: object) -> None:
    guard = GuardedSize("odd", Answering(answer))
    assert guard.most(a_case(2, 8, 8)) == 8
    assert guard.failures == 1


class Half:
    """Takes half of what is free."""

    def most(self, case: SizeCase) -> int:
        return min(case.shape.most, max(case.shape.tasks, case.free // 2))


def test_a_size_of_a_package_decides() -> None:
    lab = a_lab("half", more={"size.half": Half})
    lab.submit(a_job("gang").tasks(2, most=8))
    assert sizes(lab, "gang") == [4]
    assert [guard.failures for guard in lab.engine.policies.guards] == [0]
