"""What is heard of a cluster, put together: only what changed is told, nothing twice, and nothing is taken for gone too early."""

from collections.abc import Iterable

import pytest

from spillover.clusters.kubernetes.api.objects import KubeJob, KubeNode, Pod
from spillover.clusters.kubernetes.attempts.naming import name_of
from spillover.clusters.kubernetes.mirror import Mirror
from spillover.core.events import Lease
from spillover.core.proposals import Outcome
from spillover.model.ids import JobId
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.ports.driver import Changes, Hindrance, Seen, Stage
from tests.support.kubernetes import (
    LEASE,
    NAMESPACE,
    OWNER,
    a_condition,
    a_container,
    a_job,
    a_node,
    a_note,
    a_pod,
    at,
    ended,
    when,
)

OTHER = Lease(JobId("bcdefghijklm"), 1, 1)
RUNNING = a_container(running={"startedAt": at(1)})
FAILED = a_condition("Failed", "BackoffLimitExceeded")
NOTHING = Changes(whole=False)
FIRST = a_pod("Failed", a_container(terminated=ended(7, 1, 3)), name="first")
LAST = a_pod("Succeeded", a_container(terminated=ended(0, 4, 9)), name="last")
"""Pods of one that was retried."""


def mirror(nodes: Iterable[KubeNode] = (), pods: Iterable[Pod] = (), jobs: Iterable[KubeJob] = ()) -> Mirror:
    """One that has listed everything, and told it."""
    made = Mirror(OWNER, NAMESPACE)
    made.list_nodes(nodes, 1)
    made.list_pods(pods, 1)
    made.list_jobs(jobs, 1)
    made.take()
    return made


def the_only(changes: Changes) -> Seen:
    """What is told of the one attempt that changed."""
    assert not changes.gone
    (seen,) = changes.attempts
    return seen


def test_nothing_is_told_before_everything_was_listed() -> None:
    world = Mirror(OWNER, NAMESPACE)
    world.list_nodes([a_node()], 1)
    world.list_pods([a_pod(lease=None, requests={"cpu": "1"}), a_pod("Running", RUNNING)], 1)
    assert not world.has_news()
    assert world.take() == NOTHING
    world.list_jobs([a_job()], 1)
    assert world.has_news()
    told = world.take()
    assert told.whole
    assert [(node.name, node.foreign, node.tasks) for node in told.nodes] == [
        ("node-1", Resources(1000), 109)
    ]
    assert the_only(told).stage is Stage.RUNNING
    assert not world.has_news()
    assert world.take() == NOTHING


def test_pods_of_others_use_room_from_when_they_are_bound_until_they_are_over() -> None:
    world = mirror([a_node()])

    def foreign() -> list[Resources]:
        return [node.foreign for node in world.take().nodes]

    world.put_pod(a_pod(lease=None, node="", requests={"cpu": "1"}))
    assert foreign() == []
    world.put_pod(a_pod(lease=None, requests={"cpu": "1"}))
    assert foreign() == [Resources(1000)]
    world.put_pod(a_pod("Running", lease=None, requests={"cpu": "1"}))
    assert foreign() == []
    world.put_pod(a_pod(lease=None, name="second", requests={"cpu": "2", "example.com/fpga": "1"}))
    assert foreign() == [Resources(3000, 0, 0, (("example.com/fpga", 1),))]
    world.put_pod(a_pod("Succeeded", lease=None, requests={"cpu": "1"}))
    assert foreign() == [Resources(2000, 0, 0, (("example.com/fpga", 1),))]
    world.drop_pod(a_pod("Running", lease=None, name="second"))
    assert foreign() == [Resources()]
    world.drop_pod(a_pod("Succeeded", lease=None))
    assert foreign() == []


def test_pods_that_another_server_made_or_that_are_elsewhere_are_foreign() -> None:
    world = Mirror("another", NAMESPACE)
    world.list_nodes([a_node()], 1)
    world.list_pods([a_pod(requests={"cpu": "1"})], 1)
    world.list_jobs([a_job()], 1)
    told = world.take()
    assert told.nodes[0].foreign == Resources(1000)
    assert told.attempts == ()
    here = mirror([a_node()], [a_pod(namespace="elsewhere", requests={"cpu": "1"})])
    here.list_nodes([a_node()], 1)
    assert here.take().nodes[0].foreign == Resources(1000)


