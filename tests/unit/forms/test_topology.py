"""`within`, `spread`, `exclusive`, `pin` and `gpu_link` of the job file."""

from typing import Any

import pytest

from spillover.forms.jobs.reading import BadForm, read_job, to_doc
from spillover.model.topology import Topology


def doc(**fields: object) -> dict[str, Any]:
    spec = {"run": "true", "tasks": 4} | fields
    return {"apiVersion": "spillover/v1", "kind": "Job", "spec": spec}


@pytest.mark.parametrize(
    ("fields", "topology"),
    [
        ({"within": "rack"}, Topology(within="rack")),
        ({"within": {"prefer": "rack"}}, Topology(within="rack", preferred=True)),
        ({"spread": "node"}, Topology(spread="node")),
        ({"spread": {"over": "rack", "most": 2}}, Topology(spread="rack", most=2)),
        ({"spread": {"over": "node", "most": 2, "exact": True}}, Topology(spread="node", most=2, exact=True)),
        ({"exclusive": "node"}, Topology(exclusive=True)),
        (
            {"within": "zone", "spread": "rack", "exclusive": "node"},
            Topology("zone", False, "rack", 1, False, True),
        ),
        ({"pin": "core"}, Topology(pin="core")),
        (
            {"pin": "socket", "gpu_link": "nvlink", "resources": {"cpu": 4, "gpu": 2}},
            Topology(pin="socket", link="nvlink"),
        ),
    ],
)
def test_a_topology_is_read_and_written_alike(fields: dict[str, object], topology: Topology) -> None:
    form = read_job(doc(**fields))
    assert form.spec.shape.topology == topology
    assert read_job(to_doc(form)) == form
    assert to_doc(form)["spec"].items() >= {**fields, "resources": to_doc(form)["spec"]["resources"]}.items()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"within": "a rack"}, "spec.within: 'a rack' is not a valid name"),
        ({"within": "rack", "spread": "rack"}, "spec.spread: 'rack' is also the level of `within`"),
        ({"within": "node", "spread": "rack"}, "spec.spread: is not possible within one node"),
        ({"spread": {"over": "rack", "exact": True}}, "spec.spread.exact: is only allowed with `over: node`"),
        (
            {"spread": {"over": "node", "most": 3, "exact": True}},
            "spec.spread.most: 3 does not divide the 4 tasks",
        ),
        ({"spread": {"over": "node", "most": -1}}, "spec.spread.most: "),
        ({"spread": "node", "tasks": 1}, "spec.spread: needs more than one task"),
        ({"exclusive": "rack"}, "spec.exclusive: "),
        ({"pin": "rack"}, "spec.pin: "),
        ({"pin": "core", "resources": {"cpu": 1.5}}, "spec.pin: needs whole CPUs, and a task requests 1.5"),
        ({"gpu_link": "nvlink"}, "spec.gpu_link: needs at least 2 GPUs, and a task requests 0"),
        (
            {"gpu_link": "nv link", "resources": {"cpu": 1, "gpu": 2}},
            "spec.gpu_link: 'nv link' is not a valid name",
        ),
    ],
)
def test_a_bad_topology_is_told_in_one_line(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(BadForm) as refused:
        read_job(doc(**fields))
    [line] = str(refused.value).splitlines()
    assert problem in line
