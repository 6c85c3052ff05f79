"""Objects that are not as Kubernetes writes them cost themselves, not the list or the watch."""

import json
from typing import Any

import msgspec
import pytest

from spillover.clusters.kubernetes.api.decoding import Decoding
from spillover.clusters.kubernetes.api.objects import (
    UNREADABLE,
    KubeJob,
    KubeNode,
    ListMeta,
    Meta,
    Pod,
    is_object_name,
    moment_of,
    version_of,
)
from spillover.clusters.kubernetes.attempts.naming import labels_of, lease_of
from spillover.clusters.kubernetes.mirror import Mirror
from spillover.core.events import Lease, NodesSeen
from spillover.core.proposals import Done, SeeCluster, SeeNodes
from spillover.model.bounds import MOST_AMOUNT, MOST_RAN
from spillover.model.cluster import ClusterHealth, ClusterSpec, Role
from spillover.model.ids import ClusterName, JobId
from spillover.model.resources import Resources
from spillover.model.units import FOREVER
from spillover.policies.loading import load
from spillover.ports.driver import Changes
from spillover.testing.builders import a_job as a_submission
from spillover.testing.world import World
from spillover.wire.journal import decode_event, encode_event
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
)

ODD: dict[str, Any] = {
    "a list where an object is expected": {"spec": []},
    "text where a list is expected": {"status": {"conditions": "Ready"}},
    "nothing where an object is expected": {"status": {"allocatable": None}},
    "a number where text is expected": {"status": {"allocatable": {"cpu": 4}}},
    "a time without a zone": {"metadata": {"creationTimestamp": "2027-01-31T12:00:00"}},
    "a time that is none": {"metadata": {"deletionTimestamp": "soon"}},
}


def written(kind: Any, **changes: Any) -> Any:
    """An object as an API server writes it, changed."""
    plain = json.loads(msgspec.json.encode(kind))
    for name, value in changes.items():
        plain[name] = {**plain[name], **value} if isinstance(value, dict) else value
    return plain


def page(*objects: Any) -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "9"}, "items": objects}).encode()


def change(kind: str, thing: Any) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode()


@pytest.mark.parametrize("changes", ODD.values(), ids=ODD)
def test_of_an_odd_object_in_a_list_its_metadata_count(changes: dict[str, Any]) -> None:
    odd = written(a_node("odd", labels={"zone": "a"}), **changes)
    found = Decoding(KubeNode).page(page(written(a_node("n1")), odd, written(a_node("n2"))))
    assert [node.metadata.name for node in found.items] == ["n1", "odd", "n2"]
    assert found.items[1] == KubeNode(Meta("odd", "", "uid-odd", "1", {"zone": "a"}))
    assert found.metadata.resource_version == "9"


@pytest.mark.parametrize(
    "thing",
    [
        7,
        None,
        [],
        {},
        {"metadata": []},
        {"metadata": {"name": "../x"}},
        {"metadata": {"name": "a\0"}, "spec": 1},
    ],
)
def test_what_has_no_name_is_passed_over(thing: Any) -> None:
    found = Decoding(KubeNode).page(page(thing, written(a_node("n1")), 7))
    assert [node.metadata.name for node in found.items if node.metadata.name] == ["n1"]


def test_a_list_without_items_is_empty() -> None:
    assert Decoding(Pod).page(b'{"items": null}').items == ()