def test_a_node_that_only_says_that_it_lives_is_no_news() -> None:
    world = mirror([a_node()])
    world.put_node(a_node())
    assert not world.has_news()
    world.put_node(a_node(unschedulable=True))
    (node,) = world.take().nodes
    assert not node.ready
    world.drop_node(a_node())
    assert world.take() == Changes(whole=False, gone_nodes=(node.name,))


def test_a_pod_on_a_node_that_is_not_known_yet_counts_once_it_is() -> None:
    world = mirror()
    world.put_pod(a_pod(lease=None, requests={"cpu": "1"}))
    assert world.take() == NOTHING
    world.put_node(a_node())
    assert [node.foreign for node in world.take().nodes] == [Resources(1000)]


def test_a_new_list_tells_all_anew_and_what_is_not_in_it_is_gone() -> None:
    world = mirror(
        [a_node(), a_node("node-2")],
        [a_pod(lease=None, requests={"cpu": "1"}), a_pod(lease=OTHER)],
        [a_job(), a_job(lease=OTHER)],
    )
    world.list_nodes([a_node()], 2)
    world.list_pods([], 10**9)
    world.list_jobs([a_job()], 10**9)
    world.settle(OTHER, None, [], 10**9)
    told = world.take()
    assert told.whole
    assert [(node.name, node.foreign) for node in told.nodes] == [("node-1", Resources())]
    assert [seen.lease for seen in told.attempts] == [LEASE]
    assert told.gone == (OTHER,)


def test_an_answer_that_comes_late_does_not_bring_back_a_pod_that_is_gone() -> None:
    job, pod = a_job(), a_pod("Running", RUNNING)
    world = mirror([a_node()], [pod], [job])
    world.drop_job(job)
    assert world.doubts() == (LEASE,)
    world.drop_pod(pod)  # heard while its pods were asked for
    world.settle(LEASE, None, [pod], 10**9)
    assert world.take().gone == (LEASE,)


def test_an_answer_that_is_older_than_a_list_does_not_bring_back_pods_that_are_not_in_it() -> None:
    job, pod = a_job(), a_pod("Running", RUNNING)
    world = mirror([a_node()], [], [job])
    world.drop_job(job)
    world.list_pods([], 10**9)  # heard while its pods were asked for
    world.settle(LEASE, None, [pod], 10**9 - 1)
    assert world.take().gone == (LEASE,)


def test_a_list_of_before_does_not_take_away_a_pod_that_was_asked_for_since() -> None:
    job = a_job()
    world = mirror([a_node()], [], [job])
    world.drop_job(job)
    world.settle(LEASE, None, [a_pod("Running", RUNNING)], 10**9)
    world.list_pods([], 1)
    assert not world.take().gone


def test_a_cluster_that_was_restored_from_a_copy_is_as_its_lists_say() -> None:
    early, kept = a_pod("Pending"), a_job()
    gone, late = a_job(lease=OTHER), a_pod("Running", RUNNING)
    world = mirror([a_node()], [late], [kept])
    world.put_job(gone)
    world.put_pod(a_pod("Running", RUNNING, lease=OTHER))
    world.take()
    world.list_pods([early], 1)
    world.list_jobs([kept], 1)
    world.settle(OTHER, None, [], 10**9)
    told = world.take()
    assert told.gone == (OTHER,)
    assert [(seen.lease, seen.stage) for seen in told.attempts] == [(LEASE, Stage.PENDING)]


def test_only_attempts_that_changed_are_told() -> None:
    world = mirror([a_node()], [], [a_job(), a_job(lease=OTHER)])
    world.put_job(a_job())
    assert world.take() == NOTHING
    world.put_pod(a_pod("Running", RUNNING))
    assert the_only(world.take()).lease == LEASE


def test_an_attempt_is_gone_when_nothing_of_it_is_there() -> None:
    world = mirror([a_node()], [a_pod("Running", RUNNING)], [a_job()])
    world.drop_job(a_job())
    seen = the_only(world.take())
    assert seen.going
    world.settle(LEASE, None, [a_pod("Running", RUNNING)], 10**9)
    world.drop_pod(a_pod("Running", RUNNING, deleted=5))
    assert world.take() == Changes(whole=False, gone=(LEASE,))


