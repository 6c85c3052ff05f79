import pytest

from spillover.clusters.kinds import BUILT_IN
from spillover.config.clusteroption import read_options
from spillover.forms.problems import BadForm, either
from spillover.model.cluster import ClusterSpec, Price, Role
from spillover.model.ids import ClusterName
from spillover.wire.clusterfile import KubernetesDoc

ONPREM, CLOUD = ClusterName("onprem"), ClusterName("cloud")


def test_clusters_of_a_command_line() -> None:
    clusters = read_options(
        [
            "onprem=kubernetes:context=kind-onprem,owned",
            "cloud=kubernetes:context=kind-cloud,rented,gpu=2.5,region=eu,label.tier=spot,jobs=9,image=busybox",
        ]
    )
    assert clusters.specs == (
        ClusterSpec(ONPREM, "kubernetes", Role.OWNED, gangs=True, runs=("constraints", "exclusive")),
        ClusterSpec(
            CLOUD,
            "kubernetes",
            Role.RENTED,
            Price(gpu_hour=2_500_000),
            gangs=True,
            region="eu",
            labels={"tier": "spot"},
            runs=("command", "constraints", "exclusive"),
            most_jobs=9,
        ),
    )
    assert clusters.forms == {
        ONPREM: KubernetesDoc(context="kind-onprem"),
        CLOUD: KubernetesDoc(context="kind-cloud", image="busybox"),
    }


def test_a_cluster_of_agents_needs_no_options() -> None:
    assert read_options(["lab=agents"]).specs == (
        ClusterSpec(ClusterName("lab"), "agents", Role.OWNED, gangs=True),
    )


@pytest.mark.parametrize(
    ("option", "line"),
    [
        (
            "onprem",
            "must have the form NAME=KIND:OPTION,..., such as onprem=kubernetes:context=kind-onprem,owned",
        ),
        ("a=nomad", f"'nomad' must be {either(sorted(BUILT_IN))}"),
        (
            "a=agents:context=x",
            "'context' is not an option of cluster kind agents; expected one of owned, rented",
        ),
        (
            "a=kubernetes:colour=red",
            "'colour' is not an option of cluster kind kubernetes; expected one of owned, rented",
        ),
        ("a=slurm:x", f"'slurm' must be {either(sorted(BUILT_IN))}"),
        ("a=kubernetes:contxt=x,owned", "kind kubernetes; did you mean `context`?"),
        ("a=kubernetes:owned=yes", "owned takes no value"),
        ("a=kubernetes:region", "region needs a value: region=..."),
        ("a=kubernetes:rentd,gpu=2.5", "did you mean `rented`?"),
        ("a=kubernetes:gpu=2.5", "price: is only allowed with role: rented"),
        ("a=kubernetes:in_cluster,context=c", "in_cluster: cannot be combined with kubeconfig or context"),
        ("a=kubernetes:owned,rented", "'owned' and 'rented' exclude each other; remove one"),
        ("a=kubernetes:context=x,context=y", "'context=x' and 'context=y' exclude each other"),
        ("a=kubernetes:label.=x", "'label.' is not an option"),
        ("a=kubernetes:jobs=99999999999", "jobs: '99999999999' is not a number of jobs; write 1 to 10000000"),
        ("a=kubernetes:jobs=0", "jobs: '0' is not a number of jobs; write 1 to 10000000"),
        ("a=kubernetes:rented,cpu=abc", "cpu: 'abc' is not"),
        ("a b=agents", "is not a valid name"),
        ("a=kubernetes:keep=soon", "'soon' is not"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_option(option: str, line: str) -> None:
    with pytest.raises(BadForm) as error:
        read_options([option])
    (said,) = str(error.value).splitlines()
    assert said.startswith(f"--cluster {option}: ")
    assert line in said


def test_all_that_is_wrong_with_an_option_is_told_at_once() -> None:
    with pytest.raises(BadForm) as error:
        read_options(["foo=kubernetes:contxt=x,rented,jobs=-1,cpu=abc,keep=soon"])
    unknown, jobs, cpu, keep = (problem.message for problem in error.value.problems)
    assert (
        unknown
        == "'contxt' is not an option of cluster kind kubernetes; did you mean `context`? (at character 16)"
    )
    assert jobs == "jobs: '-1' is not a number of jobs; write 1 to 10000000 (at character 32)"
    assert cpu.startswith("cpu: 'abc' is not")
    assert cpu.endswith("(at character 40)")
    assert keep.startswith("keep: 'soon' is not")
    assert keep.endswith("(at character 48)")


def test_two_clusters_of_one_name_are_refused() -> None:
    with pytest.raises(BadForm, match="'a' is already the name of another cluster"):
        read_options(["a=agents", "a=kubernetes:context=c"])
