"""Use of nodes is counted as the scheduler of Kubernetes counts it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.clusters.kubernetes.accounting import seen_node, used_by
from spillover.clusters.kubernetes.api.quantities import thousandths, whole
from spillover.forms.jobs.pods import resources_of, totals_of
from spillover.forms.problems import Findings
from spillover.model.cluster import Taint
from spillover.model.resources import Resources
from spillover.wire.manifest import PodDoc
from tests.support.kubernetes import a_node, a_pod

MI = 2**20


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("12", 12),
        ("1k", 1000),
        ("2Ki", 2048),
        ("1.5Gi", 3 * 2**29),
        ("1e3", 1000),
        ("2E3", 2000),
        ("1E", 10**18),
        ("100m", 1),
        ("128974848000m", 128974848),
        ("1n", 1),
        (".5", 1),
        ("5.", 5),
        ("12e-1", 2),
    ],
)
def test_quantities_are_read_as_kubernetes_does_and_parts_are_rounded_up(text: str, value: int) -> None:
    assert whole(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("2", 2000), ("0.1", 100), ("100m", 100), ("100u", 1), ("1500000n", 2)]
)
def test_cpus_are_counted_in_thousandths(text: str, value: int) -> None:
    assert thousandths(text) == value


@pytest.mark.parametrize("text", ["", "x", "1Kib", "1 Gi", "--1", "1ee3"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        whole(text)


def asking(**requests: str) -> dict[str, object]:
    return {"resources": {"requests": requests}}


def test_containers_count_together() -> None:
    pod = a_pod(spec={"containers": [asking(cpu="1", memory="1Mi"), asking(cpu="500m"), {}]})
    assert used_by(pod) == Resources(1500, MI)


def test_an_init_container_counts_where_it_needs_more_than_what_comes_after_it() -> None:
    main = [asking(cpu="1", memory="4Mi"), asking(cpu="1", memory="4Mi")]
    pod = a_pod(
        spec={
            "containers": main,
            "initContainers": [asking(cpu="3", memory="2Mi"), asking(cpu="1", memory="9Mi")],
        }
    )
    assert used_by(pod) == Resources(3000, 9 * MI)


def test_an_init_container_that_goes_on_counts_with_all_that_comes_after_it() -> None:
    early = asking(cpu="2")
    side = asking(cpu="1") | {"restartPolicy": "Always"}
    late = asking(cpu="3")
    assert used_by(
        a_pod(spec={"containers": [asking(cpu="1")], "initContainers": [early, side]})
    ) == Resources(2000)
    assert used_by(
        a_pod(spec={"containers": [asking(cpu="1")], "initContainers": [side, late]})
    ) == Resources(4000)
    assert used_by(
        a_pod(spec={"containers": [asking(cpu="4")], "initContainers": [side, late]})
    ) == Resources(5000)


def test_overhead_and_what_is_asked_for_the_pod_as_a_whole_count() -> None:
    pod = a_pod(
        spec={
            "containers": [asking(cpu="1", memory="1Mi", **{"example.com/fpga": "1"})],
            "resources": {"requests": {"cpu": "3", "memory": "5Mi"}},
            "overhead": {"cpu": "250m", "memory": "1Mi"},
        }
    )
    assert used_by(pod) == Resources(3250, 6 * MI, 0, (("example.com/fpga", 1),))


def test_while_a_pod_is_resized_the_larger_of_old_and_new_counts() -> None:
    real = {"name": "main", "resources": {"requests": {"cpu": "3", "memory": "1Mi"}}}
    pod = a_pod("Running", real, requests={"cpu": "1", "memory": "2Mi"})
    assert used_by(pod) == Resources(3000, 2 * MI)


def test_gpus_are_counted_by_the_resource_that_is_configured() -> None:
    pod = a_pod(requests={"nvidia.com/gpu": "2", "amd.com/gpu": "1", "hugepages-2Mi": "4Mi"})
    assert used_by(pod) == Resources(0, 0, 2, (("amd.com/gpu", 1), ("hugepages-2Mi", 4 * MI)))
    assert used_by(pod, "amd.com/gpu").gpu == 1


def test_a_node_has_what_it_may_give_less_what_others_use() -> None:
    node = a_node(
        labels={"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux", "zone": "a"},
        allocatable={
            "cpu": "3920m",
            "memory": "7Gi",
            "pods": "10",
            "hugepages-1Gi": "0",
            "example.com/fpga": "2",
        },
        taints=[{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}],
    )
    seen = seen_node(node, Resources(500, MI), 3)
    assert seen.capacity == Resources(3920, 7 * 2**30, 0, (("example.com/fpga", 2),))
    assert seen.foreign == Resources(500, MI)
    assert seen.tasks == 7
    assert seen.offers == ("arch:arm64", "container", "os:linux")
    assert seen.labels["zone"] == "a"
    assert seen.taints == (Taint("dedicated", "batch", "NoSchedule"),)
    assert seen.ready


def test_a_node_that_is_cordoned_or_does_not_answer_is_not_ready() -> None:
    assert not seen_node(a_node(ready=False), Resources(), 0).ready
    assert not seen_node(a_node(unschedulable=True), Resources(), 0).ready


def test_a_node_without_a_bound_of_pods_takes_any_number_and_one_with_too_many_takes_none() -> None:
    assert seen_node(a_node(allocatable={"cpu": "1"}), Resources(), 5).tasks == -1
    assert seen_node(a_node(allocatable={"pods": "4"}), Resources(), 5).tasks == 0


@pytest.mark.parametrize(
    ("label", "value", "words"),
    [
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB", ["gpu:a100", "gpu:nvidia-a100-sxm4-40gb"]),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-t4", ["gpu:nvidia-tesla-t4", "gpu:t4"]),
        ("amd.com/gpu.product-name", "AMD_Instinct MI300X", ["gpu:amd_instinct-mi300x", "gpu:mi300x"]),
    ],
)
def test_gpus_are_offered_by_their_model(label: str, value: str, words: list[str]) -> None:
    node = a_node(labels={label: value}, allocatable={"nvidia.com/gpu": "4"})
    assert [word for word in seen_node(node, Resources(), 0).offers if word.startswith("gpu:")] == words
    none = a_node(labels={label: value}, allocatable={})
    assert seen_node(none, Resources(), 0).offers == ("container",)


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "example.com/fpga"]), st.integers(0, 9).map(str)
)
containers = st.fixed_dictionaries(
    {"image": st.just("x"), "resources": st.fixed_dictionaries({"requests": amounts})}
)
init_containers = st.tuples(containers, st.sampled_from([{}, {"restartPolicy": "Always"}])).map(
    lambda both: both[0] | both[1]
)


@given(st.lists(containers, min_size=1), st.lists(init_containers), amounts, amounts)
def test_a_pod_is_counted_alike_before_it_is_made_and_once_it_is_there(
    main: list[dict[str, object]],
    init: list[dict[str, object]],
    overhead: dict[str, str],
    whole: dict[str, str],
) -> None:
    spec = {
        "containers": main,
        "initContainers": init,
        "overhead": overhead,
        "resources": {
            "requests": {name: amount for name, amount in whole.items() if name in {"cpu", "memory"}}
        },
    }
    found = Findings()
    before = resources_of(totals_of(msgspec.convert(spec, PodDoc), (), found))
    assert not found.found
    assert used_by(a_pod(spec=spec)) == before