def test_an_attempt_is_not_gone_before_it_was_asked_whether_there_are_pods_that_were_not_heard_of() -> None:
    world = mirror([a_node()], [], [a_job()])
    world.drop_job(a_job())
    assert world.doubts() == (LEASE,)
    assert the_only(world.take()).going
    world.list_pods([], 2)
    assert the_only(world.take()).going
    world.settle(LEASE, None, [a_pod("Running", RUNNING)], 10**9)
    assert world.doubts() == ()
    assert the_only(world.take()).stage is Stage.RUNNING
    world.drop_pod(a_pod("Running", RUNNING))
    assert world.take().gone == (LEASE,)


def test_pods_that_come_and_go_say_nothing_of_a_job_that_was_not_heard_of() -> None:
    world = mirror([a_node()])
    world.put_pod(a_pod("Running", RUNNING))
    world.drop_pod(a_pod("Failed", a_container(terminated=ended(3))))
    assert world.doubts() == (LEASE,)
    assert world.take().gone == ()
    world.settle(LEASE, a_job(), [], 10**9)
    assert not the_only(world.take()).going
    world.put_job(a_job(FAILED))
    ending = the_only(world.take()).ending
    assert ending is not None
    assert ending.exit_code == 3


def test_an_attempt_that_ended_and_is_deleted_is_gone_at_once() -> None:
    done = a_pod("Succeeded", a_container(terminated=ended(0)))
    world = mirror([a_node()], [done], [a_job(a_condition("Complete"))])
    world.drop_job(a_job(a_condition("Complete")))
    world.drop_pod(done)
    assert world.doubts() == ()
    assert world.take().gone == (LEASE,)


def test_how_a_pod_ended_is_remembered_once_it_is_deleted() -> None:
    world = mirror([a_node()], [a_pod("Running", RUNNING)], [a_job()])
    world.drop_pod(a_pod("Failed", a_container(terminated=ended(7))))
    world.put_job(a_job(FAILED))
    ending = the_only(world.take()).ending
    assert ending is not None
    assert (ending.outcome, ending.exit_code) == (Outcome.EXITED, 7)
    world.list_pods([], 5)
    again = the_only(world.take()).ending
    assert again == ending


def test_of_a_job_that_is_over_without_a_pod_that_was_heard_of_the_pods_are_asked_for() -> None:
    world = mirror([a_node()])
    world.put_job(a_job(FAILED))
    assert world.doubts() == (LEASE,)
    assert the_only(world.take()).ending is None
    world.settle(LEASE, a_job(FAILED), [a_pod("Failed", a_container(terminated=ended(3)))], 10**9)
    ending = the_only(world.take()).ending
    assert ending is not None
    assert ending.exit_code == 3


def test_an_end_is_not_told_before_as_many_pods_were_heard_of_as_the_job_counts() -> None:
    world = mirror([a_node()], [FIRST], [a_job()])
    over = a_job(a_condition("Complete"), succeeded=1, failed=1)
    world.put_job(over)
    assert world.doubts() == (LEASE,)
    assert world.take() == NOTHING
    world.settle(LEASE, over, [FIRST, LAST], 10**9)
    assert world.doubts() == ()
    ending = the_only(world.take()).ending
    assert ending is not None
    assert (ending.usage.ran, ending.finished) == (8 * SECOND, when(9))


def test_pods_that_are_lacking_and_gone_are_not_waited_for() -> None:
    world = mirror([a_node()], [FIRST], [a_job()])
    over = a_job(a_condition("Complete"), succeeded=1, failed=1)
    world.put_job(over)
    world.settle(LEASE, over, [FIRST], 10**9)
    assert world.doubts() == ()
    ending = the_only(world.take()).ending
    assert ending is not None
    assert ending.exit_code == 0