@pytest.mark.parametrize("data", [b"<html>", b"[1]", b"[" * 100_000, b"\xff", b"", b'{"items": 7}'])
def test_what_is_no_list_at_all_is_told(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        Decoding(Pod).page(data)


def test_an_odd_object_in_a_watch_has_all_listed_anew_and_stays_as_it_was_known_after_that() -> None:
    decoding = Decoding(Pod)
    odd = written(a_pod(), spec=[])
    with pytest.raises(UNREADABLE):
        decoding.change(change("MODIFIED", odd))
    assert decoding.page(page(odd)).items[0].metadata.name == odd["metadata"]["name"]
    told = decoding.change(change("MODIFIED", odd))
    assert told is not None
    assert (told.type, told.object.metadata.resource_version) == (
        "BOOKMARK",
        odd["metadata"]["resourceVersion"],
    )
    told = decoding.change(change("DELETED", odd))
    assert told is not None
    assert (told.type, told.object.metadata.labels) == ("DELETED", labels_of(LEASE, OWNER))


def test_an_odd_job_of_ours_is_still_there() -> None:
    mirror = Mirror(OWNER, NAMESPACE)
    mirror.list_nodes([a_node()], 1)
    mirror.list_pods([a_pod("Running", a_container(running={"startedAt": at(1)}))], 1)
    (odd,) = Decoding(KubeJob).page(page(written(a_job(), status={"succeeded": "many"}))).items
    mirror.list_jobs([odd], 1)
    (seen,) = mirror.take().attempts
    assert (seen.lease, seen.going, seen.ending) == (LEASE, False, None)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a?b", "a\n", "x" * 254, "-a", "a\0", 7, None])
def test_what_leads_elsewhere_in_an_address_is_no_name(name: object) -> None:
    assert not is_object_name(name)


@pytest.mark.parametrize(
    ("said", "version"), [("17", 17), ("", 0), ("²", 0), ("9" * 5000, 0), ("x", 0), ("-1", 0)]
)
def test_versions_that_are_no_numbers_count_as_none(said: str, version: int) -> None:
    assert version_of(ListMeta(said)) == version


@pytest.mark.parametrize("job", ["../../secrets/x", "a/b", "", "x" * 101, "a b"])
def test_an_object_with_a_label_that_is_no_id_is_none_of_ours(job: str) -> None:
    labels = labels_of(Lease(JobId("a"), 1, 1), OWNER)
    assert lease_of(labels, OWNER) is not None
    assert lease_of(labels | {"spillover.dev/job": job}, OWNER) is None
    assert lease_of(labels | {"spillover.dev/seq": "9" * 19}, OWNER) is None


def test_times_are_within_what_can_be_stored() -> None:
    years = msgspec.json.decode(b'["0001-01-01T00:00:00Z", "9999-12-31T00:00:00Z"]', type=list[type(at(0))])  # type: ignore[misc]
    assert [moment_of(each) for each in years] == [0, FOREVER]


KUBE = ClusterName("kube")


def told(changes: Changes) -> SeeNodes:
    return SeeNodes(KUBE, changes.nodes, changes.gone_nodes, changes.whole)


@pytest.mark.parametrize(
    "requests",
    [
        {"cpu": "9223372036854775807"},
        {"memory": "9" * 60},
        {"cpu": "1e999", "memory": "100E"},
        {"example.com/fpga": "9223372036854775807E"},
        {"cpu": "-5", "memory": "lots", "nvidia.com/gpu": "9" * 1000},
        {f"example.com/{at}": "1" for at in range(5000)},
        {"x" * 100_000: "1", "a\0b": "1"},
    ],
)
def test_whatever_pods_of_others_ask_for_can_be_written_down(
    requests: dict[str, str],
) -> None:
    mirror = Mirror(OWNER, NAMESPACE)
    mirror.list_nodes([a_node("n1"), a_node("n2")], 1)
    mirror.list_jobs([], 1)
    pods = [a_pod("Running", lease=None, name=f"p{at}", node="n1", requests=requests) for at in range(3)]
    mirror.list_pods(pods, 1)
    world = World(load, clusters=(ClusterSpec(KUBE, "kubernetes", Role.OWNED),))
    step = world.step(told(mirror.take()), SeeCluster(KUBE, ClusterHealth.READY))
    assert step.replies == [Done(), Done()]
    for event in step.events:
        assert len(encode_event(event)) < 20_000
        assert decode_event(encode_event(event)) == event
    (seen,) = [event for event in step.events if isinstance(event, NodesSeen)]
    assert all(
        0 <= amount <= MOST_AMOUNT
        for node in seen.nodes
        for amount in (node.foreign.cpu, node.foreign.memory)
    )
    world.submit(a_submission("a"))
    full = requests.get("cpu") in {"9223372036854775807", "1e999"} or requests.get("memory") == "9" * 60
    assert world.where("a") == ("kube/n2" if full else "kube/n1")
    mirror.list_pods([], 2)
    step = world.step(told(mirror.take()))
    assert {node.foreign for node in world.state.nodes.values()} == {Resources()}


def test_a_node_with_more_than_can_be_stored_has_as_much_as_can() -> None:
    mirror = Mirror(OWNER, NAMESPACE)
    most = "9223372036854775807"
    labels = {f"l{at}": "x" for at in range(3000)} | {
        "k" * 400: "x",
        "nul": "\0",
        "kubernetes.io/arch": "x y",
    }
    taints = [{"key": "k" * 5000, "value": "\0", "effect": "NoSchedule"}] * 500
    mirror.list_nodes(
        [a_node("n1", labels=labels, allocatable={"cpu": most, "pods": most}, taints=taints)], 1
    )
    mirror.list_pods([], 1)
    mirror.list_jobs([], 1)
    (node,) = mirror.take().nodes
    assert (node.capacity.cpu, node.tasks) == (MOST_AMOUNT, MOST_AMOUNT)
    assert len(node.labels) == 1000
    assert len(node.taints) == 100
    assert node.taints[0].value == "\ufffd"
    assert node.offers == ("container",)
    event = NodesSeen(KUBE, 0, (node,))
    assert decode_event(encode_event(event)) == event


def test_an_ending_is_within_bounds_whatever_its_pods_say() -> None:
    mirror = Mirror(OWNER, NAMESPACE)
    mirror.list_nodes([a_node()], 1)
    end = ended(2**40, message="\0" + "x" * 100_000) | {
        "startedAt": "0001-01-01T00:00:00Z",
        "finishedAt": "9999-12-31T00:00:00Z",
        "signal": 2**40,
    }
    mirror.list_pods([a_pod("Failed", a_container(restarts=2**70, terminated=end), index=int("9" * 30))], 1)
    mirror.list_jobs([a_job(a_condition("Failed", "BackoffLimitExceeded"), failed=2**70)], 1)
    mirror.settle(LEASE, None, [], 1)
    (seen,) = mirror.take().attempts
    ending = seen.ending
    assert ending is not None
    assert (ending.exit_code, ending.signal, ending.usage.ran) == (2**31 - 1, None, MOST_RAN)
    assert (ending.finished, ending.message) == (FOREVER, "\ufffd" + "x" * 1999)


def test_what_keeps_a_pod_from_starting_is_told_in_words_that_can_be_stored() -> None:
    mirror = Mirror(OWNER, NAMESPACE)
    mirror.list_nodes([a_node()], 1)
    mirror.list_pods([], 1)
    mirror.list_jobs([a_job(a_condition("Suspended", message="\x1b" + "x" * 100_000))], 1)
    mirror.put_note(a_note("FailedCreate", "y" * 100_000, "spill-abcdefghijkl-1-2"))
    (seen,) = mirror.take().attempts
    assert seen.pending is not None
    assert len(seen.pending.message) == 2000
    assert "\x1b" not in seen.pending.message
