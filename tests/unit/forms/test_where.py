from typing import Any

import pytest

from spillover.forms.jobs.reading import BadForm, JobForm, read_job, to_doc
from spillover.model.job import Burst, OnFailure
from spillover.model.resources import Resources
from spillover.model.where import Where


def doc(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true"} | spec}


def read(**spec: Any) -> JobForm:
    form = read_job(doc(**spec))
    assert read_job(to_doc(form)) == form
    return form


def wrong(**spec: Any) -> list[str]:
    with pytest.raises(BadForm) as error:
        read_job(doc(**spec))
    return [str(problem) for problem in error.value.problems]


def test_a_job_may_say_which_clusters_it_runs_on() -> None:
    where = read(
        where={
            "kind": "kubernetes",
            "cluster": ["onprem", "cloud", "onprem"],
            "region": ["north", "south"],
            "labels": {"zone": "a", "disk": ""},
            "avoid": "lab",
        }
    ).spec.shape.where
    assert where == Where(
        "",
        ("kubernetes",),
        ("cloud", "onprem"),
        ("north", "south"),
        (("disk", ""), ("zone", "a")),
        ("lab",),
    )


@pytest.mark.parametrize(("role", "burst"), [("owned", Burst.NEVER), ("rented", Burst.ALWAYS)])
def test_a_role_says_whether_a_job_is_rented(role: str, burst: Burst) -> None:
    shape = read(where={"role": role}).spec.shape
    assert (shape.burst, shape.where) == (burst, Where(role))
    assert read(where={"role": role}, burst=str(burst)).spec.shape == shape


def test_nothing_asked_is_nothing_kept() -> None:
    assert read(where={}).spec.shape is read().spec.shape
    assert read(where={"cluster": []}).spec.shape.where is None


def test_jobs_that_ask_for_the_same_share_one_shape() -> None:
    assert read(where={"cluster": "a"}).spec.shape is read(where={"cluster": ["a"]}).spec.shape


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ({"cluster": "a b"}, "spec.where.cluster: 'a b' is not a valid name"),
        ({"avoid": ["ok", "-"]}, "spec.where.avoid[1]: '-' is not a valid name"),
        ({"region": ""}, "spec.where.region: '' is not valid; write 1 to 256 printable characters"),
        ({"kind": ["a\nb"]}, "spec.where.kind[0]: 'a\\nb' is not valid"),
        ({"labels": {"": "x"}}, "spec.where.labels['']: '' is not valid"),
        ({"cluster": "a", "avoid": "a"}, "spec.where.avoid: 'a' is also listed in `cluster`; remove one"),
        ({"role": "mine"}, "spec.where.role: 'mine' must be owned or rented"),
        ({"regions": "north"}, "spec.where.regions: unknown field; did you mean `region`?"),
        ({"cluster": 7}, "spec.where.cluster: must be text or a list, found 7"),
    ],
)
def test_what_is_wrong_with_it_is_told(where: dict[str, Any], problem: str) -> None:
    (told,) = wrong(where=where)
    assert told.startswith(problem)


def test_a_role_that_burst_rules_out_is_told() -> None:
    (told,) = wrong(where={"role": "rented"}, burst="never")
    assert told == ("spec.where.role: rented conflicts with `burst: never`; remove one of them")


def test_what_a_cluster_must_be_able_to_do_follows_from_the_work() -> None:
    assert read().spec.shape.runs == ("command",)
    assert read(outputs=["*.csv"]).spec.shape.runs == ("command", "files")
    call = {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"python": {"call": "a:b"}}}
    assert read_job(call).spec.shape.runs == ("python",)
    image = {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"container": {"image": "i"}}}
    assert read_job(image).spec.shape.runs == ()


def test_resources_of_any_name_are_asked_for() -> None:
    shape = read(
        resources={"cpu": 2, "other": {"example.com/fpga": 1, "hugepages-2Mi": "4Mi", "x": 0}}
    ).spec.shape
    assert shape.resources == Resources(2000, 0, 0, (("example.com/fpga", 1), ("hugepages-2Mi", 2**22)))
    assert str(shape.resources) == "2 CPU, 1 example.com/fpga, 4Mi hugepages-2Mi"


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"cpu": 1}, "spec.resources.other.cpu: has a separate field; write it as `cpu` next to `other`"),
        (
            {"nvidia.com/gpu": 1},
            "spec.resources.other['nvidia.com/gpu']: has a separate field; write it as `gpu`",
        ),
        ({"a b": 1}, "spec.resources.other['a b']: 'a b' is not a resource name"),
        ({"fpga": "one"}, "spec.resources.other.fpga: 'one' is not an amount of fpga; write a whole number"),
        ({"fpga": -1}, "spec.resources.other.fpga: -1 is not an amount of fpga"),
        ({"hugepages-1Gi": "lots"}, "spec.resources.other.hugepages-1Gi: 'lots' is not an amount of memory"),
    ],
)
def test_amounts_that_are_none_are_told(other: dict[str, Any], problem: str) -> None:
    (told,) = wrong(resources={"other": other})
    assert told.startswith(problem)


def test_a_job_says_what_becomes_of_it_when_its_cluster_fails() -> None:
    assert read().spec.terms.on_cluster_failure is OnFailure.WAIT
    assert read(on_cluster_failure="requeue").spec.terms.on_cluster_failure is OnFailure.REQUEUE
    (told,) = wrong(on_cluster_failure="retry")
    assert told == "spec.on_cluster_failure: 'retry' must be cancel, requeue or wait"