def test_a_pod_that_is_gone_before_its_end_was_heard_is_none_of_those_that_ended_well() -> None:
    world = mirror([a_node()], [a_pod("Running", RUNNING, name="last")], [a_job()])
    over = a_job(a_condition("Complete"), succeeded=1)
    world.put_job(over)
    assert world.doubts() == ()
    world.list_pods([], 10**9)
    assert world.doubts() == (LEASE,)
    world.settle(LEASE, over, [], 10**9)
    ending = the_only(world.take()).ending
    assert ending is not None
    assert ending.exit_code == 0


@pytest.mark.parametrize("job_first", [True, False])
def test_of_a_job_whose_pods_were_heard_of_nothing_is_asked_for(job_first: bool) -> None:
    world = mirror([a_node()], [a_pod("Running", RUNNING)], [a_job()])
    over = a_job(a_condition("Complete"), succeeded=1)
    if job_first:
        world.put_job(over)
        assert world.doubts() == ()
        assert world.take() == NOTHING
    world.put_pod(a_pod("Succeeded", a_container(terminated=ended(0))))
    world.put_job(over)
    assert world.doubts() == ()
    assert the_only(world.take()).ending is not None


def test_a_server_that_starts_asks_for_no_pods_before_they_were_listed() -> None:
    world = Mirror(OWNER, NAMESPACE)
    world.list_jobs([a_job(a_condition("Complete"), succeeded=1), a_job(FAILED, lease=OTHER)], 1)
    assert world.doubts() == ()
    world.list_pods([a_pod("Succeeded", a_container(terminated=ended(0)))], 1)
    assert world.doubts() == (OTHER,)


def test_pods_that_were_asked_for_before_their_job_was_over_may_not_be_all() -> None:
    world = mirror([a_node()])
    world.put_pod(a_pod("Running", RUNNING))
    world.drop_pod(a_pod("Failed", a_container(terminated=ended(3))))
    works, over = a_job(), a_job(FAILED)
    world.put_job(over)  # heard while the Job and its pods were asked for
    world.settle(LEASE, works, [], 10**9)
    assert world.doubts() == (LEASE,)
    world.settle(LEASE, over, [], 10**9)
    assert world.doubts() == ()


def test_a_pod_that_was_gone_when_the_end_was_told_does_not_run_again_when_the_watch_tells_of_before() -> (
    None
):
    world = mirror([a_node()])
    early, over = a_pod("Running", RUNNING), a_job(FAILED)
    world.put_job(over)
    world.settle(LEASE, over, [], int(over.metadata.resource_version))
    told = the_only(world.take())
    assert told.ending is not None
    world.put_pod(early)
    world.drop_pod(early)
    assert world.take() == NOTHING
    world.put_pod(a_pod("Running", RUNNING))
    assert the_only(world.take()).stage is Stage.RUNNING


def test_a_job_that_was_made_is_there_before_it_is_heard_of_also_if_a_list_is_older() -> None:
    world = mirror([a_node()])
    made = a_job()
    world.made_job(made)
    assert the_only(world.take()).stage is Stage.PENDING
    world.list_jobs([], int(made.metadata.resource_version) - 1)
    assert not the_only(world.take()).going
    assert world.doubts() == ()
    world.list_jobs([], int(made.metadata.resource_version) + 1)
    assert world.doubts() == (LEASE,)


def test_a_job_that_was_made_and_is_gone_already_does_not_come_back() -> None:
    world = mirror([a_node()])
    made = a_job()
    world.put_job(made)
    world.drop_job(made)
    world.settle(LEASE, None, [], 10**9)
    assert world.take().gone == (LEASE,)
    world.made_job(made)
    assert world.take() == NOTHING


def test_a_job_that_was_found_over_does_not_run_again_when_the_watch_tells_of_before() -> None:
    world = mirror([a_node()], [a_pod("Failed", a_container(terminated=ended(3)))])
    made, works, over = a_job(), a_job(active=1), a_job(FAILED)
    world.made_job(over)
    told = the_only(world.take())
    assert told.ending is not None
    world.put_job(made)
    world.settle(LEASE, works, [], 10**9)
    world.list_jobs([works], int(works.metadata.resource_version))
    assert the_only(world.take()) == told
    world.put_job(over)
    assert world.take() == NOTHING


def test_an_older_job_of_the_same_name_does_not_take_the_place_of_the_new_one() -> None:
    world = mirror([a_node()])
    old, new = a_job(uid="old", deleted=1), a_job(uid="new")
    world.made_job(new)
    assert not the_only(world.take()).going
    world.put_job(old)
    world.drop_job(old)
    assert world.doubts() == ()
    assert world.take() == NOTHING


def test_a_job_that_was_over_runs_in_a_cluster_that_was_restored_from_a_copy_of_before() -> None:
    works, over = a_job(), a_job(FAILED)
    world = mirror([a_node()], [], [works])
    world.put_job(over)
    world.settle(LEASE, over, [], 10**9)
    assert the_only(world.take()).ending is not None
    world.list_jobs([works], int(works.metadata.resource_version))
    assert the_only(world.take()).ending is None
    world.put_job(a_job(FAILED))
    assert world.doubts() == (LEASE,)


def test_the_deletion_of_an_older_job_of_the_same_name_says_nothing_of_the_new_one() -> None:
    world = mirror([a_node()], [], [a_job(uid="new")])
    world.drop_job(a_job(uid="old"))
    assert world.doubts() == ()


def test_what_is_noted_about_a_job_or_its_pod_is_told_with_it() -> None:
    world = mirror([a_node()], [], [a_job()])
    world.put_note(a_note("FailedCreate", "quota", name_of(LEASE)))
    pending = the_only(world.take()).pending
    assert pending is not None
    assert (pending.why, pending.message) == (Hindrance.REFUSED, "quota")
    pod = a_pod("Pending", a_container(waiting={"reason": "ContainerCreating"}))
    world.put_pod(pod)
    world.put_note(a_note("FailedMount", "no volume", pod.metadata.name))
    pending = the_only(world.take()).pending
    assert pending is not None
    assert (pending.why, pending.message) == (Hindrance.CONFIG, "no volume")


def test_what_is_noted_about_an_object_before_it_is_heard_of_is_told_with_it() -> None:
    pod = a_pod("Pending", a_container(waiting={"reason": "ContainerCreating"}), lease=OTHER)
    world = Mirror(OWNER, NAMESPACE)
    world.list_notes([a_note("FailedCreate", "first", name_of(LEASE))], 1)
    world.list_notes(
        [
            a_note("FailedMount", "no volume", pod.metadata.name),
            a_note("FailedCreate", "quota", name_of(LEASE)),
        ],
        1,
    )
    world.list_nodes([a_node()], 1)
    world.list_pods([pod], 1)
    world.list_jobs([a_job(), a_job(lease=OTHER)], 1)
    told = {seen.lease: seen.pending for seen in world.take().attempts}
    create, mount = told[LEASE], told[OTHER]
    assert create is not None
    assert mount is not None
    assert (create.why, create.message) == (Hindrance.REFUSED, "quota")
    assert (mount.why, mount.message) == (Hindrance.CONFIG, "no volume")


@pytest.mark.parametrize("about", ["somebody-else", name_of(LEASE)])
def test_other_notes_are_passed_over(about: str) -> None:
    world = mirror([a_node()], [], [a_job()])
    world.put_note(a_note("Scheduled", "fine", about))
    assert world.take() == NOTHING


def test_a_node_that_does_not_answer_any_more_ends_attempts_that_only_wait_for_it() -> None:
    target = a_condition("FailureTarget", "BackoffLimitExceeded")
    world = mirror([a_node()], [a_pod("Running", RUNNING, deleted=3)], [a_job(target)])
    world.put_node(a_node(ready=False))
    ending = the_only(world.take()).ending
    assert ending is not None
    assert ending.outcome is Outcome.LOST


def test_nothing_is_kept_of_attempts_that_are_gone() -> None:
    world = mirror([a_node()])
    for number in range(50):
        lease = Lease(JobId(f"job{number}"), 1, 1)
        done = a_pod("Succeeded", a_container(terminated=ended(0)), lease=lease)
        world.put_job(a_job(lease=lease))
        world.put_pod(done)
        world.put_job(a_job(a_condition("Complete"), lease=lease))
        assert world.doubts() == ()
        world.take()
        world.drop_pod(done)
        world.drop_job(a_job(a_condition("Complete"), lease=lease))
        assert world.take().gone == (lease,)
    for kept in (world._attempts, world._names, world._told, world._doubts, world._over):
        assert kept == {}
